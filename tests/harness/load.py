"""A load generator that is cheap on CPU: asyncio protocols over raw sockets, one request at a time each.

Closed loop: every connection sends its next request when it has the answer to the last one. Each
request has a number of its own; `body_of` makes its body and `check` judges its answer.

    result = await run_load(host, port, "/predictions/m", 64, body_of, check, requests=100_000)
    assert not result.lost and not result.wrong
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

BodyOf = Callable[[int], bytes]
Check = Callable[[int, int, bytes], bool]

EXAMPLES_MAX = 20
"""How many wrong answers are kept to be shown."""


@dataclass
class LoadResult:
    """What became of the requests."""

    sent: int = 0
    answered: int = 0
    wrong: int = 0
    lost: int = 0
    retried: int = 0
    """Answers whose timing says that they needed more than one attempt."""
    statuses: Counter[int] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    """The first wrong answers and lost requests, in words."""
    latencies: array[float] = field(default_factory=lambda: array("d"))
    """Seconds, in the order in which answers came."""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.answered / self.seconds if self.seconds else 0.0

    def quantile(self, share: float) -> float:
        """A latency in seconds: 0.5 for the median."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def note(self, example: str) -> None:
        """Keeps an example, if there are not enough already."""
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(example)

    def __str__(self) -> str:
        p50, p99 = self.quantile(0.5) * 1e3, self.quantile(0.99) * 1e3
        return (
            f"{self.answered} of {self.sent} answered in {self.seconds:.1f} s ({self.rate:.0f}/s, p50 {p50:.1f} ms, "
            f"p99 {p99:.1f} ms), {self.lost} lost, {self.wrong} wrong, {self.retried} retried, {dict(self.statuses)}"
        )


async def run_load(
    host: str,
    port: int,
    path: str,
    connections: int,
    body_of: BodyOf,
    check: Check,
    *,
    requests: int | None = None,
    seconds: float | None = None,
    enough: Callable[[LoadResult], bool] | None = None,
    headers: str = "",
) -> LoadResult:
    """Runs the load until so many requests are sent, for so long or until it is enough, and every answer is in."""
    assert sum(limit is not None for limit in (requests, seconds, enough)) == 1, "one limit"
    clock = asyncio.get_running_loop().time
    end = clock() + (seconds or 0)
    over = enough or (lambda so_far: so_far.sent >= requests if requests is not None else clock() >= end)
    plan = Plan(host, port, path, headers, body_of, check, over)
    started = time.perf_counter()
    await asyncio.gather(*(client(plan) for _ in range(connections)))
    plan.result.seconds = time.perf_counter() - started
    return plan.result


@dataclass
class Plan:
    """What all connections share."""

    host: str
    port: int
    path: str
    headers: str
    body_of: BodyOf
    check: Check
    over: Callable[[LoadResult], bool]
    result: LoadResult = field(default_factory=LoadResult)

    def next(self) -> int | None:
        """The next request's number, or None when it is over."""
        number = self.result.sent
        if self.over(self.result):
            return None
        self.result.sent += 1
        return number


async def client(plan: Plan) -> None:
    """One client: a connection, and a new one whenever that breaks."""
    loop = asyncio.get_running_loop()
    while True:
        ended = loop.create_future()
        try:
            await loop.create_connection(lambda ended=ended: Connection(plan, ended), plan.host, plan.port)
        except OSError as error:
            number = plan.next()
            if number is None:
                return
            plan.result.lost += 1
            plan.result.note(f"request {number}: cannot connect: {error}")
            continue
        if await ended:
            return


class Connection(asyncio.Protocol):
    """Sends, waits for the answer, checks it, sends the next; resolves `ended` with whether all is done."""

    def __init__(self, plan: Plan, ended: asyncio.Future[bool]) -> None:
        self.plan = plan
        self.ended = ended
        self.number: int | None = None
        self.buffer = b""
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the first request."""
        self.transport = transport
        self.send()

    def send(self) -> None:
        """Sends the next request, or ends."""
        self.number = self.plan.next()
        if self.number is None:
            self.transport.close()
            self.ended.set_result(True)
            return
        body = self.plan.body_of(self.number)
        head = f"POST {self.plan.path} HTTP/1.1\r\nHost: load\r\n{self.plan.headers}Content-Length: {len(body)}\r\n\r\n"
        self.sent_at = time.perf_counter()
        self.transport.write(head.encode() + body)

    def data_received(self, data: bytes) -> None:
        """Collects an answer; when it is whole, judges it and goes on."""
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        length = content_length(head)
        if len(self.buffer) < end + 4 + length:
            return
        body, self.buffer = self.buffer[end + 4 : end + 4 + length], self.buffer[end + 4 + length :]
        self.judge(int(head[9:12]), head, body)
        if b"\r\nconnection: close" in head:
            self.transport.close()  # The server needs the connection for others; the client makes a new one.
        else:
            self.send()

    def judge(self, status: int, head: bytes, body: bytes) -> None:
        """Notes what the answer was."""
        result = self.plan.result
        result.answered += 1
        result.statuses[status] += 1
        result.latencies.append(time.perf_counter() - self.sent_at)
        result.retried += b", attempt " in head
        if not self.plan.check(self.number, status, body):
            result.wrong += 1
            result.note(f"request {self.number}: {status} {body[:200]!r}")
        self.number = None

    def connection_lost(self, error: Exception | None) -> None:
        """A request under way is lost."""
        if self.ended.done():
            return
        if self.number is not None:
            self.plan.result.lost += 1
            self.plan.result.note(f"request {self.number}: connection lost: {error}")
        self.ended.set_result(False)


def content_length(head: bytes) -> int:
    """The length that the answer's head states; our server always states one."""
    at = head.find(b"content-length: ")
    assert at >= 0, f"an answer without a length: {head!r}"
    return int(head[at + 16 :].split(b"\r\n", 1)[0])
