"""Azure ML's container contract with the real binary: entry scripts, variables, folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.command import run
from harness.server import Server

SCORE = """
import json, os
def init():
    global start
    start = int(open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "start.txt")).read())
def run(data, request_headers):
    if data == "broken":
        raise KeyError("secret detail")
    return {"sum": start + sum(json.loads(data)["data"]), "type": request_headers["Content-Type"]}
"""

RAW = """
from azureml.contrib.services.aml_request import AMLRequest, rawhttp
from azureml_inference_server_http.api.aml_response import AMLResponse
def init():
    pass
@rawhttp
def run(request):
    assert isinstance(request, AMLRequest)
    if request.method == "GET":
        return AMLResponse(request.full_path, 200)
    if request.files:
        images = b"+".join(file.read() for file in request.files.getlist("image"))
        return AMLResponse(images, 201, {"Content-Type": "image/jpeg", "x-a": "1, 2"})
    return AMLResponse({"bytes": len(request.get_data(False))}, 503, json_str=True)
"""


@pytest.fixture
def azure(start: Callable[..., Server], tmp_path: Path) -> Callable[..., Server]:
    """Starts a deployment with this entry script."""

    def azure(source: str, **variables: str) -> Server:
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "score.py").write_text(source)
        (tmp_path / "start.txt").write_text("10")
        env = {"AML_APP_ROOT": str(tmp_path / "app"), "AZUREML_ENTRY_SCRIPT": "score.py"}
        env |= {"AZUREML_MODEL_DIR": str(tmp_path)}
        return start("serve", "--host", "127.0.0.1", env=env | variables)

    return azure


def score(server: Server, body: object, **headers: str) -> requests.Response:
    """One request; what is not bytes goes as JSON."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    content = {"data": body} if isinstance(body, bytes) else {"json": body}
    return requests.post(server.url("/score"), headers=headers, timeout=120, **content)


def test_an_entry_script_is_run_as_on_azure(azure: Callable[..., Server]) -> None:
    server = azure(SCORE)
    healthy = requests.get(server.url("/"), timeout=120)
    assert (healthy.status_code, healthy.text) == (200, "Healthy")
    reply = score(server, {"data": [1, 2]}, x_ms_client_request_id="mine")
    assert (reply.status_code, reply.json()) == (200, {"sum": 13, "type": "application/json"})
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-ms-run-function-failed"] == "False"
    assert float(reply.headers["x-ms-run-fn-exec-ms"]) >= 0
    assert (reply.headers["x-ms-client-request-id"], reply.headers["x-ms-request-id"]) == ("mine", "mine")
    assert reply.headers["x-ms-server-version"].startswith("jitney/")
    typed = {"Content-Type": "x/y"}
    by_query = requests.get(server.url("/score?data=[4]"), headers=typed, timeout=120)
    assert by_query.json()["sum"] == 14
    broken = score(server, b"broken")
    assert broken.status_code == 500 and broken.headers["x-ms-run-function-failed"] == "True"
    assert broken.json() == {"message": "An unexpected error occurred in scoring script. Check the logs for more info."}
    server.logged("secret detail")
    assert score(server, b"\xff").status_code == 400
    assert requests.put(server.url("/score"), data=b"x", timeout=120).status_code == 405
    assert requests.options(server.url("/score"), timeout=120).status_code == 200
    assert score(server, {"data": []}, x_request_id="x" * 101).status_code == 431
    assert score(server, {"data": []}, x_ms_request_id="x" * 101, x_ms_client_request_id="y").status_code == 431
    for version, key in [
        ("", "swagger"),
        ("?version=2", "swagger"),
        ("?version=3", "openapi"),
        ("?version=3.1", "openapi"),
    ]:
        described = requests.get(server.url(f"/swagger.json{version}"), timeout=120)
        assert described.status_code == 200 and key in described.json() and "/score" in described.json()["paths"]
    assert requests.get(server.url("/swagger.json?version=4"), timeout=120).status_code == 404
    server.logged("platform azure-ml by AZUREML_ENTRY_SCRIPT")


def test_raw_requests_of_an_entry_script(azure: Callable[..., Server]) -> None:
    pytest.importorskip("werkzeug", reason="entry scripts with @rawhttp need werkzeug (see `make test-clouds`)")
    server = azure(RAW)
    assert requests.get(server.url("/score?a=1"), timeout=120).text == "/score?a=1"
    files = [("image", ("a.jpg", b"A", "image/jpeg")), ("image", ("b.jpg", b"B", "image/jpeg"))]
    reply = requests.post(server.url("/score"), files=files, timeout=120)
    assert (reply.status_code, reply.content) == (201, b"A+B")
    assert (reply.headers["content-type"], reply.headers["x-a"]) == ("image/jpeg", "1, 2")
    failed = score(server, b"12345")
    assert (failed.status_code, failed.json()) == (503, {"bytes": 5})
    assert failed.headers["x-ms-run-function-failed"] == "True"


STREAMS = """
import os, time
from azureml.contrib.services.aml_response import AMLResponse
def init(): pass
def pieces(gate):
    yield "first,"
    while not os.path.exists(gate):
        time.sleep(0.02)
    yield "second"
def run(data):
    return AMLResponse(pieces(data), 200)
"""


def test_what_an_entry_script_generates_leaves_piece_by_piece(azure: Callable[..., Server], tmp_path: Path) -> None:
    pytest.importorskip("werkzeug", reason="AMLResponse needs werkzeug (see `make test-clouds`)")
    server = azure(STREAMS, SERVER_VERSION_LOG_RESPONSE_ENABLED="false")
    gate = tmp_path / "gate"
    with requests.post(server.url("/score"), data=str(gate), stream=True, timeout=120) as reply:
        assert reply.status_code == 200 and "x-ms-server-version" not in reply.headers
        came = b""
        while len(came) < len(b"first,"):
            came += reply.raw.read1(64)
        gate.touch()
        assert came + reply.raw.read() == b"first,second"


def test_azures_variables_become_settings(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(SCORE)

    def effective(**env: str) -> dict[str, tuple[str, str]]:
        script = {"AML_APP_ROOT": str(tmp_path), "AZUREML_ENTRY_SCRIPT": "score.py"}
        done = run(binary, "config", "--json", "serve", **script, **env)
        return {row["key"]: (row["value"], row["from"]) for row in json.loads(done.stdout)}

    values = effective()
    assert (values["port"][0], values["host"][0], values["management_host"][0]) == ("5001", "0.0.0.0", "127.0.0.1")
    assert (values["response_timeout"][0], values["drain_timeout"][0]) == ("180", "25")
    assert effective(SERVER_PORT="6000")["port"][0] == "5001", "Azure's server sets it itself"
    assert effective(SCORING_TIMEOUT_MS="500000")["response_timeout"] == ("500", "SCORING_TIMEOUT_MS")
    assert effective(JITNEY_PORT="4321")["port"][0] == "4321"
    missing = run(binary, "serve", AML_APP_ROOT=str(tmp_path), AZUREML_ENTRY_SCRIPT="none.py")
    assert missing.returncode == 64 and "there is no file" in missing.stderr
    wrong = run(binary, "serve", AZUREML_MODEL_DIR=str(tmp_path), SCORING_TIMEOUT_MS="soon")
    assert wrong.returncode == 64 and "SCORING_TIMEOUT_MS must be" in wrong.stderr


def test_a_container_of_azures_without_a_script_serves_the_folder(start: Callable[..., Server], tmp_path: Path) -> None:
    Store(tmp_path / "models").mar("echo")
    env = {"AZUREML_MODEL_DIR": str(tmp_path / "models")}
    server = start("serve", "--host", "127.0.0.1", env=env)
    assert score(server, b"hi").content == b"hi"
    assert requests.get(server.url("/v2/health/ready"), timeout=120).status_code == 200
