"""SageMaker's container contract with the real binary: folders, variables, user functions, health, many models."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import uuid
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import pytest
import requests

from harness import processes
from harness.client import together
from harness.command import run
from harness.sagemaker import ADDER, PLACE, folder, invoke
from harness.server import BOUND, FREE_ADDRESSES, Server
from harness.wait import until

SEEN = """
import json
from sagemaker_inference.errors import BaseInferenceToolkitError
def model_fn(model_dir, context):
    return context.system_properties["model_dir"]
def transform_fn(model, body, content_type, accept, context):
    if bytes(body) == b"teapot":
        raise BaseInferenceToolkitError(418, "I am a teapot", "teapot")
    if bytes(body) == b"broken":
        raise KeyError("secret detail")
    attributes = context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes")
    context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", "answer to " + str(attributes))
    return json.dumps({"body": bytes(body).decode(), "type": content_type, "attributes": attributes}), "text/" + accept
"""


DECODES = """
from sagemaker_inference import decoder
def model_fn(model_dir):
    pass
def input_fn(body, content_type):
    return decoder.decode(body, content_type)
def predict_fn(data, model):
    return data.sum(axis=0)
"""

NEEDS = """
import answer_of_ours
def model_fn(model_dir):
    pass
def transform_fn(model, body, content_type, accept):
    return str(answer_of_ours.ANSWER)
"""


def test_the_folder_is_served_with_the_users_functions(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", ADDER, weights_txt="10")
    server = sagemaker(tmp_path / "ml")
    assert requests.get(server.url("/ping"), timeout=120).status_code == 200
    reply = invoke(server, [1, 2])
    assert (reply.status_code, reply.json(), reply.headers["content-type"]) == (200, [11, 12], "application/json")
    charset = invoke(server, b"[5]", Content_Type="application/json; charset=utf-8")
    assert charset.json() == [15], "parameters of a content type do not matter"
    csv = invoke(server, [1, 2], Accept="application/unknown, text/csv")
    assert (csv.text, csv.headers["content-type"]) == ("11\n12\n", "application/unknown, text/csv")
    expected = {"MaxConcurrentTransforms": 1, "BatchStrategy": "MULTI_RECORD", "MaxPayloadInMB": 6}
    assert requests.get(server.url("/execution-parameters"), timeout=120).json() == expected
    server.logged(f"platform sagemaker by SAGEMAKER_BASE_DIR: port {server.arguments[2]}, folder {tmp_path}/ml/model")


def test_code_alone_is_no_wrapping(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", PLACE)
    assert invoke(sagemaker(tmp_path / "ml"), []).text == f"{tmp_path}/ml/model"


def test_each_request_of_a_batch_has_its_own_headers_type_and_error(
    sagemaker: Callable[..., Server], tmp_path: Path
) -> None:
    folder(tmp_path / "ml", SEEN)
    tuned = {"SAGEMAKER_TS_BATCH_SIZE": "4", "SAGEMAKER_TS_MAX_BATCH_DELAY": "5000"}
    server = sagemaker(tmp_path / "ml", **tuned)
    header = "X_Amzn_SageMaker_Custom_Attributes"
    asked = [(b"a", "x"), (b"teapot", "y"), (b"b", "z"), (b"broken", "w")]

    def ask(body: bytes, word: str) -> requests.Response:
        return invoke(server, body, Accept=word, Content_Type=f"application/{word}", **{header: word})

    replies = together([lambda body=body, word=word: ask(body, word) for body, word in asked])
    assert {reply.headers["server-timing"].count(" of 4") for reply in replies} == {1}, "they shared a batch"
    first, teapot, second, broken = replies
    for reply, body, word in ((first, "a", "x"), (second, "b", "z")):
        assert reply.json() == {"body": body, "type": f"application/{word}", "attributes": word}
        assert reply.headers["content-type"] == f"text/{word}"
        assert reply.headers["x-amzn-sagemaker-custom-attributes"] == f"answer to {word}"
    assert (teapot.status_code, teapot.text) == (418, "I am a teapot")
    assert broken.status_code == 500
    assert "Traceback" not in broken.text and "inference.py" not in broken.text
    server.logged("secret detail")
    server.logged("Traceback")


def test_the_program_and_the_default_type_come_from_variables(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    model = folder(tmp_path / "ml", None)
    (model / "code" / "serving.py").write_text(DECODES)
    variables = {"SAGEMAKER_PROGRAM": "serving.py", "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "application/x-npy"}
    server = sagemaker(tmp_path / "ml", **variables)
    array = numpy.arange(6.0).reshape(2, 3)
    buffer = io.BytesIO()
    numpy.save(buffer, array)
    reply = invoke(server, buffer.getvalue(), Content_Type="application/x-npy", Accept="*/*")
    assert reply.headers["content-type"] == "application/x-npy"
    assert numpy.load(io.BytesIO(reply.content)).tolist() == [3.0, 5.0, 7.0]
    assert invoke(server, [[1, 2], [3, 4]], Accept="application/json").json() == [4, 6]


@pytest.mark.torch
def test_a_folder_without_functions_is_a_model_of_torchscript(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    import torch

    model = folder(tmp_path / "ml", None)
    torch.jit.script(torch.nn.Linear(3, 2)).save(str(model / "scripted.pth"))
    server = sagemaker(tmp_path / "ml")
    expected = torch.jit.load(str(model / "scripted.pth"))(torch.ones(1, 3)).tolist()
    json_reply = invoke(server, [[1, 1, 1]])
    assert numpy.allclose(json_reply.json(), expected)
    csv_reply = invoke(server, b"1,1,1\n2,2,2\n", Content_Type="text/csv", Accept="text/csv")
    assert len(csv_reply.text.splitlines()) == 2


def test_nothing_of_a_client_is_unpickled(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", DECODES)
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.array({"a": 1}, dtype=object), allow_pickle=True)
    reply = invoke(sagemaker(tmp_path / "ml"), buffer.getvalue(), Content_Type="application/x-npy")
    assert reply.status_code == 400 and "unpickled" in reply.text


OBJECTS = """
from sagemaker_inference import decoder
def model_fn(model_dir):
    pass
def transform_fn(model, body, content_type, accept):
    return str(decoder.decode(body, content_type).item())
"""


def test_objects_are_unpickled_where_the_operator_says_so(
    binary: Path, sagemaker: Callable[..., Server], tmp_path: Path
) -> None:
    folder(tmp_path / "ml", OBJECTS)
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.array({"a": 1}, dtype=object), allow_pickle=True)
    server = sagemaker(tmp_path / "ml", JITNEY_SAGEMAKER_ALLOW_PICKLE="true")
    assert invoke(server, buffer.getvalue(), Content_Type="application/x-npy").text == "{'a': 1}"
    told = [line for line in server.log.splitlines() if "JITNEY_SAGEMAKER_ALLOW_PICKLE" in line]
    assert len(told) == 1 and "unpickled" in told[0]
    wrong = run(binary, "serve", SAGEMAKER_BASE_DIR=str(tmp_path / "ml"), JITNEY_SAGEMAKER_ALLOW_PICKLE="yes")
    assert wrong.returncode != 0 and "must be true or false" in wrong.stderr


WAITS = """
import os, time
def gate(name):
    open({gates!r} + name + ".reached", "w").close()
    while not os.path.exists({gates!r} + name):
        time.sleep(0.02)
def model_fn(model_dir):
    gate("load")
def transform_fn(model, body, content_type, accept):
    gate("answer")
    return "late"
"""


def test_ping_tells_whether_the_model_is_loaded_and_waits_for_nobody(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    gates = f"{tmp_path}/gate-"
    folder(tmp_path / "ml", WAITS.format(gates=gates))
    env = {"SAGEMAKER_BASE_DIR": str(tmp_path / "ml"), "SAGEMAKER_MODEL_SERVER_WORKERS": "1"}
    server = start("serve", "--host", "127.0.0.1", env=env, wait_for_workers=False)

    def ping() -> int:
        return requests.get(server.url("/ping"), timeout=120).status_code

    until(Path(f"{gates}load.reached").exists, "the model is being loaded")
    assert ping() == 503
    Path(f"{gates}load").touch()
    until(lambda: ping() == 200, "the model is loaded")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(invoke, server, b"x")
        until(Path(f"{gates}answer.reached").exists, "the only worker is busy")
        assert ping() == 200
        Path(f"{gates}answer").touch()
        assert reply.result().text == "late"


def test_ping_is_200_while_the_queue_is_full(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    gates = f"{tmp_path}/gate-"
    folder(tmp_path / "ml", WAITS.format(gates=gates))
    Path(f"{gates}load").touch()
    server = sagemaker(tmp_path / "ml", SAGEMAKER_TS_BATCH_SIZE="1", JITNEY_QUEUE="1")
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(invoke, server, b"x") for _ in range(4)]
        until(lambda: any(one.done() for one in asked), "a request is rejected")
        rejected = next(one.result() for one in asked if one.done())
        assert rejected.status_code == 503 and "queue" in rejected.text
        assert requests.get(server.url("/ping"), timeout=120).status_code == 200
        Path(f"{gates}answer").touch()
        assert "late" in [one.result().text for one in asked]


SIZES = """
def model_fn(model_dir):
    pass
def transform_fn(model, body, content_type, accept):
    return str(len(body))
"""
MEBIBYTE = 1 << 20


def test_bodies_are_6_mebibytes_unless_a_variable_says_more(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", SIZES)
    server = sagemaker(tmp_path / "ml")
    assert invoke(server, bytes(6 * MEBIBYTE)).text == str(6 * MEBIBYTE)
    assert invoke(server, bytes(7 * MEBIBYTE)).status_code == 413
    assert requests.get(server.url("/execution-parameters"), timeout=120).json()["MaxPayloadInMB"] == 6
    for variable, size, told in (("0", 100, 0), ("8", 8, 8)):
        server = sagemaker(tmp_path / "ml", SAGEMAKER_MAX_PAYLOAD_IN_MB=variable)
        assert invoke(server, bytes(size * MEBIBYTE)).text == str(size * MEBIBYTE), "asynchronous endpoints send more"
        parameters = requests.get(server.url("/execution-parameters"), timeout=120).json()
        assert parameters["MaxPayloadInMB"] == told, "0: bodies of any size"


def test_requirements_of_the_code_are_installed(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    model = folder(tmp_path / "ml", NEEDS)
    wheel = tmp_path / "answer_of_ours-1-py3-none-any.whl"
    make_wheel(wheel)
    (model / "code" / "requirements.txt").write_text(f"{wheel}\n")
    assert invoke(sagemaker(tmp_path / "ml"), []).json() == 42


def make_wheel(path: Path) -> None:
    """A package of one module."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("answer_of_ours.py", "ANSWER = 42\n")
        info = "answer_of_ours-1.dist-info/"
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: answer-of-ours\nVersion: 1\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", "")


def test_sigterm_lets_requests_end_and_the_drain_is_sagemakers(
    sagemaker: Callable[..., Server], tmp_path: Path
) -> None:
    gates = f"{tmp_path}/gate-"
    folder(tmp_path / "ml", WAITS.format(gates=gates))
    Path(f"{gates}load").touch()
    server = sagemaker(tmp_path / "ml")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(invoke, server, b"x")
        until(Path(f"{gates}answer.reached").exists, "the request is in the worker")
        os.kill(server.pid, signal.SIGTERM)
        server.logged("draining timeout_s=25")
        assert not reply.done()
        Path(f"{gates}answer").touch()
        assert (reply.result().status_code, reply.result().text) == (200, "late")
    assert server.wait() == 0


def test_a_base_without_a_model_is_said(binary: Path, tmp_path: Path) -> None:
    done = run(binary, "serve", SAGEMAKER_BASE_DIR=str(tmp_path))
    assert done.returncode == 64
    assert f"{tmp_path}/model: the folder is not there" in done.stderr.replace(")", "")


def test_awss_toolkit_finds_the_server_that_torchserve_starts(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    config = tmp_path / "config.properties"
    joined = "enable_model_api=truedefault_response_timeout=60\n"
    config.write_text(FREE_ADDRESSES + "disable_token_authorization=true\n" + joined)
    mark = uuid.uuid4().hex
    env = {**os.environ, "TMPDIR": str(tmp_path), "LOG_LOCATION": str(tmp_path / "logs"), processes.MARK: mark}
    flags = ["--ncs", "--model-store", str(tmp_path / "store"), "--ts-config", str(config)]
    command = [str(binary), "torchserve"]
    out = tmp_path / "out"
    with out.open("wb") as file:
        subprocess.run([*command, "--start", *flags], cwd=tmp_path, env=env, stdout=file, stderr=file, check=True)
    try:
        until(lambda: "Model server started." in out.read_text(), "the server starts")
        named = [pid for pid in processes.marked(mark) if b"org.pytorch.serve.ModelServer" in arguments(pid)]
        assert named == [int((tmp_path / ".model_server.pid").read_text())], "one process has the word"
        until(lambda: "read as enable_model_api=true and default_response_timeout=60" in out.read_text(), "a warning")
        url = dict(BOUND.findall(out.read_text()))["Management"]
        reply = requests.post(f"{url}/models?url=none.mar", timeout=120)
        assert reply.status_code == 404, "405 if the model API were off"
    finally:
        subprocess.run([*command, "--stop", "--foreground"], cwd=tmp_path, env=env, check=True)
    until(lambda: not processes.marked(mark), "nothing is left")


def arguments(pid: int) -> list[bytes]:
    """The words of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


COUNTING = """
import json
held = {}
def model_fn(model_dir):
    return held
def transform_fn(model, body, content_type, accept, context):
    session = context.get_request_header(0, "X-Amzn-SageMaker-Session-Id")
    asked = json.loads(body)
    if asked.get("requestType") == "CLOSE":
        return json.dumps({"closed": model.pop(session)})
    model[session] = model.get(session, 0) + asked.get("add", 0)
    return json.dumps({"session": session, "sum": model[session]})
"""
SESSIONS = "sequenceBatching: true\nsequenceMaxIdleMSec: 60000\nmaxNumSequence: 4\nmaxSequenceJobQueueSize: 4\n"


def test_sessions_are_begun_kept_and_closed(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", COUNTING)
    (tmp_path / "ml/model/code/model-config.yaml").write_text(SESSIONS)
    server = sagemaker(tmp_path / "ml", SAGEMAKER_MODEL_SERVER_WORKERS="2")

    def ask(session: str, **body: object) -> requests.Response:
        return invoke(server, json.dumps(body).encode(), X_Amzn_SageMaker_Session_Id=session)

    begun = [ask("NEW_SESSION", requestType="NEW_SESSION") for _ in range(2)]
    told = [reply.headers["x-amzn-sagemaker-session-id"] for reply in begun]
    assert [reply.headers["x-amzn-sagemaker-new-session-id"] for reply in begun] == told
    form = re.compile(r"([a-zA-Z0-9](?:-*[a-zA-Z0-9])*); Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
    one, two = (form.fullmatch(text)[1] for text in told)
    assert [reply.json()["session"] for reply in begun] == [one, two] and one != two
    assert [ask(id_, add=n).json()["sum"] for id_, n in ((one, 1), (two, 10), (one, 2), (two, 20))] == [1, 10, 3, 30]
    closed = ask(one, requestType="CLOSE")
    assert (closed.json(), closed.headers["x-amzn-sagemaker-closed-session-id"]) == ({"closed": 3}, one)
    over = ask(one, add=1)
    assert over.status_code == 409 and "sequence_unknown" in over.text
    assert ask(two, add=1).json()["sum"] == 31
    assert ask("not an id", add=1).status_code == 400


def test_a_model_without_sequences_begins_no_session(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", COUNTING)
    server = sagemaker(tmp_path / "ml", SAGEMAKER_MODEL_SERVER_WORKERS="1")
    refused = invoke(server, b"{}", X_Amzn_SageMaker_Session_Id="NEW_SESSION")
    assert refused.status_code == 400 and "sequenceBatching" in refused.text
