"""Plugins: endpoints and authorization in processes of their own. Whatever goes wrong, no request slips in."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests

from harness.archives import Store
from harness.client import together
from harness.processes import marked
from harness.server import FREE_ADDRESSES, FREE_PORTS, Server
from harness.wait import until
from test_grpc import INFERENCE, Stub, address

ENDPOINTS = """
import os
from jitney.plugin import Request, Response, endpoint

@endpoint("/greeting", methods=["GET", "POST"])
def greeting(request: Request):
    "Greets whoever asks."
    return {"method": request.method, "name": request.query.get("name"), "body": request.body.decode(),
            "user": request.headers.get("X-User"), "listener": request.listener, "pid": os.getpid()}

@endpoint("/teapot/", listener="management")
async def teapot(request):
    return Response("short and stout", status=418, headers={"X-Kind": "pot"})

@endpoint("/broken")
def broken(request):
    raise ValueError("the reason")

@endpoint("/gone")
def gone(request):
    os._exit(3)
"""

GATE = """
import os, time
from jitney.plugin import Allow, Deny, authorize

@authorize
def check(request):
    word = request.headers.get("x-word")
    if word == "die":
        os._exit(3)
    if word == "hang":
        time.sleep(600)
    if word == "raise":
        raise ValueError("the reason")
    if word == "maybe":
        return "yes"
    if word == "path":
        return Deny(451, f"{request.protocol} {request.listener} {request.path} {request.method}")
    if word == "allow":
        return Allow()
    return word == "sesame"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a plugin file."""

    def write(name: str, source: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        return path

    return write


def ask(
    server: Server, path: str, word: str | None = None, method: str = "GET", api: str = "inference", **more: Any
) -> requests.Response:
    """A request that says a word, or none."""
    headers = {} if word is None else {"x-word": word}
    return requests.request(
        method, server.url(path, api), headers=headers | more.pop("headers", {}), timeout=120, **more
    )


@pytest.fixture
def plain(start: Callable[..., Server], store: Store, write) -> Server:
    """A server with endpoints and no guard."""
    return start("serve", store.mar("echo"), "--plugin", write("extras", ENDPOINTS))


def test_an_endpoint_sees_the_request_and_answers(plain: Server) -> None:
    said = ask(plain, "/greeting?name=Ada", method="POST", data=b"hello", headers={"X-User": "me"})
    body = said.json()
    assert (said.status_code, said.headers["content-type"]) == (200, "application/json")
    assert body.pop("pid") not in (plain.pid, *plain.workers("echo").values())
    assert body == {"method": "POST", "name": "Ada", "body": "hello", "user": "me", "listener": "inference"}
    assert said.headers["x-request-id"]
    assert plain.predict("echo", b"as before").content == b"as before"


def test_an_endpoint_belongs_to_its_listener_and_its_methods(plain: Server) -> None:
    pot = ask(plain, "/teapot", api="management")
    assert (pot.status_code, pot.text, pot.headers["x-kind"]) == (418, "short and stout", "pot")
    assert ask(plain, "/teapot").status_code == 404
    assert ask(plain, "/greeting", api="management").status_code == 404
    assert ask(plain, "/greeting", method="DELETE").status_code == 405
    assert ask(plain, "/greeting/deeper").status_code == 404
    assert plain.manage("GET", "/models").json()["models"] == [
        {"modelName": "echo", "modelUrl": plain.describe("echo")["modelUrl"]}
    ]


def test_endpoints_are_in_the_description_of_their_listener(plain: Server) -> None:
    described = requests.options(plain.url("/"), timeout=120).json()["paths"]
    assert set(described["/greeting"]) == {"get", "post"} and "/teapot" not in described
    assert described["/greeting"]["get"]["description"] == "Greets whoever asks."
    assert described["/broken"]["get"]["description"] == "Answered by the plugin extras."
    managed = requests.options(plain.url("/", "management"), timeout=120).json()["paths"]
    assert set(managed["/teapot"]) == {"get"} and "/greeting" not in managed


def test_an_endpoint_that_fails_or_dies_harms_no_other_request(plain: Server) -> None:
    failed = ask(plain, "/broken")
    assert (failed.status_code, failed.json()["message"]) == (500, "Plugin extras failed; see the server's log.")
    plain.logged("ValueError: the reason")
    died = ask(plain, "/gone")
    assert (died.status_code, died.json()["message"]) == (503, "Plugin extras is not available.")
    assert plain.predict("echo", b"still").content == b"still"
    assert ask(plain, "/greeting").status_code == 200, "it was started again"


def test_many_requests_to_a_plugin_run_at_a_time(plain: Server) -> None:
    answers = together([lambda: ask(plain, "/greeting") for _ in range(20)])
    assert {answer.status_code for answer in answers} == {200}


@pytest.fixture
def guarded(start: Callable[..., Server], store: Store, tmp_path: Path, write) -> Server:
    """A server with a guard, which is asked even for the list of models, so this does not wait for workers."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    write("plugins/gate", GATE)
    write("plugins/extras", ENDPOINTS)
    (plugins / "old.jar").write_bytes(b"")
    store.mar("echo")
    config = tmp_path / "config.properties"
    config.write_text(
        f"{FREE_ADDRESSES}model_store={store.path}\nload_models=echo.mar\ndefault_workers_per_model=1\n"
        "disable_token_authorization=true\nenable_model_api=true\nplugin_timeout=2\n"
    )
    return start(
        "torchserve",
        "--start",
        "--foreground",
        "--ncs",
        "--ts-config",
        config,
        "--plugins-path",
        plugins,
        wait_for_workers=False,
    )


def test_only_a_clear_yes_passes(guarded: Server) -> None:
    guarded.logged("Java plugins cannot be loaded, write them in Python: old")
    for word, status in [("sesame", 200), ("allow", 200), (None, 403), ("wrong", 403), ("raise", 503), ("maybe", 503)]:
        assert ask(guarded, "/ping", word).status_code == status, word
    denied, unclear = ask(guarded, "/ping"), ask(guarded, "/ping", "maybe")
    assert denied.json() == {"code": 403, "type": "AccessDeniedException", "message": "Access denied."}
    assert unclear.json()["type"] == "ServiceUnavailableException"
    assert unclear.json()["message"].startswith("The request cannot be authorized: plugin gate failed")


def test_every_door_is_guarded(guarded: Server) -> None:
    for method, path, api in [
        ("POST", "/predictions/echo", "inference"),
        ("GET", "/models", "management"),
        ("POST", "/models?url=echo.mar", "management"),
        ("DELETE", "/models/echo", "management"),
        ("GET", "/greeting", "inference"),
        ("GET", "/no/such/path", "inference"),
    ]:
        assert ask(guarded, path, method=method, api=api).status_code == 403, path
    assert ask(guarded, "/predictions/echo", "sesame", "POST", data=b"in").content == b"in"
    assert ask(guarded, "/greeting", "sesame").status_code == 200
    assert ask(guarded, "/metrics", api="metrics").status_code == 200


def test_the_guard_judges_the_path_that_the_server_routes_by(guarded: Server) -> None:
    said = ask(guarded, "/predictions/%65cho", "path", "POST")
    assert (said.status_code, said.json()["message"]) == (451, "http inference /predictions/echo POST")


def test_grpc_is_guarded_too(start: Callable[..., Server], store: Store, write) -> None:
    server = start("serve", store.mar("echo"), "--plugin", write("gate", GATE), wait_for_workers=False)
    with grpc.insecure_channel(address(server, "inference")) as channel:
        stub = Stub(channel, INFERENCE)
        asked = {"model_name": "echo", "input": {"data": b"x"}}
        for word, code in [(None, "PERMISSION_DENIED"), ("raise", "UNAVAILABLE")]:
            with pytest.raises(grpc.RpcError) as rejected:
                stub("Predictions", metadata=[("x-word", word)] if word else None, **asked)
            assert rejected.value.code().name == code
        with pytest.raises(grpc.RpcError) as told:
            stub("Predictions", metadata=[("x-word", "path")], **asked)
        assert f"grpc inference /{INFERENCE}/Predictions POST" in told.value.details()
        answer, _ = stub("Predictions", metadata=[("x-word", "sesame")], **asked)
        assert answer.prediction == b"x"


def test_a_guard_that_dies_or_hangs_lets_no_request_in_and_comes_back(guarded: Server) -> None:
    assert ask(guarded, "/ping", "die").status_code == 503
    late = ask(guarded, "/ping", "hang")
    assert (late.status_code, "did not answer in time" in late.json()["message"]) == (503, True)
    assert ask(guarded, "/ping", "sesame").status_code == 200, "a hanging question holds up no other"
    assert ask(guarded, "/ping").status_code == 403


def test_a_killed_guard_is_started_again(guarded: Server) -> None:
    guards = [pid for pid in marked(guarded.mark) if os.readlink(f"/proc/{pid}/cwd").endswith("/plugins")]
    assert len(guards) == 2, "a process for each plugin"
    for pid in guards:
        os.kill(pid, signal.SIGKILL)
    statuses = set()

    def back() -> bool:
        statuses.add(ask(guarded, "/ping").status_code)
        return ask(guarded, "/ping", "sesame").status_code == 200

    until(back, "the guard is back")
    assert statuses <= {403, 503}, "no request without the word passed in between"


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"a": ENDPOINTS, "b": ENDPOINTS}, "plugin b: /greeting is answered by a plugin already"),
        ({"a": GATE, "b": GATE}, "plugins a and b both have @authorize"),
        ({"a": ENDPOINTS.replace("/greeting", "/ping")}, "plugin a: /ping is a path of the server's own"),
        ({"a": "import nothing_of_this_name"}, "did not start"),
        ({"a": "x = 1"}, "declares neither an @endpoint nor an @authorize"),
        ({"a": ENDPOINTS.replace('"/greeting"', '"greeting"')}, "must begin with a slash"),
    ],
)
def test_plugins_that_do_not_fit_stop_the_start(
    binary: Path, store: Store, write, sources: dict[str, str], words: str
) -> None:
    flags = [word for name, source in sources.items() for word in ("--plugin", str(write(name, source)))]
    command = [str(binary), "serve", str(store.mar("echo")), *FREE_PORTS, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and words in done.stdout + done.stderr, done.stderr


def test_a_plugin_that_is_not_there_is_told_before_anything_starts(binary: Path, store: Store) -> None:
    command = [str(binary), "serve", str(store.mar("echo")), "--plugin", "nowhere.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "plugin nowhere.py: no such file" in done.stderr
