"""Tenants take turns by their weights, and batches are limited by what requests say they cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.client import later, together
from harness.gate import Gate
from harness.server import Server
from harness.shape import assert_problem, timing_of
from harness.wait import until


def serve(start: Callable[..., Server], store: Store, home: Path, batching: str) -> Server:
    """The model `orders` with one worker and these words about batching in jitney.yaml."""
    store.directory("orders")
    (home / "jitney.yaml").write_text(f"models:\n  - path: store/orders\n    batching: {batching}\n")
    return start("serve", "--config", home / "jitney.yaml")


def insight(server: Server) -> dict:
    """What the management port tells about the model's batching."""
    return requests.get(server.url("/models/orders/batching", "management"), timeout=120).json()


def test_a_tenant_with_much_to_ask_does_not_keep_the_others_waiting(
    start: Callable[..., Server], store: Store, tmp_path: Path
) -> None:
    batching = "{max_batch_size: 2, policy: adaptive, tenants: {gold: 3}}"
    server = serve(start, store, tmp_path, batching)
    assert insight(server)["tenants"] == {"gold": 3}
    gate, note = Gate(tmp_path), str(tmp_path / "order")
    held = later(lambda: server.predict("orders", gate.order))
    gate.wait()
    queued = []
    for count, tenant in enumerate(["many"] * 6 + ["gold"] * 2, start=1):
        body, headers = {"note": [note, tenant]}, {"x-jitney-tenant": tenant}
        queued.append(later(lambda body=body, headers=headers: server.predict("orders", body, headers=headers)))
        until(lambda count=count: server.metric("jitney_waiting", "orders") == count, f"{count} wait")
    gate.open()
    assert [answer.result().status_code for answer in [held, *queued]] == [200] * 9
    order = Path(note).read_text().split()
    assert sorted(order) == ["gold"] * 2 + ["many"] * 6
    assert "gold" in order[:2] and "gold" not in order[4:], order


def test_weights_of_tenants_change_on_the_live_model_and_show_at_once(
    start: Callable[..., Server], store: Store, tmp_path: Path
) -> None:
    server = serve(start, store, tmp_path, "{max_batch_size: 2, policy: adaptive, tenants: {gold: 3}}")
    assert server.describe("orders")["tenants"] == {"gold": 3}
    for weights, want in [("gold:5,trial:1", {"gold": 5, "trial": 1}), ("silver:2", {"silver": 2})]:
        reply = server.manage("PUT", "/models/orders", tenants=weights)
        assert (reply.status_code, reply.json()["status"]) == (200, 'Model "orders" updated'), reply.text
        assert insight(server)["tenants"] == server.describe("orders")["tenants"] == want
    for wrong in ["gold", "gold:0", "gold:many", ",".join(f"t{at}:2" for at in range(32))]:
        rejected = server.manage("PUT", "/models/orders", tenants=wrong)
        assert_problem(rejected, 400, "BadRequestException", "above zero")
    assert insight(server)["tenants"] == {"silver": 2}, "a rejected change changes nothing"
    assert insight(server)["policy"] == "adaptive", "and weights change nothing else"
    assert server.manage("PUT", "/models/orders", tenants="").status_code == 200
    assert "tenants" not in insight(server) and "tenants" not in server.describe("orders")


def test_batches_are_limited_by_what_requests_say_they_cost(
    start: Callable[..., Server], store: Store, tmp_path: Path
) -> None:
    batching = "{max_batch_size: 8, policy: window, max_batch_delay: 60s, cost: tokens, max_cost: 10}"
    server = serve(start, store, tmp_path, batching)
    assert (insight(server)["cost"], insight(server)["maxCost"]) == ("tokens", 10)
    replies = together([lambda: server.predict("orders", {}, headers={"x-jitney-cost": "5"})] * 4)
    assert [(timing_of(reply).size, timing_of(reply).reason) for reply in replies] == [(2, "full")] * 4
    assert_problem(server.predict("orders", {}, headers={"x-jitney-cost": "11"}), 413, "RequestEntityTooLargeException")


DEFINITION = """
import jitney

@jitney.batch(max_batch_size=10, max_batch_delay_ms=60000, cost=lambda text: len(text))
def lengths(text: list[str]) -> list[int]:
    return [len(one) for one in text]
"""


def test_a_definition_with_a_cost_is_batched_by_it(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "texts.py").write_text(DEFINITION)
    server = start("serve", "texts:lengths", cwd=tmp_path)
    assert insight_of(server, "lengths") == ("tokens", 10)
    texts = ["abcde", "fghij"]
    replies = together([lambda text=text: ask(server, text) for text in texts])
    assert [reply.json() for reply in replies] == [5, 5]
    assert [(timing_of(reply).size, timing_of(reply).reason) for reply in replies] == [(2, "full")] * 2


def insight_of(server: Server, model: str) -> tuple[str, int]:
    """Unit and limit of the cost."""
    said = requests.get(server.url(f"/models/{model}/batching", "management"), timeout=120).json()
    return said["cost"], said["maxCost"]


def ask(server: Server, text: str) -> requests.Response:
    """One call that says what it costs."""
    headers = {"x-jitney-cost": str(len(text))}
    return requests.post(server.url("/predictions/lengths"), json={"text": text}, headers=headers, timeout=120)


@pytest.mark.parametrize(
    ("name", "value"), [("x-jitney-cost", "much"), ("x-jitney-cost", "0"), ("x-jitney-tenant", "x" * 129)]
)
def test_a_claim_that_makes_no_sense_is_rejected(shared: Server, name: str, value: str) -> None:
    assert_problem(shared.predict("echo", b"x", headers={name: value}), 400, "BadRequestException", name)
