"""What a call says about itself through handles, as over HTTP: priority, tenant, cost; and names that handles have."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness.gate import Gate
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from harness.wait import until

APP = '''
import time
from pathlib import Path

import jitney

HERE = Path(__file__).parent


class Line:
    """Answers with the number of the batch that a call was in; one that names a gate holds it there."""

    def setup(self):
        self.batches = 0

    def __call__(self, gate: list[str] = "") -> list[int]:
        for name in filter(None, gate):
            (HERE / f"{name}-arrived").touch()
            while not (HERE / f"{name}-opened").exists():
                time.sleep(0.005)
        self.batches += 1
        return [self.batches] * len(gate)


@jitney.batch(max_batch_size=2, policy="adaptive")
class Fair(Line):
    """Lets tenants take turns."""


@jitney.batch(max_batch_size=2, policy="opportunistic")
class Plain(Line):
    """Knows priorities only."""


@jitney.batch(max_batch_size=10, max_batch_delay_ms=600_000, cost=len)
def weigh(text: list[str]) -> list[int]:
    return [len(text)] * len(text)


class Kit:
    @jitney.endpoint
    def who(self, request: jitney.Request) -> list:
        headers = ("x-jitney-tenant", "x-jitney-cost")
        return [request.headers.get(name) for name in headers]

    @jitney.endpoint
    def each(self, request: jitney.Request):
        yield request.headers.get("x-jitney-tenant") or "nobody"

    @jitney.endpoint
    def configure(self, x: int) -> int:
        return x + 1

    @jitney.endpoint(name="two-words")
    def other(self, x: int) -> int:
        return x + 2
'''

MODELS = ["app:Fair", "app:Plain", "app:weigh", "app:Kit"]


def result(call: Any) -> Any:
    return call.result(ASK_SECONDS)


def queue_up(server: Server, session: jitney.Session, home: Path, model: str, terms: list[dict]) -> list[int]:
    """The batches of calls that came one after another, in this order, while the worker was busy."""
    handle, gate, calls = session.model(model), Gate(home, model), []
    held = handle.remote(model)
    try:
        gate.wait()
        for count, one in enumerate(terms, start=1):
            calls.append(handle.options(**one).remote())
            until(lambda count=count: server.metric("jitney_waiting", model) == count, f"{count} wait")
    finally:
        gate.open()
    first = result(held)
    return [result(call) - first for call in calls]


def test_a_tenant_with_many_calls_does_not_keep_the_others_waiting(served, session, home):
    many, few = [{"tenant": "many"}] * 6, [{"tenant": "few"}] * 2
    batches = queue_up(served, session, home, "Fair", many + few)
    assert batches[6:] == [1, 2], batches
    assert sorted(batches) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_bulk_fills_only_the_room_that_others_leave(served, session, home):
    batches = queue_up(served, session, home, "Plain", [{"priority": "bulk"}] * 3 + [{}] * 3)
    assert batches == [2, 3, 3, 1, 1, 2]


def test_batches_are_limited_by_what_calls_say_they_cost(session):
    weigh = session.model("weigh")
    calls = [weigh.options(cost=5).remote("abcde") for _ in range(4)]
    assert [result(call) for call in calls] == [2, 2, 2, 2]
    assert calls[0].timing.reason == "full"
    with pytest.raises(jitney.RemoteError) as caught:
        result(weigh.options(cost=11).remote("abcdefghijk"))
    assert caught.value.status == 413


def test_models_read_who_asks_however_they_are_asked(served, session):
    kit = session.model("Kit").options(tenant="gold", cost=3)
    said = ["gold", "3"]
    assert result(kit.who.remote()) == said, "an endpoint has the terms of its handle"
    assert result(kit.options(cost=4).who.remote()) == ["gold", "4"], "what is left out stays"
    assert result(session.model("Kit").who.remote()) == [None, None]
    assert list(kit.each.stream()) == ["gold"]
    with jitney.Client(served.urls["inference"]) as client:
        assert client.predict("Kit", {}, endpoint="who", tenant="gold", cost=3) == said
        assert "".join(client.stream("Kit", {}, endpoint="each", tenant="gold")) == "gold"

    async def main() -> list[Any]:
        async with jitney.connect(served.urls["inference"]) as session:
            handle = session.model("Kit").options(tenant="gold", cost=3)
            seen = [await handle.who.remote(), [piece async for piece in handle.each.stream()]]
        async with jitney.AsyncClient(served.urls["inference"]) as client:
            seen.append(await client.predict("Kit", {}, endpoint="who", tenant="gold", cost=3))
            seen.append([piece async for piece in client.stream("Kit", {}, endpoint="each", tenant="gold")])
        return seen

    assert asyncio.run(main()) == [said, ["gold"], said, ["gold"]]


@pytest.mark.parametrize(
    "terms",
    [
        {"tenant": ""},
        {"tenant": "x" * 129},
        {"tenant": "grün"},
        {"tenant": "a\nb"},
        {"cost": 0},
        {"cost": -1},
        {"cost": 1.5},
        {"cost": True},
        {"cost": 2**64},
        {"priority": "urgent"},
        {"timeout": 0},
    ],
    ids=str,
)
def test_terms_that_make_no_sense_are_rejected_before_anything_is_sent(terms):
    (name,) = terms
    with jitney.connect("http://127.0.0.1:1") as session, pytest.raises(ValueError, match=f"{name} must be"):
        session.model("m").options(**terms)
    with jitney.Client("http://127.0.0.1:1") as client, pytest.raises(ValueError, match=f"{name} must be"):
        client.predict("m", **terms)


def test_endpoints_with_the_names_of_a_handles_own_methods_are_reached_and_warned_of(served, session):
    kit = session.model("Kit")
    assert result(kit.options(method_name="configure").remote(1)) == 2
    assert result(kit.options(method_name="two-words").remote(1)) == 3
    assert result(kit.options(method_name="configure", tenant="a").options(method_name="who").remote()) == ["a", None]
    served.logged("Kit: handle.configure is something else on every handle; call this endpoint with")
