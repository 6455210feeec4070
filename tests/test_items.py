"""How many items a request brings, seen before it waits: limits, batches, timings and metrics count them.

The models of this file wait for ever for a full batch, so that an answer is proof of what was counted.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests

from harness.archives import Store
from harness.client import curl, later, together
from harness.gate import Gate
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from harness.shape import assert_problem, timing_of
from harness.wait import until
from test_grpc import FREE_PORTS, INFERENCE, OPEN_INFERENCE, Stub, address
from test_sources import torchserve

APP = """
import time
from pathlib import Path

import numpy as np

import jitney

HERE = Path(__file__).parent
FOR_EVER = 600_000


@jitney.batch(max_batch_size=8, max_batch_delay_ms=FOR_EVER, mix_origins=True)
def rows(x: np.ndarray) -> np.ndarray:
    return np.full(len(x), len(x))


@jitney.batch(max_batch_size=8, policy="opportunistic")
def eager(x: np.ndarray) -> np.ndarray:
    if x.size and x.flat[0] < 0:
        (HERE / "eager-arrived").touch()
        while not (HERE / "eager-opened").exists():
            time.sleep(0.005)
    return np.full(len(x), len(x))


@jitney.batch(max_batch_size=8, max_batch_delay_ms=FOR_EVER, batch_dim=1)
def columns(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return x + bias


@jitney.batch(max_batch_size=2, max_batch_delay_ms=FOR_EVER, bucket="len")
def same(text: list[str]) -> list[list[str]]:
    return [sorted(text)] * len(text)


@jitney.batch(max_batch_size=10, max_batch_delay_ms=FOR_EVER, cost="len(text)")
def weigh(more: list[int], text: list[str]) -> list[int]:
    return [len(text)] * len(text)


@jitney.batch(max_batch_size=64, max_batch_delay_ms=FOR_EVER, cost="len", padded=True)
def pad(text: list[str]) -> list[int]:
    return [max(len(one) for one in text)] * len(text)


@jitney.batch(max_batch_size=8, max_batch_delay_ms=FOR_EVER)
def protocol(x: list[list[int]]) -> list[int]:
    return [len(x)] * len(x)


@jitney.batch(max_batch_size=8, policy="opportunistic")
def texts(text: list[str]) -> list[int]:
    return [len(one) for one in text]


def single(text: str) -> str:
    return text.upper()
"""
NAMES = ("rows", "eager", "columns", "same", "weigh", "pad", "protocol", "texts", "single")
HANDLER = """
def handle(data, context):
    return [str(len(data))] * len(data) if data else None
"""
ARCHIVE_YAML = "batching: {max_batch_size: 8, policy: window, max_batch_delay: 600s}\n"


@pytest.fixture(scope="module")
def served(binary: Path, home: Path) -> Iterator[Server]:
    store = Store(home / "store")
    archive = store.mar("archive", source=HANDLER, config=ARCHIVE_YAML)
    models = [f"app:{name}" for name in NAMES]
    server = Server(binary, home / "server", ["serve", archive, *models], cwd=home, store=store, env=FREE_PORTS)
    yield server.started()
    server.end()


@pytest.fixture(scope="module")
def channel(served: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address(served, "inference"), options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield channel


def post(server: Server, path: str, body: Any, content_type: str = "", **headers: str) -> requests.Response:
    """One request: bytes as they are, anything else as JSON."""
    sent = {"data": body} if isinstance(body, bytes) else {"json": body}
    headers |= {"Content-Type": content_type} if content_type else {}
    return requests.post(server.url(path), headers=headers, timeout=ASK_SECONDS, **sent)


def npy(rows: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones((rows, 2), np.float32))
    return file.getvalue()


def npz(rows: int) -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.ones((rows, 2)))
    return file.getvalue()


WAYS: dict[str, Callable[[Server, int], requests.Response]] = {
    "a list": lambda server, rows: post(server, "/rows", [[1.5, 2]] * rows),
    "an object": lambda server, rows: post(server, "/rows", {"x": [[1.5, 2]] * rows}),
    "bytes": lambda server, rows: post(
        server, "/rows", json.dumps([[1, 2]] * rows).encode(), "application/octet-stream"
    ),
    "npy": lambda server, rows: post(server, "/rows", npy(rows), "application/x-npy"),
    "npz": lambda server, rows: post(server, "/predictions/rows", npz(rows)),
    "a query": lambda server, rows: requests.get(server.url(f"/rows?x={[1] * rows}"), timeout=ASK_SECONDS),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_arrays_are_items_however_they_come(served, way):
    replies = together([lambda rows=rows: WAYS[way](served, rows) for rows in (5, 3)])
    for rows, reply in zip((5, 3), replies):
        assert reply.json() == [8] * rows, reply.text
        assert (timing_of(reply).size, timing_of(reply).max, timing_of(reply).reason) == (8, 8, "full")


def test_rows_by_handle_and_by_grpc_are_items_too(served, channel):
    with jitney.connect(served.urls["inference"]) as session:
        calls = [session.model("rows").remote(np.ones((5, 2))), session.model("rows").remote(x=[[1.5, 2]] * 3)]
        assert [list(call.result(ASK_SECONDS)) for call in calls] == [[8] * 5, [8] * 3]
        assert [(call.timing.batch_items, call.timing.reason) for call in calls] == [(8, "full")] * 2
        predict = Stub(channel, INFERENCE)
        body = {"x": json.dumps([[1]] * 2).encode()}
        waiting = later(lambda: predict("Predictions", timeout=ASK_SECONDS, model_name="rows", input=body))
        assert list(session.model("rows").remote(np.ones((6, 1), int)).result(ASK_SECONDS)) == [8] * 6
        assert 'batch;desc="8 of 8, full' in waiting.result()[1]["server-timing"]


def test_two_requests_that_do_not_fit_together_do_not_share_a_batch_and_metrics_count_their_items(served, home):
    gate = Gate(home, "eager")
    held = later(lambda: post(served, "/eager", [[-1.0]]))
    gate.wait()
    behind = [later(lambda: post(served, "/eager", [[1.0]] * 5)) for _ in range(2)]
    until(lambda: served.metric("jitney_waiting", "eager") == 2, "both wait")
    before = served.metric("jitney_items_total", "eager"), served.metric("jitney_batches_total", "eager")
    gate.open()
    assert held.result().json() == [1]
    for reply in (one.result() for one in behind):
        assert (reply.json(), timing_of(reply).size, timing_of(reply).max) == ([5] * 5, 5, 8)
    after = served.metric("jitney_items_total", "eager"), served.metric("jitney_batches_total", "eager")
    assert (after[0] - before[0], after[1] - before[1]) == (10, 2)
    (told,) = served.manage("GET", "/models/eager/statistics").json()
    assert [(it["size"], it["batches"], it["answeredRequests"]) for it in told["sizes"]] == [(1, 1, 1), (5, 2, 2)]


def test_more_rows_than_a_batch_holds_run_alone_in_several_calls(served):
    before = served.metric("jitney_items_total", "rows")
    reply = post(served, "/rows", [[1]] * 20)
    assert reply.json() == [8] * 16 + [4] * 4
    assert (timing_of(reply).size, timing_of(reply).max, timing_of(reply).reason) == (20, 8, "full")
    assert served.metric("jitney_items_total", "rows") == before + 20


def test_no_rows_are_answered_with_none(served):
    assert post(served, "/eager", []).json() == []
    assert post(served, "/eager", b'{"x": [[1, 2]').status_code == 400, "what cannot be read is the worker's to judge"


def test_the_batch_dimension_counts(served):
    wide = [[1] * 5, [2] * 5]
    narrow = [[3] * 3, [4] * 3]
    asked = [lambda x=x: post(served, "/columns", {"bias": x, "x": x}) for x in (wide, narrow)]
    replies = together(asked)
    assert [reply.json() for reply in replies] == [[[2] * 5, [4] * 5], [[6] * 3, [8] * 3]]
    assert {timing_of(reply).size for reply in replies} == {8}


def test_an_expression_as_bucket_keeps_lengths_apart(served):
    texts = ["aa", "b", "cü", "d"]
    replies = together([lambda text=text: post(served, "/same", {"text": text}) for text in texts])
    assert [reply.json() for reply in replies] == [["aa", "cü"], ["b", "d"]] * 2
    assert {(timing_of(reply).size, timing_of(reply).reason) for reply in replies} == {(2, "full")}


def test_an_expression_as_cost_fills_batches_and_limits_them(served):
    told = served.manage("GET", "/models/weigh/batching").json()
    assert (told["cost"], told["maxCost"]) == ("tokens", 10)
    replies = together([lambda: post(served, "/weigh", {"text": "abcde", "more": 1})] * 4)
    assert [reply.json() for reply in replies] == [2] * 4
    assert {(timing_of(reply).size, timing_of(reply).reason) for reply in replies} == {(2, "full")}
    too_much = post(served, "/weigh", {"text": "x" * 11, "more": 1}, **{"x-jitney-cost": "1"})
    assert_problem(too_much, 413, "RequestEntityTooLargeException")


def test_a_definition_that_pads_is_batched_by_the_lengths_that_are_seen(served):
    replies = together([lambda text=text: post(served, "/pad", {"text": text}) for text in ("x" * 31, "y" * 32)])
    assert [reply.json() for reply in replies] == [32, 32]
    assert ['"2 of 64, full, 2% padding"' in reply.headers["server-timing"] for reply in replies] == [True] * 2


def test_the_first_dimension_of_open_inference_counts(served, channel):
    def infer(rows: int) -> requests.Response:
        given = {"name": "x", "datatype": "INT64", "shape": [rows, 1], "data": [7] * rows}
        return post(served, "/v2/models/protocol/infer", {"id": "i", "inputs": [given]})

    replies = together([lambda rows=rows: infer(rows) for rows in (5, 3)])
    assert [reply.json()["outputs"][0]["data"] for reply in replies] == [[8] * 5, [8] * 3]
    assert {(timing_of(reply).size, timing_of(reply).reason) for reply in replies} == {(8, "full")}
    stub = Stub(channel, OPEN_INFERENCE[0])
    tensor = {"name": "x", "datatype": "INT64", "shape": [8, 1], "contents": {"int64_contents": [7] * 8}}
    _, trailers = stub("ModelInfer", timeout=ASK_SECONDS, model_name="protocol", id="g", inputs=[tensor])
    assert 'batch;desc="8 of 8, full' in trailers["server-timing"]


def test_a_request_to_an_archive_has_as_many_items_as_it_says(served, channel):
    def ask(items: int) -> requests.Response:
        return served.predict("archive", b"x" * items, headers={"x-jitney-items": str(items)})

    before = served.metric("jitney_items_total", "archive")
    replies = together([lambda items=items: ask(items) for items in (5, 3)])
    assert [(reply.text, timing_of(reply).size, timing_of(reply).reason) for reply in replies] == [("2", 8, "full")] * 2
    assert served.metric("jitney_items_total", "archive") == before + 8
    metadata, fields = [("x-jitney-items", "8")], {"model_name": "archive", "input": {"data": b"x" * 8}}
    _, trailers = Stub(channel, INFERENCE)("Predictions", timeout=ASK_SECONDS, metadata=metadata, **fields)
    assert 'batch;desc="8 of 8, full' in trailers["server-timing"]


@pytest.mark.parametrize("items", ["0", "-1", "some", "1.5", ""])
def test_a_number_of_items_that_makes_no_sense_is_rejected(served, items):
    header = f"x-jitney-items: {items}" if items else "x-jitney-items;"
    reply = curl("-d", "x", "-H", header, served.url("/predictions/archive"))
    assert reply.status_code == 400 and "x-jitney-items must be a whole number above zero" in reply.text


def test_more_items_than_a_batch_has_are_rejected_in_words(served):
    reply = served.predict("archive", b"x", headers={"x-jitney-items": "9"})
    words = "brings 9 items, and a batch of this model has at most 8; send fewer at a time"
    assert_problem(reply, 400, "BadRequestException", words)


def head_only(rows: int) -> bytes:
    """An npy file that promises rows and brings one."""
    claim = f"({rows},), }}".encode()
    return npy(1).replace(b"(1, 2), }".ljust(len(claim)), claim)


CLAIMS: dict[str, Callable[[Server], requests.Response]] = {
    "archive": lambda server: server.predict("archive", b"x", headers={"x-jitney-items": "8"}),
    "one at a time": lambda server: post(server, "/single", {"text": "a"}, **{"x-jitney-items": "2"}),
    "batched": lambda server: post(server, "/texts", {"text": "a"}, **{"x-jitney-items": "1000000"}),
    "beyond u31": lambda server: post(server, "/texts", {"text": "a"}, **{"x-jitney-items": "4294967295"}),
    "a share": lambda server: post(server, "/texts", {"text": "a" * 300_000}, **{"x-jitney-items": "250001"}),
    "npy": lambda server: post(server, "/eager", head_only(1_000_001), "application/x-npy"),
    "rows of a list": lambda server: post(server, "/rows", [0] * 250_001),
    "open inference": lambda server: post(
        server,
        "/v2/models/protocol/infer",
        {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1_000_000, 0], "data": []}]},
    ),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_that_the_bytes_do_not_support_is_wrong_and_nobody_else_notices(served, claim):
    reply = CLAIMS[claim](served)
    assert reply.status_code == 400, reply.text
    assert post(served, "/single", {"text": "a"}).text.strip('"') == "A"


def test_claims_by_handle_and_by_grpc_are_bounded_alike(served, channel):
    with jitney.connect(served.urls["inference"]) as session, pytest.raises(jitney.BadInput, match="cannot hold"):
        session.model("rows").remote(np.ones((1_000_000, 0))).result(ASK_SECONDS)
    predict = Stub(channel, INFERENCE)
    fields = {"model_name": "texts", "input": {"text": b"a"}}
    with pytest.raises(grpc.RpcError, match="its 1 bytes cannot hold so many"):
        predict("Predictions", timeout=ASK_SECONDS, metadata=[("x-jitney-items", "1000000")], **fields)


def test_items_count_under_torchserve_too(start: Callable[..., Server], store: Store, tmp_path: Path):
    server = torchserve(start, tmp_path, store)
    server.register(store.mar("orders"), batch_size=4, max_batch_delay=600_000)
    replies = together([lambda: server.predict("orders", {}, headers={"x-jitney-items": "2"})] * 2)
    assert [(timing_of(reply).size, timing_of(reply).max) for reply in replies] == [(4, 4)] * 2
    assert server.predict("orders", {}, headers={"x-jitney-items": "5"}).status_code == 400
