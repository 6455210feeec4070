"""Calls between the parts of an application: what travels along, and how a unit test runs them."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

import jitney
import jitney.testing
from jitney.call.context import CURRENT, WINDOW, CallContext, Inherited, Reserves, inherit
from jitney.call.request import Request
from jitney.handle.frames import CALL_HEAD, HEADER_HEAD
from jitney.handle.part import PartHandle, calling, part_handles


class Words:
    @jitney.batch(max_batch_size=4)
    def split(self, text: list[str]) -> list[list[str]]:
        return [one.split() for one in text]

    @jitney.endpoint
    def about(self, request: jitney.Request) -> list[Any]:
        left = request.deadline
        return [request.id, request.origin, request.tenant, request.priority, left and 0 < left <= 5]

    @jitney.endpoint
    def letters(self, word: str) -> Any:
        yield from word


class Lengths:
    words = jitney.depends(Words)

    def __init__(self, resnet: Any = jitney.depends("resnet")) -> None:
        self.resnet = resnet

    @jitney.endpoint
    async def total(self, text: str) -> int:
        words = await self.words.split.remote(text)
        answers = await asyncio.gather(*(self.words.split.remote(word) for word in words))
        return sum(len(word) for (word,) in answers)

    @jitney.endpoint
    def plain(self, text: str) -> int:
        return len(self.words.split.remote(text).result()) + len(self.words.split(text))

    @jitney.endpoint
    async def spell(self, word: str) -> Any:
        async for letter in self.words.letters.stream(word):
            yield letter.upper()

    @jitney.batch
    async def each(self, number: list[int], request: list[jitney.Request]) -> list[Any]:
        calls = (self.words.about.options(request=one).remote() for one in request)
        return [*await asyncio.gather(*calls)]

    @jitney.batch
    async def together(self, number: list[int]) -> list[Any]:
        about = await self.words.about.options(headers={"x-request-id": "own"}).remote()
        return [about] * len(number)

    @jitney.endpoint
    async def wrong(self, kind: str) -> Any:
        if kind == "model":
            return await self.resnet.remote(1)
        return await self.words.split.remote(1, 2, 3)


def requests() -> list[Request]:
    return [
        Request("one", deadline=2.0, tenant="gold", priority="bulk"),
        Request("two", deadline=4.0, tenant="gold"),
    ]


def test_parts_run_in_the_process_of_a_unit_test() -> None:
    with jitney.testing.load(Lengths) as model:
        assert model.call(endpoint="total", text="a bb ccc") == 6
        assert model.call(endpoint="plain", text="a bb ccc") == 6
        assert model.stream([{"word": "tea"}], endpoint="spell") == [["T", "E", "A"]]
        assert model.parts["Words"].sizes == [1] * 7
        with pytest.raises(jitney.BadInput, match="split takes 1 arguments"):
            model.call(endpoint="wrong", kind="arguments")
        with pytest.raises(jitney.NotFound, match="resnet is no part of this application"):
            model.call(endpoint="wrong", kind="model")

    def resnet(number: int) -> int:
        return number + 1

    with jitney.testing.load(Lengths, models={"resnet": resnet}) as model:
        assert model.call(endpoint="wrong", kind="model") == 2


def test_calls_have_the_deadline_the_tenant_and_the_priority_of_their_requests() -> None:
    with jitney.testing.load(Lengths) as model:
        items = [{"number": 1}, {"number": 2}]
        assert model.batch(items, endpoint="each", requests=requests()) == [
            ["one", "python", "gold", "bulk", True],
            ["two", "python", "gold", "interactive", True],
        ]
        own = ["own", "python", "gold", "interactive", True]
        assert model.batch(items, endpoint="together", requests=requests()) == [own, own]


def test_of_several_requests_the_latest_deadline_and_only_what_is_common() -> None:
    one, two = requests()
    both = inherit([one, two])
    assert (both.expires, both.is_bulk, both.tenant, both.headers) == (two.facts[0], False, "gold", ())
    assert inherit([one, Request("three")]).expires is None
    assert inherit([one, Request("three", tenant="other")]).tenant is None
    assert inherit([one]).is_bulk
    traced = Request("four", {"traceparent": "00-ab", "tracestate": "bad\n", "cookie": "secret"})
    assert inherit([traced]).headers == (("x-request-id", "four"), ("traceparent", "00-ab"))


def test_outside_of_calls_there_is_no_context() -> None:
    with pytest.raises(RuntimeError, match="there is no call"):
        jitney.context()


def test_the_context_is_that_of_the_call() -> None:
    seen: list[Any] = []

    class Looking:
        @jitney.endpoint
        async def one(self, number: int) -> str:
            await asyncio.sleep(0)
            return jitney.context().request.id

        @jitney.batch
        def many(self, number: list[int]) -> list[str]:
            current = jitney.context()
            with pytest.raises(RuntimeError, match="2 requests"):
                _ = current.request
            seen.append((current.model, current.endpoint))
            return [one.id for one in current.requests]

    items = [{"number": 1}, {"number": 2}]
    with jitney.testing.load(Looking) as model:
        assert model.batch(items, endpoint="one", requests=requests()) == ["one", "two"]
        assert model.batch(items, endpoint="many", requests=requests()) == ["one", "two"]
    assert seen == [("Looking", "many")]
    assert CURRENT.get() is None


class _Source:
    """What a context is made of."""

    model = "Caller"

    def __init__(self, *requests: Request) -> None:
        self.reserves = Reserves()
        self._requests = requests

    def request_at(self, position: int) -> Request:
        return self._requests[position]


def heads(handle: PartHandle, call: CallContext | None, streams: bool = False) -> tuple[Any, ...]:
    """Timeout, priority and tail of the frame that a call would send."""
    inherited = handle._inherited or (Inherited() if call is None else call.inherited)
    head = handle._head_for(call, inherited, streams)
    timeout, priority, more, *lengths = CALL_HEAD.unpack_from(head)
    at = CALL_HEAD.size + sum(lengths)
    assert head[CALL_HEAD.size : at] == b"Other1.0split"
    return timeout, priority, more, head[at:]


def test_a_call_carries_what_it_inherits_unless_it_says_otherwise() -> None:
    handle: Any = PartHandle(None, "Other", "1.0", "split")  # type: ignore[arg-type]  # Nothing is sent.
    request = Request("abc", deadline=2.0, tenant="gold", priority="bulk")
    call = CallContext(_Source(request), "predict", True, [0])
    named = HEADER_HEAD.pack(12, 3) + b"x-request-idabc"
    timeout, priority, more, tail = heads(handle, call)
    assert 1900 < timeout <= 2000 and (priority, more) == (1, 3)
    assert tail == struct.pack("<QB", 0, 4) + b"gold" + struct.pack("<H", len(named)) + named
    timeout, priority, _, tail = heads(handle.options(timeout=9, priority="interactive", cost=3), call)
    assert (timeout, priority) == (9000, 0) and tail.startswith(struct.pack("<QB", 3, 4) + b"gold")
    assert b"abc" not in heads(handle.options(headers={"X-Request-Id": "own"}), call)[3]
    other = handle.options(request=Request("def"))
    assert heads(other, call) == (0, 0, 2, struct.pack("<H", len(named)) + named.replace(b"abc", b"def"))
    assert heads(other.options(tenant="silver"), call)[2] == 3


def test_the_reserve_of_a_caller_shortens_the_timeouts_of_its_calls_but_not_of_streams() -> None:
    handle: Any = PartHandle(None, "Other", "1.0", "split")  # type: ignore[arg-type]
    source = _Source(Request("abc", deadline=10.0))
    reserve = source.reserves.of("predict", "Other/split")
    assert reserve is not None
    for _ in range(WINDOW):
        reserve.observe(1.0)
    call = CallContext(source, "predict", True, [0])
    assert 8000 < heads(handle, call)[0] <= 9100
    assert 9100 < heads(handle, call, streams=True)[0] <= 10000
    assert 9100 < heads(handle, CallContext(source, "other", True, [0]))[0] <= 10000


def test_a_caller_is_learned_from_only_if_it_succeeds_and_has_waited() -> None:
    async def call(source: _Source, wait: bool, fail: bool = False) -> None:
        future = asyncio.get_running_loop().create_future()
        try:
            with CallContext(source, "predict", True, [0]) as current:
                current.watch("Other/split", future)
                if wait:
                    future.set_result(1)
                    await asyncio.sleep(0)
                if fail:
                    raise ValueError
        except ValueError:
            pass
        future.cancel()

    source = _Source(Request("abc", deadline=10.0))
    for _ in range(WINDOW):
        asyncio.run(call(source, wait=True, fail=True))
    reserve = source.reserves.of("predict", "Other/split")
    assert reserve is not None and reserve._count == 0
    asyncio.run(call(source, wait=True))
    assert 0 < reserve._least < 1
    asyncio.run(call(source, wait=False))
    assert reserve._least == 0.0


def test_handles_go_to_the_address_that_the_worker_has_dialled(tmp_path: Any) -> None:
    import socket

    from jitney.definition.application import graph

    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as worker:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        worker.connect(str(tmp_path / "socket"))
        resolve = part_handles(graph(Lengths).root, "7", calling(worker, b"hello"))
        words, other = resolve("words"), resolve("resnet")
        assert repr(words) == "<jitney.Handle Words/7>" and repr(other) == "<jitney.Handle resnet>"
        with pytest.raises(AttributeError, match="Words has no endpoint 'spilt'; it has: split, about, letters"):
            _ = words.spilt
        called = asyncio.run(first_bytes(words.split, listening))
    assert called.startswith(b"hello") and b"Words7split" in called


async def first_bytes(handle: Any, listening: Any) -> bytes:
    """What a server receives of the first call; it closes then."""
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    call = handle.remote("text")
    accepting = [(await loop.sock_accept(listening))[0] for _ in range(2)]  # The worker's own comes first.
    received = b""
    while b"Words" not in received:
        received += await loop.sock_recv(accepting[1], 4096)
    for one in accepting:
        one.close()
    with pytest.raises(jitney.Disconnected):
        await call
    return received
