"""KServe's protocols, version 1 and 2, and SageMaker's forms, as their clients speak them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc as tritonclient

from harness.archives import Store
from harness.client import together
from harness.server import FREE_ADDRESSES, Server

SUM = """
def handle(data, context):
    return data and [sum(row["data"] if isinstance(row, dict) else row) for row in data]
"""


def torchserve(start: Callable[..., Server], home: Path, store: Store, properties: str) -> Server:
    """A server with these lines in its config.properties."""
    config = home / "config.properties"
    config.write_text(FREE_ADDRESSES + "disable_token_authorization=true\nenable_model_api=true\n" + properties)
    return start("torchserve", "--foreground", "--ncs", "--ts-config", config, "--model-store", store.path)


def ask(server: Server, path: str, body: object) -> requests.Response:
    """One JSON request."""
    return requests.post(server.url(path), json=body, timeout=120)


@pytest.fixture
def served(start: Callable[..., Server], store: Store, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server with the model `sum` behind an envelope."""

    def served(envelope: str, **query: object) -> Server:
        server = torchserve(start, tmp_path, store, f"service_envelope={envelope}\n")
        server.register(store.mar("sum", source=SUM), **query)
        return server

    yield served


def test_version_1_in_batches(served: Callable[..., Server]) -> None:
    server = served("kserve", batch_size=4, max_batch_delay=2000)
    path, bodies = "/v1/models/sum:predict", [{"instances": [[k, 1]] * (k + 1)} for k in range(4)]
    replies = together([lambda body=body: ask(server, path, body) for body in bodies])
    assert [reply.json() for reply in replies] == [{"predictions": [k + 1] * (k + 1)} for k in range(4)]
    assert {reply.headers["server-timing"].count('"4 of 4') for reply in replies} == {1}
    explained = ask(server, "/v1/models/sum:explain", {"instances": [[1, 2]]})
    assert explained.json() == {"explanations": [3]}


def test_a_bad_request_costs_its_batch_nothing(served: Callable[..., Server]) -> None:
    server = served("kserve", batch_size=4, max_batch_delay=1000)
    bodies = [{"instances": [[1]]}, {"instanzen": []}, {"instances": [[2]]}]
    good, bad, other = together([lambda body=body: ask(server, "/v1/models/sum:predict", body) for body in bodies])
    assert (good.json(), other.json()) == ({"predictions": [1]}, {"predictions": [2]})
    assert bad.status_code == 400 and '"instances"' in bad.json()["message"]


def test_version_2_in_batches(served: Callable[..., Server]) -> None:
    server = served("kservev2", batch_size=2, max_batch_delay=2000)

    def infer(k: int) -> dict:
        tensor = {"name": "x", "shape": [2], "datatype": "INT64", "data": [k, 1]}
        return ask(server, "/v2/models/sum/infer", {"id": str(k), "inputs": [tensor]}).json()

    for k, reply in enumerate(together([lambda: infer(0), lambda: infer(1)])):
        assert (reply["id"], reply["model_name"]) == (str(k), "sum")
        assert reply["outputs"] == [{"name": "x", "datatype": "INT64", "data": [k + 1], "shape": [1]}]


def test_the_port_for_grpc_that_kserve_asks(start: Callable[..., Server], store: Store, tmp_path: Path) -> None:
    config = tmp_path / "config.properties"
    config.write_text(
        FREE_ADDRESSES + "disable_token_authorization=true\nservice_envelope=kservev2\nload_models=sum.mar\n"
    )
    store.mar("sum", source=SUM)
    flags = ("--ts-config", config, "--model-store", store.path, "--kserve-port", "0", "--kserve-grpc-port", "0")
    server = start("torchserve", "--start", "--foreground", "--ncs", *flags)
    rest, over_grpc = re.findall(r"predictions are answered at http://0\.0\.0\.0:(\d+), too", server.log)
    assert requests.get(f"http://127.0.0.1:{rest}/ping", timeout=120).status_code == 200
    with tritonclient.InferenceServerClient(f"127.0.0.1:{over_grpc}") as client:
        assert client.is_server_ready() and client.is_model_ready("sum")
        given = tritonclient.InferInput("x", [2], "INT64")
        given.set_data_from_numpy(np.array([1, 2]))
        answer = client.infer("sum", [given], request_id="q")
        assert (answer.get_response().id, answer.as_numpy("x").tolist()) == ("q", [3])
        with pytest.raises(tritonclient.InferenceServerException, match="'ghost' is not found"):
            client.infer("ghost", [given])


def test_sagemakers_forms(start: Callable[..., Server], store: Store, tmp_path: Path) -> None:
    server = torchserve(start, tmp_path, store, "sagemaker=true\nmax_request_size=20971520\n")
    assert requests.get(server.url("/ping"), timeout=120).status_code == 200, "a multi-model endpoint starts empty"
    server.register(store.mar("echo"), workers=1)
    expected = {"MaxConcurrentTransforms": 1, "BatchStrategy": "MULTI_RECORD", "MaxPayloadInMB": 20}
    assert requests.get(server.url("/execution-parameters"), timeout=120).json() == expected
    assert requests.post(server.url("/models/echo/invoke"), data=b"hi", timeout=120).text == "hi"
    assert server.manage("PUT", "/models/echo", min_worker=0, max_worker=0, synchronous="true").status_code == 200
    ping = requests.get(server.url("/ping"), timeout=120)
    assert (ping.status_code, ping.json()["message"]) == (503, "Models are not loaded")
