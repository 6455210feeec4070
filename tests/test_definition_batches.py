"""When the batches of a definition leave, who is in them and who pays for a failure, by handle and over HTTP.

The behaviours that Ray Serve's users rely on, and where we mean to do better: a neighbour's exception, a client
that hangs up and a cost function that raises harm nobody else. docs/guides/handles.md lists which test is for which.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import requests

from harness.client import later, request, together
from harness.gate import Gate
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from harness.wait import until

APP = '''
import asyncio
import time
from pathlib import Path

import jitney

HERE = Path(__file__).parent
FOR_EVER = 600_000


def hold(name: str) -> None:
    """Stands at the test's gate."""
    (HERE / f"{name}-arrived").touch()
    while not (HERE / f"{name}-opened").exists():
        time.sleep(0.005)


@jitney.batch(max_batch_size=1, max_batch_delay_ms=FOR_EVER)
def one(x: list[int]) -> list[float]:
    return [1 / a for a in x]


@jitney.batch(max_batch_size=10, max_batch_delay_ms=0)
def eager(x: list[int], gate: list[str] = "") -> list[list[int]]:
    if gate[0]:
        hold(gate[0])
    if min(x) < 0:
        raise KeyError("negative")
    return [x] * len(x)


@jitney.batch(max_batch_size=10, max_batch_delay_ms=FOR_EVER)
def ten(x: list[int]) -> list[list[int]]:
    return [x] * len(x)


@jitney.batch(max_batch_size=10, max_batch_delay_ms=100)
def brief(x: list[int]) -> list[list[int]]:
    return [x] * len(x)


@jitney.batch(max_batch_size=2, max_batch_delay_ms=FOR_EVER)
def pairs(x: list[int]) -> list[int]:
    return x


@jitney.batch(max_batch_size=3, max_batch_delay_ms=FOR_EVER)
def trio(x: list[int]) -> list[list[int]]:
    if 13 in x:
        raise ValueError("thirteen")
    return [x] * len(x)


@jitney.batch(max_batch_size=3, max_batch_delay_ms=FOR_EVER)
def tell(name: list[str], steps: list[int], trouble: list[str] = ""):
    for at in range(max(steps)):
        if at == 2 and "raise" in trouble:
            raise RuntimeError("at two")
        if at == 2 and "short" in trouble:
            yield ["alone"]
        yield [StopIteration() if at >= most else {"name": who, "at": at} for who, most in zip(name, steps)]


UNDER_WAY = MOST = 0


@jitney.batch(max_batch_size=5, concurrency=2, policy="opportunistic")
async def side_by_side(x: list[int]) -> list[tuple]:
    global UNDER_WAY, MOST
    UNDER_WAY += 1
    MOST = max(MOST, UNDER_WAY)
    while MOST < 2:  # The first batch ends only when another one has begun.
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    UNDER_WAY -= 1
    return [(a, MOST, len(x)) for a in x]


@jitney.batch(max_batch_size=3, concurrency=2, max_batch_delay_ms=FOR_EVER)
async def contexts(x: list[int], request: list[jitney.Request]) -> list[dict]:
    for a, one in zip(x, request):
        one.response_headers["X-Own"] = str(a)
    await asyncio.sleep(0.05)
    return [{"x": x, "agents": [one.headers["user-agent"] for one in request]}] * len(x)


@jitney.batch(max_batch_size=10, max_batch_delay_ms=100, cost=lambda tokens: tokens)
def weigh(tokens: list[int]) -> list[list[int]]:
    return [tokens] * len(tokens)


@jitney.batch(max_batch_size=20, max_batch_delay_ms=2000, cost=lambda graph: len(graph["nodes"]))
def patient_graphs(graph: list[dict]) -> list[int]:
    return [sum(len(one["nodes"]) for one in graph)] * len(graph)


@jitney.batch(max_batch_size=20, max_batch_delay_ms=100, cost=lambda graph: len(graph["nodes"]))
def graphs(graph: list[dict]) -> list[int]:
    return [sum(len(one["nodes"]) for one in graph)] * len(graph)


@jitney.model(workers=2)
class Mixed:
    @jitney.batch(max_batch_size=8, max_batch_delay_ms=FOR_EVER)
    def many(self, x: list[int]) -> list[int]:
        return [len(x)] * len(x)

    @jitney.endpoint
    def meet(self, own: str, other: str) -> str:
        (HERE / own).touch()
        while not (HERE / other).exists():
            time.sleep(0.005)
        return own


@jitney.model(queue=1)
class Narrow:
    @jitney.batch(max_batch_size=1)
    def ask(self, gate: list[str]) -> list[str]:
        if gate[0]:
            hold(gate[0])
        return gate
'''

NAMES = (
    "one",
    "eager",
    "ten",
    "brief",
    "pairs",
    "trio",
    "tell",
    "side_by_side",
    "contexts",
    "weigh",
    "graphs",
    "patient_graphs",
    "Mixed",
    "Narrow",
)
MODELS = [f"app:{name}" for name in NAMES]


def answers(calls: list[Any]) -> list[Any]:
    return [call.result(ASK_SECONDS) for call in calls]


def post(server: Server, model: str, timeout: float = ASK_SECONDS, **arguments: Any) -> requests.Response:
    return requests.post(server.url(f"/{model}"), json=arguments, timeout=timeout)


def waiting(server: Server, model: str) -> int:
    return server.describe(model)["jobQueueStatus"]["pendingRequests"]


def still_waits(server: Server, model: str, count: int) -> None:
    until(lambda: waiting(server, model) == count, f"{count} wait for {model}")


def test_calls_of_one_item_run_side_by_side_though_others_of_their_class_share_batches(served: Server) -> None:
    names = ["this", "that"]
    met = together([partial(post, served, "Mixed/meet", own=own, other=other) for own, other in (names, names[::-1])])
    assert [answer.text for answer in met] == names, "each waited for the other, in a worker of its own"
    assert all('desc="1 of 8' in answer.headers["server-timing"] for answer in met)
    many = together([partial(post, served, "Mixed/many", x=at) for at in range(8)])
    assert [answer.json() for answer in many] == [8] * 8


def test_a_batch_of_one_never_waits_and_its_exception_keeps_its_type(session):
    one = session.model("one")
    assert answers([one.remote(2), one.remote(4)]) == [0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        one.remote(0).result(ASK_SECONDS)


def test_without_a_window_the_first_leaves_alone_and_those_behind_it_together(served, session, home):
    eager, gate = session.model("eager"), Gate(home, "eager")
    first = eager.remote(1, gate="eager")
    gate.wait()
    behind = [eager.remote(2), eager.remote(3), eager.remote(4)]
    still_waits(served, "eager", 3)
    gate.open()
    assert [first.result(ASK_SECONDS), *answers(behind)] == [[1], [2, 3, 4], [2, 3, 4], [2, 3, 4]]


def test_everybody_who_is_to_blame_gets_the_exception(served, session, home):
    eager, gate = session.model("eager"), Gate(home, "blame")
    first = eager.remote(1, gate="blame")
    gate.wait()
    behind = [eager.remote(-1), eager.remote(-2)]
    still_waits(served, "eager", 2)
    gate.open()
    assert first.result(ASK_SECONDS) == [1]
    for call in behind:
        with pytest.raises(KeyError, match="negative"):
            call.result(ASK_SECONDS)


def test_nine_of_ten_wait_and_the_tenth_releases_all_again_and_again(served, session):
    ten = session.model("ten")
    for start in (0, 100):
        calls = [ten.remote(start + x) for x in range(9)]
        still_waits(served, "ten", 9)
        assert not any(call.done() for call in calls)
        calls.append(ten.remote(start + 9))
        assert answers(calls) == [list(range(start, start + 10))] * 10


def test_the_window_is_counted_from_the_first_of_each_batch(session):
    brief = session.model("brief")
    for _ in range(2):
        call = brief.remote(1)
        assert call.result(ASK_SECONDS) == [1]
        assert call.timing.reason == "window"
        assert call.timing.queue_s >= 0.095


def test_no_wake_up_is_lost(session):
    assert answers([session.model("pairs").remote(x) for x in range(10)]) == list(range(10))


def test_answers_follow_their_callers_and_one_bad_item_spoils_no_other(served, session):
    trio = session.model("trio")
    calls = [trio.remote(1), trio.remote(2)]
    still_waits(served, "trio", 2)
    calls.append(trio.remote(3))
    assert answers(calls) == [[1, 2, 3]] * 3
    good, bad, other = (trio.remote(x) for x in (1, 13, 2))
    with pytest.raises(ValueError, match="thirteen"):
        bad.result(ASK_SECONDS)
    assert 1 in good.result(ASK_SECONDS)
    assert 2 in other.result(ASK_SECONDS)


def test_when_all_who_wait_cancel_the_function_never_runs_and_the_queue_goes_on(served, session):
    trio, batches = session.model("trio"), served.metric("jitney_batch_items_count", "trio")
    gone = [trio.remote(1), trio.remote(2)]
    still_waits(served, "trio", 2)
    assert all(call.cancel() for call in gone)
    still_waits(served, "trio", 0)
    assert served.metric("jitney_batch_items_count", "trio") == batches
    assert answers([trio.remote(x) for x in (7, 8, 9)])[0] == [7, 8, 9]


def test_a_stream_that_is_given_up_before_it_begins_leaves_the_queue(served, session):
    tell = session.model("tell")
    gone = tell.stream("gone", 2)
    still_waits(served, "tell", 1)
    gone.cancel()
    still_waits(served, "tell", 0)
    streams = [tell.stream(name, 1) for name in ("a", "b", "c")]
    assert [[piece["name"] for piece in stream] for stream in streams] == [["a"], ["b"], ["c"]]


def test_to_cancel_what_has_failed_is_harmless(session):
    call = session.model("one").remote(0)
    with pytest.raises(ZeroDivisionError):
        call.result(ASK_SECONDS)
    assert not call.cancel()
    assert session.model("one").remote(1).result(ASK_SECONDS) == 1


def test_callers_of_one_stream_get_their_own_pieces_however_many(session):
    streams = [session.model("tell").stream(name, steps) for name, steps in (("a", 0), ("b", 2), ("c", 5))]
    told = [list(stream) for stream in streams]
    assert [[piece["at"] for piece in pieces] for pieces in told] == [[], [0, 1], [0, 1, 2, 3, 4]]
    assert {piece["name"] for piece in told[2]} == {"c"}


@pytest.mark.parametrize(("trouble", "error"), [("raise", RuntimeError), ("short", jitney.WrongLength)])
def test_a_stream_that_breaks_off_keeps_what_was_told(session, trouble, error):
    streams = [session.model("tell").stream(name, 4, trouble) for name in ("a", "b", "c")]
    for stream in streams:
        told = []
        with pytest.raises(error):
            told.extend(piece["at"] for piece in _noted(stream, told))
        assert told == [0, 1]


def _noted(stream: Any, told: list[int]) -> Iterator[Any]:
    """Passes pieces on, and notes them: `extend` forgets what came before an exception."""
    for piece in stream:
        told.append(piece["at"])  # noqa: PERF401
    yield from ()


def test_streams_over_http_are_each_clients_own_and_may_hold_anything(served):
    def ask(name: str) -> list[str]:
        body = {"name": name, "steps": 3}
        with requests.post(served.url("/tell"), json=body, stream=True, timeout=ASK_SECONDS) as reply:
            return [chunk.decode() for chunk in reply.iter_content(None)]

    told = together([partial(ask, name) for name in ("a", "b", "c")])
    for name, pieces in zip("abc", told):
        text = "".join(pieces)
        assert text.count(f'"{name}"') == 3
        assert not any(f'"{other}"' in text for other in {"a", "b", "c"} - {name})


def test_two_batches_of_one_worker_are_under_way_and_never_three(session):
    answered = answers([session.model("side_by_side").remote(x) for x in range(20)])
    assert [x for x, _, _ in answered] == list(range(20))
    assert {size for _, _, size in answered} <= {1, 2, 3, 4, 5}
    assert max(under_way for _, under_way, _ in answered) == 2


def test_each_batch_sees_its_own_requests_only(served):
    def ask(x: int) -> tuple[int, requests.Response]:
        headers = {"User-Agent": f"agent {x}"}
        return x, requests.post(served.url("/contexts"), json={"x": x}, headers=headers, timeout=ASK_SECONDS)

    seen = set()
    for x, reply in together([partial(ask, x) for x in range(6)]):
        batch = reply.json()
        assert batch["agents"] == [f"agent {other}" for other in batch["x"]]
        assert x in batch["x"]
        assert reply.headers["x-own"] == str(x)
        seen.add(tuple(batch["x"]))
    assert sorted(len(batch) for batch in seen) == [3, 3]


def test_clients_that_hang_up_are_not_computed_and_their_places_are_filled(served):
    gone = [socket.create_connection(served.address, timeout=ASK_SECONDS) for _ in range(2)]
    for at, connection in enumerate(gone):
        connection.sendall(request("/trio", b'{"x": %d}' % (50 + at), "Content-Type: application/json"))
    still_waits(served, "trio", 2)
    for connection in gone:
        connection.close()
    still_waits(served, "trio", 0)
    asked = together([lambda x=x: post(served, "trio", x=x).json() for x in (1, 2, 3)])
    assert [sorted(batch) for batch in asked] == [[1, 2, 3]] * 3


@pytest.mark.parametrize(("model", "arguments"), [("pairs", {"x": 1}), ("tell", {"name": "a", "steps": 1})])
def test_clients_without_patience_break_nothing(served, model, arguments):
    for _ in range(3):
        with pytest.raises(requests.Timeout):
            post(served, model, timeout=0.05, **arguments)
    still_waits(served, model, 0)
    full = {"pairs": 2, "tell": 3}[model]
    assert {reply.status_code for reply in together([partial(post, served, model, **arguments)] * full)} == {200}


def test_costs_make_the_batches(session):
    weigh, graphs = session.model("weigh"), session.model("patient_graphs")
    assert answers([weigh.remote(6), weigh.remote(6)]) == [[6], [6]]
    fits, oversized = weigh.remote(6), weigh.remote(12)
    with pytest.raises(jitney.Error, match="costs 12"):
        oversized.result(ASK_SECONDS)
    assert fits.result(ASK_SECONDS) == [6]
    calls = [graphs.options(cost=size).remote({"nodes": list(range(size))}) for size in (5, 6, 7)]
    assert answers(calls) == [18, 18, 18]


def test_batches_of_mixed_costs_stay_below_the_cap_and_lose_nothing(session):
    dice = random.Random(6)
    sizes = [dice.randint(1, 9) for _ in range(40)]
    batches = answers([session.model("weigh").remote(size) for size in sizes])
    assert all(size in batch and sum(batch) <= 10 for size, batch in zip(sizes, batches))
    assert sum(sum(batch) / len(batch) for batch in batches) == pytest.approx(sum(sizes))


def test_an_item_that_no_batch_can_hold_is_told_so_over_http(served):
    rejected = post(served, "weigh", tokens=11)
    assert rejected.status_code == 413
    assert "a whole batch may cost 10" in rejected.json()["message"]


def test_a_cost_that_cannot_be_found_out_fails_its_own_item_only(session):
    graphs = session.model("graphs")
    good, bad = graphs.remote({"nodes": [1]}), graphs.remote({"edges": []})
    with pytest.raises(KeyError, match="nodes"):
        bad.result(ASK_SECONDS)
    assert good.result(ASK_SECONDS) == 1
    assert graphs.remote({"nodes": [1, 2]}).result(ASK_SECONDS) == 2


def test_eight_requests_are_two_batches_of_four_in_every_figure(served, session):
    weigh = session.model("pairs")
    batches = served.metric("jitney_batch_items_count", "pairs")
    items = served.metric("jitney_batch_items_sum", "pairs")
    assert answers([weigh.remote(x) for x in range(8)]) == list(range(8))
    until(lambda: served.metric("jitney_batch_items_sum", "pairs") == items + 8, "all batches are counted")
    assert served.metric("jitney_batch_items_count", "pairs") == batches + 4
    assert waiting(served, "pairs") == 0


def test_who_finds_the_queue_full_is_rejected_at_once_and_who_is_in_is_answered(served, home):
    gate = Gate(home, "narrow")
    running = later(lambda: post(served, "Narrow", gate="narrow"))
    gate.wait()
    queued = later(lambda: post(served, "Narrow", gate=""))
    still_waits(served, "Narrow", 1)
    for reply in together([partial(post, served, "Narrow", gate="")] * 10):
        assert reply.status_code == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "queue" in reply.json()["message"]
    gate.open()
    assert [running.result().status_code, queued.result().status_code] == [200, 200]


@pytest.mark.parametrize("count", [1, 10])
def test_a_busy_model_tells_what_it_does(served, session, home, count):
    gate = Gate(home, f"busy{count}")
    running = session.model("eager").remote(1, gate=f"busy{count}")
    gate.wait()
    behind = [session.model("eager").remote(2) for _ in range(count)]
    still_waits(served, "eager", count)
    told = served.manage("GET", "/models/eager/batching").json()
    assert (told["waiting"], told["maxBatchSize"]) == (count, 10)
    assert served.describe("eager")["workers"][0]["status"] == "READY"
    gate.open()
    assert [running.result(ASK_SECONDS), *answers(behind)] == [[1], *[[2] * count] * count]
