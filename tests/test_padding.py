"""Models that pad: similar lengths meet, no client sees the padding, and its waste is reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import requests

from harness.archives import Store
from harness.client import later, together
from harness.gate import Gate
from harness.server import Server
from harness.wait import until

# `twice = 2 * ids` and `positive = ids > 0` over rows of any length.
MODEL = Path(__file__).parent.parent / "crates" / "onnx" / "src" / "testdata" / "length.onnx"


def serve(start: Callable[..., Server], home: Path, path: str, batching: str) -> Server:
    """One model with these words about batching."""
    (home / "jitney.yaml").write_text(f"models:\n  - path: {path}\n    batching: {batching}\n")
    return start("serve", "--config", home / "jitney.yaml")


def insight(server: Server, model: str) -> dict:
    """What the management port tells about the model's batching."""
    return requests.get(server.url(f"/models/{model}/batching", "management"), timeout=120).json()


def statistics(server: Server, model: str) -> dict:
    """What its batches came to."""
    return requests.get(server.url(f"/models/{model}/statistics", "management"), timeout=120).json()[0]


def batch_of(reply: requests.Response) -> str:
    """What the timing says about the batch."""
    assert reply.status_code == 200, reply.text
    return reply.headers["server-timing"].split('desc="')[1].rstrip('"')


def test_similar_lengths_meet_and_their_padding_is_accounted(
    start: Callable[..., Server], store: Store, tmp_path: Path
) -> None:
    store.directory("orders")
    server = serve(start, tmp_path, "store/orders", "{max_batch_size: 8, policy: opportunistic, cost: length}")
    assert (insight(server, "orders")["cost"], "padding" in insight(server, "orders")) == ("length", False)
    gate = Gate(tmp_path)
    held = later(lambda: server.predict("orders", gate.order))
    gate.wait()
    queued = []
    for count, length in enumerate(["100", "40", "80"], start=1):
        headers = {"x-jitney-cost": length}
        queued.append(later(lambda headers=headers: server.predict("orders", {}, headers=headers)))
        until(lambda count=count: server.metric("jitney_waiting", "orders") == count, f"{count} wait")
    gate.open()
    timings = [batch_of(answer.result()) for answer in [held, *queued]]
    assert timings[1] == timings[3] == "2 of 8, idle, 10% padding", "80 is borrowed, 40 is too short"
    assert timings[2] == "1 of 8, idle, 0% padding"
    assert insight(server, "orders")["padding"] == {"real": 221, "padded": 241, "waste": 0.083}
    assert server.metric("jitney_cost_real_total", "orders") == 221
    assert server.metric("jitney_cost_padded_total", "orders") == 241
    assert statistics(server, "orders")["total"]["padding"] == insight(server, "orders")["padding"]
    assert [size["padding"]["padded"] for size in statistics(server, "orders")["sizes"]] == [41, 200]


def test_rows_of_different_length_share_a_batch_of_an_onnx_model_that_may_be_padded(
    start: Callable[..., Server], store: Store, tmp_path: Path
) -> None:
    shutil.copy(MODEL, store.path / "rows.onnx")
    (store.path / "rows.yaml").write_text("padding: {dimension: length, values: {ids: 5}}\n")
    batching = "{max_batch_size: 2, policy: window, max_batch_delay: 60s}"
    server = serve(start, tmp_path, "store/rows.onnx", batching)
    assert insight(server, "rows")["cost"] == "length"
    rows = [list(range(-3, 4)), list(range(8))]
    replies = together([lambda row=row: server.predict("rows", row) for row in rows])
    assert [batch_of(reply) for reply in replies] == ["2 of 2, full, 6% padding"] * 2
    assert statistics(server, "rows")["total"]["padding"] == {"real": 15, "padded": 16, "waste": 0.0625}
    for row, reply in zip(rows, replies):
        assert reply.json() == {"twice": [2 * value for value in row], "positive": [value > 0 for value in row]}


def test_a_card_that_does_not_fit_the_model_is_rejected_in_words(shared: Server) -> None:
    shutil.copy(MODEL, shared.store.path / "unfit.onnx")
    (shared.store.path / "unfit.yaml").write_text("padding: {dimension: width}\n")
    reply = shared.manage("POST", "/models", url="unfit.onnx")
    assert reply.status_code == 400, reply.text
    assert 'no input leaves a dimension "width" open' in reply.json()["message"]


DEFINITION = """
import jitney

@jitney.batch(max_batch_size=64, max_batch_delay_ms=60000, cost=lambda text: len(text), padded=True)
def lengths(text: list[str]) -> list[int]:
    return [max(len(one) for one in text) for _ in text]
"""


def test_a_definition_that_pads_is_batched_by_its_longest(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "texts.py").write_text(DEFINITION)
    server = start("serve", "texts:lengths", cwd=tmp_path)
    told = insight(server, "lengths")
    assert (told["cost"], told["maxCost"]) == ("length", 64)
    replies = together([lambda text=text: ask(server, text) for text in ["x" * 31, "y" * 32]])
    assert [reply.json() for reply in replies] == [32, 32]
    assert [batch_of(reply) for reply in replies] == ["2 of 64, full, 2% padding"] * 2


def ask(server: Server, text: str) -> requests.Response:
    """One call that says how long it is."""
    headers = {"x-jitney-cost": str(len(text))}
    return requests.post(server.url("/predictions/lengths"), json={"text": text}, headers=headers, timeout=120)
