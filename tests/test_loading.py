"""Models that do not load, or not yet: nobody waits in vain, and everybody is told the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import requests

from harness.archives import Store
from harness.client import later
from harness.package import jitney
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

MISSING = "import nosuchpkg\n"
CAUSE = "ModuleNotFoundError: No module named 'nosuchpkg'"

PATIENT = """
import os
import pathlib
import time

pathlib.Path(os.environ["ARRIVED"]).touch()
while not os.path.exists(os.environ["OPENED"]):
    time.sleep(0.01)


def handle(data, context):
    return data and ["answer"] * len(data)
"""
"""Loads when the test opens the gate."""


class Gate:
    """Where the patient model waits while it loads."""

    def __init__(self, directory: Path) -> None:
        self.arrived, self.opened = directory / "arrived", directory / "opened"
        self.env = {"ARRIVED": str(self.arrived), "OPENED": str(self.opened)}

    def wait(self) -> None:
        """Until the model stands there."""
        until(self.arrived.exists, "the model begins to load")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A closed gate."""
    return Gate(tmp_path)


def torchserve(start: Callable[..., Server], store: Store, home: Path, models: str, **options: object) -> Server:
    """The same under TorchServe's rules."""
    config = home / "config.properties"
    more = "default_workers_per_model=1\nenable_model_api=true\nts_open_inference_protocol=true\n"
    config.write_text(FREE_ADDRESSES + more)
    flags = ("--ts-config", config, "--model-store", store.path, "--models", models, "--dt", "--ncs")
    return start("torchserve", "--start", "--foreground", *flags, wait_for_workers=False, **options)


# -- a model that cannot load --------------------------------------------------------------------


def test_a_request_for_a_model_that_cannot_load_is_told_why(start, store: Store) -> None:
    server = start("serve", store.mar("bad", source=MISSING), wait_for_workers=False)
    first = server.predict("bad", b"x")  # It may come before the first load has failed.
    words = f'Model "bad" has no worker: loading failed with {CAUSE}. See the log, or GET /models/bad.'
    for reply in (first, server.predict("bad", b"x"), *others(server)):
        assert reply.status_code == 503 and reply.json()["message"] == words, reply.text
        assert int(reply.headers["retry-after"]) >= 1
    with jitney.connect(server.urls["inference"]) as session, pytest.raises(jitney.RemoteError, match="nosuchpkg"):
        session.model("bad", encoding="bytes").remote(b"x").result()
    described = server.describe("bad")
    assert (described["ready"], described["lastError"], described["workers"][0]["status"]) == (False, CAUSE, "LOADING")
    assert described["loadFailures"] >= 1
    assert server.metric("jitney_load_failures_total", "bad") >= 1
    assert server.metric("jitney_rejections_total", "bad", reason="not_loaded") >= 1
    reply = server.manage("POST", "/models", url=str(store.path / "bad.mar"), model_name="again", initial_workers=1)
    assert reply.json()["message"].endswith(f"version: 1.0: {CAUSE}") or reply.status_code == 404, reply.text


def others(server: Server) -> list[requests.Response]:
    """The other ways of REST."""
    paths = ("/v1/models/bad:predict", "/v2/models/bad/infer", "/bad")
    tensor = {"name": "data", "shape": [1], "datatype": "BYTES", "data": ["x"]}
    body = {"instances": [1], "inputs": [tensor]}
    return [requests.post(server.url(path), json=body, timeout=120) for path in paths]


def test_the_traceback_of_a_load_is_logged_once(start, store: Store) -> None:
    server = start("serve", store.mar("bad", source=MISSING), wait_for_workers=False)
    server.logged(f"of bad could not load: {CAUSE} (trying again at once; traceback above)")
    server.logged(f"of bad could not load: {CAUSE} (trying again in 2 s; traceback above)")
    assert server.log.count("Traceback (most recent call last)") == 1
    assert "Retry worker" not in server.log


def test_torchserves_words_stay_and_the_cause_stands_beside_them(start, store: Store, tmp_path: Path) -> None:
    store.mar("bad", source=MISSING)
    server = torchserve(start, store, tmp_path, "bad.mar")
    reply = server.predict("bad", b"x").json()
    assert reply["message"].startswith('Model "bad" has no worker to serve inference request. Please use scale')
    assert reply["reason"] == f"loading failed with {CAUSE}"
    assert "lastError" not in server.describe("bad")
    assert requests.get(server.url("/ping"), timeout=120).json() == {"status": "Healthy"}, "TorchServe's rule"
    assert requests.get(server.url("/v2/health/ready"), timeout=120).status_code == 503


ENDS = [("import os; os._exit(6)", "exit status 6"), ("x", "NameError: name 'x'")]


@pytest.mark.parametrize(("source", "words"), ENDS)
def test_a_process_that_ends_while_it_loads_says_how(start, store: Store, source: str, words: str) -> None:
    server = start("serve", store.mar("bad", source=source), wait_for_workers=False)
    assert words in server.predict("bad", b"x").json()["message"]


# -- a model that is still loading ---------------------------------------------------------------


def test_a_request_waits_for_the_first_load_and_is_told_when_that_takes_too_long(
    start, store: Store, gate: Gate
) -> None:
    archive = store.mar("patient", source=PATIENT)
    server = start("serve", archive, "--startup-wait", "1", env=gate.env, wait_for_workers=False)
    gate.wait()
    reply = server.predict("patient", b"x")
    words = 'Model "patient" is still loading (0 of 1 workers ready); its startup_wait of 1 s has passed.'
    assert reply.status_code == 503 and words in reply.json()["message"], reply.text
    assert "retry-after" in reply.headers
    short = server.predict("patient", b"x", headers={"x-jitney-timeout-ms": "10"})
    assert short.status_code == 503 and "the request's deadline has passed" in short.json()["message"], short.text
    server.manage("PUT", "/models/patient", max_latency_ms=20)
    late = server.predict("patient", b"x")
    assert late.status_code == 503 and "its max_latency_ms of 20 has passed" in late.json()["message"], late.text
    gate.opened.touch()
    until(lambda: server.ready("patient"), "the model has loaded")
    server.manage("PUT", "/models/patient", max_latency_ms=0)
    assert server.predict("patient", b"x").content == b"answer"


def test_a_request_that_waits_is_answered_when_the_model_has_loaded(start, store: Store, gate: Gate) -> None:
    server = start("serve", store.mar("patient", source=PATIENT), env=gate.env, wait_for_workers=False)
    gate.wait()
    waiting = later(lambda: server.predict("patient", b"x"))
    until(lambda: server.metric("jitney_waiting", "patient") == 1, "it waits")
    gate.opened.touch()
    assert waiting.result().content == b"answer"


# -- readiness -----------------------------------------------------------------------------------


def grpc_ready(server: Server) -> tuple[bool, ...]:
    """Health of the server and of one service, readiness of the server and of the model, the ping."""
    target = server.stdout.split("gRPC inference ", 1)[1].split()[0]
    oip = "/inference.GRPCInferenceService/"
    with grpc.insecure_channel(target) as channel:

        def ask(method: str, message: bytes = b"") -> bytes:
            return channel.unary_unary(method)(message, timeout=120)

        service = b"inference.GRPCInferenceService"
        return (
            ask("/grpc.health.v1.Health/Check") == b"\x08\x01",
            ask("/grpc.health.v1.Health/Check", b"\x0a" + bytes([len(service)]) + service) == b"\x08\x01",
            ask(oip + "ServerReady") == b"\x08\x01",
            ask(oip + "ModelReady", b"\x0a\x07patient") == b"\x08\x01",
            b"Healthy" in ask("/org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping").split(b'"'),
        )


def rest_ready(server: Server) -> dict[str, int]:
    """The status of every place that tells readiness."""
    places = [("inference", "/ping"), ("inference", "/v2/health/ready"), ("inference", "/v2/models/patient/ready")]
    places += [("inference", "/v1/models/patient"), ("management", "/v1/models/patient")]
    return {api + path: requests.get(server.url(path, api), timeout=120).status_code for api, path in places}


@pytest.mark.parametrize("flags", [(), ("--token-auth",)], ids=["open", "with tokens"])
def test_readiness_is_false_until_the_models_of_the_start_have_loaded(start, store: Store, gate: Gate, flags) -> None:
    models = (store.mar("patient", source=PATIENT), store.mar("echo"))
    server = start("serve", *models, *flags, env=gate.env, wait_for_workers=False)
    gate.wait()
    assert set(rest_ready(server).values()) <= {500, 503}
    assert not any(grpc_ready(server))
    if not flags:
        until(lambda: server.ready("echo"), "the neighbour has loaded")
        told = requests.get(server.url("/v2/health/ready?verbose"), timeout=120).json()
        states = {model["name"]: model["state"] for model in told["models"]}
        assert states == {"echo": "ready", "patient": "loading (0 of 1 workers ready)"}
        assert requests.get(server.url("/ping?verbose"), timeout=120).json()["models"] == told["models"]
    else:
        assert "models" not in requests.get(server.url("/ping?verbose"), timeout=120).json()
        assert requests.get(server.url("/models", "management"), timeout=120).status_code == 400
    gate.opened.touch()
    until(lambda: set(rest_ready(server).values()) == {200}, "it is ready everywhere")
    until(lambda: all(grpc_ready(server)), "it is ready over gRPC")
    told = requests.get(server.url("/v1/models/patient"), timeout=120).json()
    assert (told["name"], told["ready"]) == ("patient", True)


def test_a_model_that_is_lost_does_not_take_the_server_along(start, store: Store, tmp_path: Path) -> None:
    obstacle = tmp_path / "obstacle"
    server = start("serve", store.mar("fickle"), store.mar("echo"), env={"OBSTACLE": str(obstacle)})
    assert json.loads(requests.get(server.url("/ping"), timeout=120).text) == {"status": "Healthy"}
    obstacle.touch()
    (_, pid), *_ = server.ready("fickle").items()
    os.kill(pid, signal.SIGKILL)
    ready = "/v2/models/fickle/ready"
    until(lambda: server.metric("jitney_load_failures_total", "fickle") >= 1, "it does not come back")
    assert requests.get(server.url(ready), timeout=120).status_code == 503
    assert requests.get(server.url("/ping"), timeout=120).status_code == 200, "its neighbour serves"
    assert server.metric("jitney_worker_exits_total", "fickle", kind="killed") == 1
    assert server.describe("fickle")["restarts"] >= 1
    server.manage("PUT", "/models/fickle", min_worker=0, max_worker=0)
    until(lambda: not server.workers("fickle"), "it has no workers, as asked for")
    assert requests.get(server.url("/ping"), timeout=120).status_code == 200
