"""Client-side batches that are larger than a batch, or leave room in one, over the Open Inference Protocol."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import requests

from harness.archives import Store
from harness.client import together
from harness.server import Server
from harness.shape import assert_problem
from test_grpc import FREE_PORTS, OPEN_INFERENCE, Stub, address

# `twice = 2 * ids` and `positive = ids > 0` over rows of any length.
MODEL = Path(__file__).parent.parent / "crates" / "onnx" / "src" / "testdata" / "length.onnx"


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Batches of at most eight rows; ten requests may wait, so 80 rows."""
    home = tmp_path_factory.mktemp("parts")
    store = Store(home / "store")
    shutil.copy(MODEL, store.path / "rows.onnx")
    flags = ("--batch-size", "8", "--queue", "10", "--workers", "2", "--policy", "opportunistic")
    server = Server(binary, home / "server", ["serve", store.path / "rows.onnx", *flags], store=store, env=FREE_PORTS)
    yield server.started()
    server.end()


def rows(count: int, seed: int = 0) -> list[int]:
    """So many rows of three, one after the other."""
    return [seed + value for value in range(3 * count)]


def infer(server: Server, count: int, seed: int = 0, model: str = "rows") -> requests.Response:
    """One request of so many rows."""
    tensor = {"name": "ids", "datatype": "INT64", "shape": [count, 3], "data": rows(count, seed)}
    return requests.post(server.url(f"/v2/models/{model}/infer"), json={"id": "q", "inputs": [tensor]}, timeout=120)


def assert_answered(reply: requests.Response, count: int, seed: int = 0) -> None:
    """Every row has its own answer, in its place."""
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    outputs = {output["name"]: output for output in answer["outputs"]}
    assert (answer["id"], outputs["twice"]["shape"]) == ("q", [count, 3])
    assert outputs["twice"]["data"] == [2 * value for value in rows(count, seed)]
    assert [bool(value) for value in outputs["positive"]["data"]] == [value > 0 for value in rows(count, seed)]


def batches(timing: str) -> tuple[int, list[int]]:
    """How many batches an answer took part in, and the sizes of the first ones."""
    several = re.search(r"last of (\d+):((?: \d+)+)", timing)
    if several is None:
        return 1, [int(re.search(r'desc="(\d+) of 8', timing)[1])]
    return int(several[1]), [int(size) for size in several[2].split()]


def totals(server: Server) -> list[float]:
    """Requests answered, batches, and items in them."""
    names = ("jitney_requests_answered_total", "jitney_batches_total", "jitney_items_total")
    return [server.metric(name, "rows") for name in names]


@pytest.mark.parametrize(("count", "fewest"), [(1, 1), (5, 1), (8, 1), (9, 2), (50, 7), (80, 10)])
def test_any_number_of_rows_is_answered_and_counted_once(server: Server, count: int, fewest: int) -> None:
    before = totals(server)
    reply = infer(server, count)
    assert_answered(reply, count)
    number, sizes = batches(reply.headers["server-timing"])
    assert (number, max(sizes) <= 8) == (fewest, True), reply.headers["server-timing"]
    after = [now - then for now, then in zip(totals(server), before, strict=True)]
    assert after == [1, fewest, count]


def test_clients_with_batches_of_their_own_get_their_own_rows(server: Server) -> None:
    """Parts of many requests share batches, and no request gets another's rows."""

    def client(number: int) -> None:
        for turn in range(10):
            count = (number * 7 + turn * 5) % 19 + 1
            assert_answered(infer(server, count, number * 1000), count, number * 1000)

    together([lambda number=number: client(number) for number in range(4)])


@pytest.mark.parametrize("service", OPEN_INFERENCE)
def test_the_same_over_grpc(server: Server, service: str) -> None:
    tensor = {"name": "ids", "datatype": "INT64", "shape": [20, 3], "contents": {"int64_contents": rows(20)}}
    with grpc.insecure_channel(address(server, "inference"), options=[("grpc.enable_http_proxy", 0)]) as channel:
        answer, trailers = Stub(channel, service)("ModelInfer", model_name="rows", id="q", inputs=[tensor])
    twice = next(output for output in answer.outputs if output.name == "twice")
    assert list(twice.shape) == [20, 3]
    assert list(twice.contents.int64_contents) == [2 * value for value in rows(20)]
    number, sizes = batches(trailers["server-timing"])
    assert (number, sum(sizes)) == (3, 20)


def test_more_than_may_wait_is_split_and_not_refused(server: Server) -> None:
    for count in (81, 1000):
        assert_answered(infer(server, count), count)


def test_twenty_thousand_rows_over_settings_that_nobody_chose(start: Callable[..., Server], store: Store) -> None:
    shutil.copy(MODEL, store.path / "rows.onnx")
    server = start("serve", store.path / "rows.onnx")
    assert_answered(infer(server, 20_000), 20_000)


def test_a_model_whose_rows_belong_together_takes_them_together(start: Callable[..., Server], store: Store) -> None:
    shutil.copy(MODEL, store.path / "rows.onnx")
    (store.path / "rows.yaml").write_text("split: false\n")
    server = start("serve", store.path / "rows.onnx", "--batch-size", "8")
    assert_answered(infer(server, 8), 8)
    assert_problem(infer(server, 9), 413, "RequestEntityTooLargeException", "too_large")
