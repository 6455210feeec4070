"""Options of a definition that are changed while it is served: they hold from the next batch on, for everybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.gate import Gate
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from harness.wait import until

APP = """
import time
from pathlib import Path

import jitney

HERE = Path(__file__).parent
FOR_EVER = 600_000


class Kit:
    @jitney.batch(max_batch_size=3, max_batch_delay_ms=FOR_EVER)
    def few(self, x: list[int]) -> list[list[int]]:
        return [x] * len(x)

    @jitney.batch(max_batch_size=6)
    def many(self, x: list[int]) -> list[list[int]]:
        return [x] * len(x)

    @jitney.endpoint
    def single(self, x: int) -> int:
        return x


@jitney.batch(max_batch_size=2, max_batch_delay_ms=FOR_EVER)
def tell(name: list[str]):
    yield [f"{one} 0" for one in name]
    (HERE / "tell-arrived").touch()
    while not (HERE / "tell-opened").exists():
        time.sleep(0.005)
    yield [f"{one} {len(name)}" for one in name]
"""


@pytest.fixture
def served(start: Callable[..., Server], tmp_path: Path) -> Server:
    (tmp_path / "app.py").write_text(APP)
    return start("serve", "app:Kit", "app:tell", cwd=tmp_path)


@pytest.fixture
def kit(served: Server) -> Iterator[jitney.Handle]:
    with jitney.connect(served.urls["inference"], management_url=served.urls["management"]) as session:
        yield session.model("Kit")


def waiting(server: Server, count: int) -> None:
    pending = lambda: server.describe("Kit")["jobQueueStatus"]["pendingRequests"]  # noqa: E731
    until(lambda: pending() == count, f"{count} wait")


def sizes(server: Server) -> dict[str, int]:
    return server.manage("GET", "/models/Kit/batching").json()["endpoints"]


def latencies(server: Server) -> dict[str, float | None]:
    return server.manage("GET", "/models/Kit/batching").json().get("endpointLatenciesMs", {})


def test_a_smaller_and_a_larger_batch_show_at_once(served, kit):
    assert sizes(served) == {"few": 3, "many": 6}
    kit.configure(max_batch_size=2)
    assert sizes(served) == {"few": 2, "many": 2}
    assert served.describe("Kit")["batchSize"] == 2
    pair = [kit.few.remote(x) for x in (1, 2)]
    assert [call.result(ASK_SECONDS) for call in pair] == [[1, 2]] * 2
    kit.configure(max_batch_size=8)
    calls = [kit.few.remote(x) for x in range(7)]
    waiting(served, 7)
    calls.append(kit.few.remote(7))
    assert [call.result(ASK_SECONDS) for call in calls] == [list(range(8))] * 8
    assert calls[0].timing.batch_items_max == 8


def test_one_endpoint_changes_and_the_others_do_not(served, kit):
    kit.few.configure(max_batch_size=5)
    assert sizes(served) == {"few": 5, "many": 6}
    calls = [kit.few.remote(x) for x in range(5)]
    waiting(served, 5)
    calls.append(kit.few.remote(5))  # The queue is the model's: it fills the largest batch, the worker cuts it.
    assert [call.result(ASK_SECONDS) for call in calls] == [[0, 1, 2, 3, 4]] * 5 + [[5]]
    with pytest.raises(jitney.RemoteError, match="those that do: few, many"):
        kit.single.configure(max_batch_size=4)
    for shared in ({"policy": "window"}, {"queue": 9}, {"max_batch_delay_ms": 4, "max_batch_size": 2}):
        with pytest.raises(jitney.RemoteError, match="share one queue"):
            kit.few.configure(**shared)
    assert sizes(served) == {"few": 5, "many": 6}


def test_the_latency_of_one_endpoint_is_its_own(served, kit):
    assert latencies(served) == {}
    kit.few.configure(max_latency_ms=4000)
    assert latencies(served) == {"few": 4000, "many": None, "single": None}
    patient, hurried = kit.many.remote(1), kit.few.remote(2)
    assert hurried.result(ASK_SECONDS) == [2], "half of its time is over and no other call came"
    assert hurried.timing.reason == "deadline"
    waiting(served, 1)
    assert not patient.done()
    kit.single.configure(max_latency_ms=9000)
    assert latencies(served) == {"few": 4000, "many": None, "single": 9000}
    kit.few.configure(max_latency_ms=0)
    assert latencies(served) == {"few": None, "many": None, "single": 9000}
    with pytest.raises(jitney.RemoteError, match="there are: few, many, single"):
        kit.none.configure(max_latency_ms=5)
    kit.configure(max_latency_ms=7000, policy="window", max_batch_delay_ms=0)
    assert latencies(served) == {}, "what is said of the model holds for all"
    assert patient.result(ASK_SECONDS) == [1]


def test_whoever_waits_is_released_by_a_shorter_window(served, kit):
    call = kit.few.remote(1)
    waiting(served, 1)
    kit.configure(max_batch_delay_ms=0)
    assert call.result(ASK_SECONDS) == [1]
    assert served.describe("Kit")["maxBatchDelay"] == 0
    kit.configure(max_latency_ms=250, policy="adaptive", queue=77)
    told = served.manage("GET", "/models/Kit/batching").json()
    assert (told["policy"], told["maxLatencyMs"], told["maxWaiting"]) == ("adaptive", 250.0, 77)


def test_clients_of_both_kinds_change_options(served):
    with jitney.Client(served.urls["inference"], served.urls["management"]) as client:
        client.configure("Kit", endpoint="many", max_batch_size=9)

    async def main() -> None:
        async with jitney.AsyncClient(served.urls["inference"], served.urls["management"]) as client:
            await client.configure("Kit", "1.0", endpoint="few", max_batch_size=4)

    asyncio.run(main())
    assert sizes(served) == {"few": 4, "many": 9}


def test_weights_of_tenants_are_an_option_too(served, kit):
    kit.configure(tenants={"gold": 4, "a:b": 2})
    assert served.manage("GET", "/models/Kit/batching").json()["tenants"] == {"gold": 4, "a:b": 2}
    for wrong in [{"gold": 0}, {"gold": 1.5}, {"a,b": 1}, {" ": 1}]:
        with pytest.raises(jitney.DefinitionError, match="tenants"):
            kit.configure(tenants=wrong)
    kit.configure(tenants={})
    assert "tenants" not in served.manage("GET", "/models/Kit/batching").json()


def test_a_change_during_a_stream_is_for_the_next_one(served, tmp_path):
    gate = Gate(tmp_path, "tell")
    with jitney.connect(served.urls["inference"], management_url=served.urls["management"]) as session:
        tell = session.model("tell")
        streams = [tell.stream("a"), tell.stream("b")]
        gate.wait()
        tell.configure(max_batch_size=1)
        gate.open()
        assert [list(stream) for stream in streams] == [["a 0", "a 2"], ["b 0", "b 2"]]
        assert list(tell.stream("c")) == ["c 0", "c 1"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "configure needs at least one of"),
        ({"max_batch_size": 0}, "max_batch_size must be"),
        ({"policy": "sometimes"}, "policy must be one of"),
        ({"max_latency_ms": -1}, "max_latency_ms must be"),
    ],
)
def test_what_makes_no_sense_is_rejected_before_it_is_sent(options, words):
    nowhere = "http://127.0.0.1:1"
    with jitney.connect(nowhere, management_url=nowhere) as session, pytest.raises(jitney.DefinitionError, match=words):
        session.model("m").configure(**options)


def test_a_handle_that_does_not_know_the_management_address_says_so():
    with jitney.connect("http://127.0.0.1:1") as session, pytest.raises(ValueError, match="management_url"):
        session.model("m").configure(max_batch_size=2)
