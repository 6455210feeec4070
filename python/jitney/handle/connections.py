"""All connections of a session: one per event loop, and one in the background for threads without a loop.

That one is on a loop and in a thread of its own. Callers append their calls to a queue and wake the loop only if it is
asleep, so that many calls of many threads cost one wake-up and one write.

Calls made in one turn of a loop are sent in one write, and a read completes every call that it can. The first call
opens the connection, and the next call after it was lost opens it again; calls that were under way then fail, since
the model may have run.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from jitney.call.errors import Overloaded
from jitney.client import Client
from jitney.handle import frames
from jitney.handle.frames import ANSWER, CALL, HEADER, AnswerHead, Payload, Received, read_answer
from jitney.handle.wire import MakeError, Wire
from jitney.machine.process import is_interactive
from jitney.wire.address import Address
from jitney.wire.calls import read_body

CALLS_MAX = 65_536
"""Calls under way; one more is rejected here."""
UNSENT_BYTES_MAX = 256 << 20


class ResultReceiver(Protocol):
    """What a caller holds while its call is under way: it receives the result."""

    number: int

    def answered(self, value: Any, head: AnswerHead) -> None:
        """The whole answer."""

    def piece(self, value: Any, size: int, head: AnswerHead | None) -> bool:
        """A piece of it; False if it cannot be kept and the call is over."""

    def ended(self) -> None:
        """The last piece was received."""

    def failed(self, error: BaseException) -> None:
        """There is no answer, or no more of it."""


class Connection:
    """All calls to a server from one event loop."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self._address = address
        self.loop = loop
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._calls: dict[int, ResultReceiver] = {}
        self._types: dict[int, str] = {}
        """Content types of the streams under way."""
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._scheduled = False
        self._numbers = 0
        self.woken: asyncio.Future[None] = asyncio.Future(loop=loop)
        """Done already: what tasks are woken with."""
        self.woken.set_result(None)

    def send(self, receiver: ResultReceiver, head: bytes, body: bytes) -> None:
        """Begins a call."""
        if len(self._calls) >= CALLS_MAX or self._unsent_bytes > UNSENT_BYTES_MAX:
            raise Overloaded(f"{len(self._calls)} calls are under way; wait for some of them", 429, "TooManyCalls")
        self._numbers = receiver.number = number = self._numbers + 1
        self._calls[number] = receiver
        self._unsent += HEADER.pack(len(head) + len(body), CALL, 0, 0, number), head, body
        self._unsent_bytes += len(body)
        if not self._scheduled:
            self._schedule()

    def cancel(self, receiver: ResultReceiver) -> None:
        """Cancels a call."""
        if self._calls.pop(receiver.number, None) is not None:
            self._types.pop(receiver.number, None)
            self._unsent.append(frames.cancel_frame(receiver.number))
            self._schedule()

    def close(self) -> None:
        """Ends the connection; calls under way fail."""
        if self._wire is not None:
            self._wire.close()

    def _schedule(self) -> None:
        """What is unsent leaves at the end of this turn of the loop, in one write."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._wire is None and self._unsent:
            self._wire = Wire(self._address, self)
            self._opening = self.loop.create_task(self._wire.open(self.loop))
        elif self._wire is not None and self._wire.may_write and self._unsent:
            unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
            self._wire.write(b"".join(unsent))

    # -- events of the wire ---------------------------------------------------------------------

    def ready(self) -> None:
        """Sends what has waited."""
        self._flush()

    def lost(self, why: MakeError) -> None:
        """Fails all calls under way."""
        self._wire, calls, self._calls, self._types = None, self._calls, {}, {}
        self._unsent, self._unsent_bytes = [], 0
        for receiver in calls.values():
            receiver.failed(why())

    def received(self, received: Iterator[Received]) -> None:
        """Handles the frames of one read; calls may have been cancelled meanwhile."""
        for kind, number, payload in received:
            receiver = self._calls.get(number)
            if receiver is None:
                continue
            if kind != ANSWER and kind not in _FRAME_HANDLERS:
                raise ValueError(f"a frame of kind {kind}")
            try:
                if kind == ANSWER:  # Nearly always.
                    value, head, _ = read_answer(payload)
                    del self._calls[number]
                    receiver.answered(value, head)
                else:
                    _FRAME_HANDLERS[kind](self, number, payload, receiver)
            except Exception as error:  # A body that cannot be read is that call's failure alone.
                self.cancel(receiver)
                receiver.failed(error)

    def _first(self, number: int, payload: Payload, receiver: ResultReceiver) -> None:
        value, head, self._types[number] = read_answer(payload)
        if not receiver.piece(value, len(payload), head):
            self.cancel(receiver)

    def _chunk(self, number: int, payload: Payload, receiver: ResultReceiver) -> None:
        value = read_body(payload, self._types[number])
        if not receiver.piece(value, len(payload), None):
            self.cancel(receiver)

    def _end(self, number: int, payload: Payload, receiver: ResultReceiver) -> None:
        self._forget(number)
        receiver.ended()

    def _error(self, number: int, payload: Payload, receiver: ResultReceiver) -> None:
        self._forget(number)
        receiver.failed(frames.read_error(payload))

    def _forget(self, number: int) -> None:
        del self._calls[number]
        self._types.pop(number, None)


_FRAME_HANDLERS = {
    frames.FIRST: Connection._first,
    frames.CHUNK: Connection._chunk,
    frames.END: Connection._end,
    frames.ERROR: Connection._error,
}


class Manager(NamedTuple):
    """Where models are managed."""

    url: str
    token: str | None = None
    tls: ssl.SSLContext | None = None


class Connections:
    """The ways to one server. Closing it ends them all."""

    def __init__(self, address: Address, manager: Manager | None = None) -> None:
        self._address = address
        self._manager = manager
        self._lock = threading.Lock()
        self._connections: weakref.WeakKeyDictionary[Any, Connection] = weakref.WeakKeyDictionary()
        self.latest: Connection | None = None
        """The one that was used last: most programs have one loop."""
        self._background: Background | None = None
        self._client: Client | None = None
        self._closed = False
        self.prefers_background = is_interactive()
        """Whether calls inside an event loop use the background too. The loop of a notebook runs in the thread of its
        cells, so that a cell which waits for an answer would wait for itself."""

    def configure(self, model: str, version: str, **options: Any) -> None:
        """Changes the batching of a model."""
        if self._manager is None:
            raise ValueError(
                "changing a model needs the management address: jitney.connect(..., management_url='http://host:8081')"
            )
        url, token, tls = self._manager
        with Client(url, token=token, tls=tls) as client:
            client.configure(model, version or None, **options)

    def client(self) -> Client:
        """A client of the server over HTTP, for what handles have no frames for."""
        if self._client is None:
            if self._address.unix_path is not None or self._address.greeting is not None:
                raise ValueError("jobs need a server's address over TCP: jitney.connect('http://host:8080')")
            self._check_open()
            self._client = Client(self._address.url, token=self._address.token, tls=self._address.tls)
        return self._client

    def connection(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """The connection of a loop, which is the running one."""
        connection = self._connections.get(loop)
        if connection is None:
            with self._lock:
                self._check_open()
                connection = self._connections[loop] = Connection(self._address, loop)
        self.latest = connection
        return connection

    def background(self) -> Background:
        """The connection of all threads that run no loop."""
        background = self._background
        if background is None:
            with self._lock:
                self._check_open()
                background = self._background = self._background or Background(self._address)
        return background

    def close(self) -> None:
        """Ends every connection; calls under way fail."""
        with self._lock:
            self._closed = True
            self.latest = None
            background, self._background = self._background, None
            connections = list(self._connections.values())
            self._connections.clear()
            client, self._client = self._client, None
        if client is not None:
            client.close()
        if background is not None:
            background.close()
        for connection in connections:
            if not connection.loop.is_closed():
                connection.loop.call_soon_threadsafe(connection.close)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the session is closed; make a new one with jitney.run or jitney.connect")


END_SECONDS = 5.0


class Background:
    """A connection that any thread may use."""

    def __init__(self, address: Address) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = Connection(address, self._loop)
        self._waiting: deque[Callable[[], None]] = deque()
        self._awake = False
        self._thread = threading.Thread(target=self._run, name="jitney-handles", daemon=True)
        self._thread.start()

    def send(self, receiver: ResultReceiver, head: bytes, body: bytes) -> None:
        """Begins a call; the receiver gets errors too."""
        self._do(lambda: self._send(receiver, head, body))

    def cancel(self, receiver: Any) -> None:
        """Cancels a call."""
        self._do(lambda: self._connection.cancel(receiver))

    def close(self) -> None:
        """Ends the connection and the thread; calls under way fail."""
        self._loop.call_soon_threadsafe(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join(END_SECONDS)

    def _do(self, task: Callable[[], None]) -> None:
        if self._loop.is_closed():
            raise RuntimeError("the session is closed")
        self._waiting.append(task)
        if not self._awake:  # Two threads may both see it asleep; one wake-up too many is harmless.
            self._awake = True
            self._loop.call_soon_threadsafe(self._work)

    def _work(self) -> None:
        self._awake = False  # First: a task that is added from now on wakes the loop again.
        while self._waiting:
            self._waiting.popleft()()

    def _send(self, receiver: ResultReceiver, head: bytes, body: bytes) -> None:
        try:
            self._connection.send(receiver, head, body)
        except Exception as error:
            receiver.failed(error)

    def _end(self) -> None:
        self._work()
        self._connection.close()
        self._loop.call_soon(self._loop.stop)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
