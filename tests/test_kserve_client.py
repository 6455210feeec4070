"""KServe's own client package against every kind of model: version 1 and 2 over REST, JSON and binary, and gRPC.

The package takes 450 MB, so it has an environment of its own: `make test-kserve`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import onnx
from harness.archives import Store
from harness.server import Server

pytestmark = pytest.mark.heavy

kserve = pytest.importorskip("kserve", reason="see `make test-kserve`")
httpx = pytest.importorskip("httpx")

APP = """
import jitney
import numpy as np


@jitney.batch(max_batch_size=64)
def scale(x: np.ndarray) -> np.ndarray:
    return x * 2


@jitney.model
class Words:
    @jitney.batch
    def predict(self, text: list[str]) -> list[str]:
        return [one.upper() for one in text]

    @jitney.endpoint
    def explain(self, text: str) -> str:
        return f"because of {text}"
"""

ARCHIVE = """
def handle(data, context):
    if data is None:
        return None
    values = [row["body"] for row in data]
    return [one.decode().upper() if isinstance(one, (bytes, bytearray)) else one.upper() for one in values]
"""

ROWS = np.array([[1, 2], [3, 4]], "float32")


@pytest.fixture(scope="module")
def served(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("kserve")
    (home / "app.py").write_text(APP)
    values = [onnx.value(name, onnx.FLOAT, ["n", 2]) for name in "abc"]
    add = onnx.write(home / "add.onnx", [onnx.node("Add", ["a", "b"], "c")], values[:2], values[2:])
    archive = Store(home / "store").mar("upper", source=ARCHIVE)
    server = Server(binary, home / "server", ["serve", archive, add, "app.py:scale", "app.py:Words"], cwd=home)
    yield server.started()
    server.end()


def rest(server: Server, protocol: str, method: str, *arguments: Any, **named: Any) -> Any:
    """One call of the REST client, which is asynchronous only."""

    async def call() -> Any:
        async with kserve.InferenceRESTClient(kserve.RESTConfig(protocol=protocol)) as client:
            return await getattr(client, method)(server.urls["inference"], *arguments, **named)

    return asyncio.run(call())


def grpc(server: Server, method: str, *arguments: Any, **named: Any) -> Any:
    """One call of the gRPC client."""
    target = re.search(r"^gRPC inference +(\S+)$", server.stdout, re.MULTILINE)[1]

    async def call() -> Any:
        async with kserve.InferenceGRPCClient(target) as client:
            return await getattr(client, method)(*arguments, **named)

    return asyncio.run(call())


def tensor(name: str, rows: Any, raw: bool = False) -> Any:
    """An input, in JSON or binary."""
    if isinstance(rows, list):
        return kserve.InferInput(name, [len(rows)], "BYTES", data=rows)
    given = kserve.InferInput(name, list(rows.shape), "FP32")
    given.set_data_from_numpy(rows, binary_data=raw)
    return given


REQUESTS = {
    "add": ([("a", ROWS), ("b", ROWS)], "c", ROWS + ROWS),
    "scale": ([("x", ROWS)], None, ROWS * 2),
    "upper": ([("data", ["one", "two"])], "output", ["ONE", "TWO"]),
    "Words": ([("text", ["one", "two"])], None, ["ONE", "TWO"]),
}
"""The inputs of each model, the name of its output where it has one, and what that holds."""


def check(answer: Any, model: str) -> None:
    """The answer is that of `REQUESTS`."""
    _, name, expected = REQUESTS[model]
    (output,) = answer.outputs
    assert answer.model_name == model and name in (None, output.name)
    found = output.as_numpy()
    if isinstance(expected, list):
        assert [one.decode() if isinstance(one, bytes) else one for one in found.tolist()] == expected
    else:
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("model", "instances", "predictions"),
    [
        ("add", [{"a": [1, 2], "b": [3, 4]}] * 2, [[4, 6]] * 2),
        ("scale", [[1, 2], [3, 4]], [[2, 4], [6, 8]]),
        ("upper", ["one", "two"], ["ONE", "TWO"]),
        ("Words", ["one", {"text": "two"}], ["ONE", "TWO"]),
    ],
)
def test_version_1(served: Server, model: str, instances: list, predictions: list) -> None:
    assert rest(served, "v1", "is_server_live")
    assert rest(served, "v1", "is_model_ready", model)
    answer = rest(served, "v1", "infer", {"instances": instances}, model_name=model)
    assert answer == {"predictions": predictions}


def test_version_1_explains_and_says_what_is_wrong(served: Server) -> None:
    assert rest(served, "v1", "explain", "Words", {"instances": ["a"]}) == {"explanations": ["because of a"]}
    with pytest.raises(httpx.HTTPStatusError, match=r'"add".*expected an object with "a" and "b", got a list'):
        rest(served, "v1", "infer", {"instances": [[1, 2]]}, model_name="add")
    with pytest.raises(httpx.HTTPStatusError, match="'nobody' is not found"):
        rest(served, "v1", "is_model_ready", "nobody")


@pytest.mark.parametrize("raw", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("model", REQUESTS)
def test_version_2(served: Server, model: str, raw: bool) -> None:
    assert rest(served, "v2", "is_server_live") and rest(served, "v2", "is_server_ready")
    assert rest(served, "v2", "is_model_ready", model)
    inputs = [tensor(name, rows, raw) for name, rows in REQUESTS[model][0]]
    request = kserve.InferRequest(model, inputs, request_id="7", parameters={"binary_data_output": raw})
    answer = rest(served, "v2", "infer", request, model_name=model)
    check(answer, model)
    assert answer.id == "7"


@pytest.mark.parametrize("model", REQUESTS)
def test_grpc(served: Server, model: str) -> None:
    assert grpc(served, "is_server_live") and grpc(served, "is_server_ready")
    assert grpc(served, "is_model_ready", model)
    inputs = [tensor(name, rows) for name, rows in REQUESTS[model][0]]
    check(grpc(served, "infer", kserve.InferRequest(model, inputs, request_id="7")), model)


def test_many_calls_at_a_time(served: Server) -> None:
    async def calls() -> list[Any]:
        async with kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v1")) as client:
            url = served.urls["inference"]
            ask = [client.infer(url, {"instances": [[k, k]]}, model_name="scale") for k in range(50)]
            return await asyncio.gather(*ask)

    assert [answer["predictions"] for answer in asyncio.run(calls())] == [[[2 * k, 2 * k]] for k in range(50)]
