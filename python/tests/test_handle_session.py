"""The client's side of a handle against a scripted server: what is written when, and what ends how."""

from __future__ import annotations

import asyncio
import gc
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import wire

import jitney
from jitney.handle import connections, frames, streams
from jitney.handle.running import read_url
from jitney.packing import by_value
from jitney.wire import values

SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: jitney-handle/1\r\n\r\n"


def word(kind: int, number: int, payload: bytes = b"") -> bytes:
    return frames.HEADER.pack(len(payload), kind, 0, 0, number) + payload


def answer(number: int, value: Any, kind: int = frames.ANSWER) -> bytes:
    typed = b"application/x-jitney-value"
    head = struct.pack("<IIIIHBBHH", 0, 0, 1, 1, 0, 1, 1, 200, len(typed))
    return word(kind, number, head + typed + values.encode(value))


class Peer:
    """The server's end of a connection, in a test's hands."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def upgrade(self) -> bytes:
        """Reads the request and agrees."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.writer.write(SWITCHED)
        return head

    async def frame(self) -> tuple[int, int]:
        """Kind and number of the next frame."""
        length, kind, _, _, number = frames.HEADER.unpack(await self._reader.readexactly(frames.HEADER.size))
        await self._reader.readexactly(length)
        return kind, number


def talk(client: Callable[[jitney.Session], Awaitable[Any]], server: Callable[[Peer], Awaitable[None]]) -> Any:
    """Runs a client against a server's script and returns what it returns."""

    async def main() -> Any:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await server(Peer(reader, writer))
            except Exception as error:
                done.set_exception(error)
            finally:
                writer.close()

        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener, jitney.connect(f"http://127.0.0.1:{port}", token="key") as session:
            result = await asyncio.wait_for(client(session), wire.PATIENCE_SECONDS)
        if done.done():
            done.result()
        return result

    return asyncio.run(main())


def test_calls_of_one_turn_are_sent_in_one_write_after_the_upgrade():
    async def server(peer: Peer) -> None:
        head = await peer.upgrade()
        assert b"Upgrade: jitney-handle/1\r\n" in head
        assert b"Authorization: Bearer key\r\n" in head
        await asyncio.sleep(0)
        data = await peer._reader.read(1 << 20)
        numbers = [number for _, number, _ in frames.FrameBuffer().feed(data)]
        assert numbers == list(range(1, 101))
        peer.writer.write(b"".join(answer(number, number * 10) for number in reversed(numbers)))
        await peer.writer.drain()
        await peer._reader.read()

    async def client(session: jitney.Session) -> list[int]:
        handle = session.model("m")
        return await asyncio.gather(*(handle.remote(x) for x in range(100)))

    assert talk(client, server) == [10 * number for number in range(1, 101)]


def test_a_cancelled_call_is_sent_to_the_server_and_a_late_answer_is_ignored():
    async def server(peer: Peer) -> None:
        await peer.upgrade()
        assert await peer.frame() == (frames.CALL, 1)
        assert await peer.frame() == (frames.CANCEL, 1)
        assert await peer.frame() == (frames.CALL, 2)
        peer.writer.write(answer(1, "late") + answer(2, "good"))
        await peer._reader.read()

    async def client(session: jitney.Session) -> str:
        call = session.model("m").remote(1)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call, 0.05)
        return await session.model("m").remote(2)

    assert talk(client, server) == "good"


def test_all_tasks_whose_answers_come_together_go_on_in_one_turn_of_the_loop():
    async def server(peer: Peer) -> None:
        await peer.upgrade()
        numbers = [(await peer.frame())[1] for _ in range(8)]
        peer.writer.write(b"".join(answer(number, number) for number in numbers))
        await peer._reader.read()

    async def client(session: jitney.Session) -> list[int]:
        turns: list[int] = []
        loop = asyncio.get_running_loop()

        async def one() -> int:
            value: int = await session.model("m").remote(1)
            turns.append(len(seen))
            return value

        seen: list[None] = []

        def turn() -> None:
            seen.append(None)
            loop.call_soon(turn)

        turn()
        values = await asyncio.gather(*(one() for _ in range(8)))
        assert len(set(turns)) == 1, "all in one turn of the loop"
        return values

    assert talk(client, server) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_call_can_be_awaited_several_times_and_its_task_cancelled():
    async def server(peer: Peer) -> None:
        await peer.upgrade()
        assert await peer.frame() == (frames.CALL, 1)
        assert await peer.frame() == (frames.CALL, 2)
        assert await peer.frame() == (frames.CANCEL, 2)
        peer.writer.write(answer(1, "answer"))
        await peer._reader.read()

    async def client(session: jitney.Session) -> list[Any]:
        shared, lone = session.model("m").remote(1), session.model("m").remote(2)
        called: list[Any] = []
        shared.add_done_callback(called.append)

        async def awaits(call: Any) -> Any:
            return await call

        first, second, third = (asyncio.ensure_future(awaits(one)) for one in (shared, shared, lone))
        await asyncio.sleep(0)  # Now they all await.
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third
        assert await asyncio.gather(first, second, shared) == ["answer"] * 3
        return called

    [called] = talk(client, server)
    assert called.result() == "answer"


def test_a_lost_connection_fails_its_calls_and_the_next_call_makes_a_new_one():
    met = []

    async def server(peer: Peer) -> None:
        met.append(peer)
        await peer.upgrade()
        _, number = await peer.frame()
        if len(met) > 1:
            peer.writer.write(answer(number, "again"))
            await peer._reader.read()

    async def client(session: jitney.Session) -> str:
        with pytest.raises(jitney.Disconnected):
            await session.model("m").remote(1)
        return await session.model("m").remote(2)

    assert talk(client, server) == "again"


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (b'HTTP/1.1 400 Bad\r\n\r\n{"code": 400, "type": "T", "message": "no token"}', jitney.RemoteError, "no token"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n<html>", jitney.Disconnected, "does not offer handles: HTTP/1.1 404"),
        (SWITCHED + word(9, 1), jitney.Disconnected, "broke the protocol"),
    ],
)
def test_a_server_that_speaks_otherwise_fails_the_call_with_the_reason(said, error, words):
    async def server(peer: Peer) -> None:
        await peer._reader.readuntil(b"\r\n\r\n")
        peer.writer.write(said)
        await peer._reader.read()

    async def client(session: jitney.Session) -> None:
        with pytest.raises(error, match=words):
            await session.model("m").remote(1)

    talk(client, server)


def test_a_body_that_cannot_be_read_fails_its_own_call_only():
    async def server(peer: Peer) -> None:
        await peer.upgrade()
        for _ in range(2):
            await peer.frame()
        broken = answer(1, 1)[:-1]
        peer.writer.write(struct.pack("<I", len(broken) - 16) + broken[4:] + answer(2, "good"))
        await peer._reader.read()

    async def client(session: jitney.Session) -> str:
        bad, good = session.model("m").remote(1), session.model("m").remote(2)
        with pytest.raises(values.ValueFormatError):
            await bad
        return await good

    assert talk(client, server) == "good"


def test_a_stream_that_is_not_read_ends_alone(monkeypatch):
    monkeypatch.setattr(streams, "PIECES_MAX", 3)

    async def server(peer: Peer) -> None:
        await peer.upgrade()
        await peer.frame()
        pieces = [word(frames.CHUNK, 1, values.encode(at)) for at in range(1, 5)]
        peer.writer.write(answer(1, 0, frames.FIRST) + b"".join(pieces))
        assert await peer.frame() == (frames.CANCEL, 1)
        _, number = await peer.frame()
        peer.writer.write(answer(number, "good"))
        await peer._reader.read()

    async def client(session: jitney.Session) -> tuple[list[int], str]:
        stream, seen = session.model("m").stream(1), []
        while not stream._over:
            await asyncio.sleep(0.01)
        with pytest.raises(jitney.Overloaded, match="too slowly"):
            async for piece in stream:
                seen.append(piece)  # noqa: PERF401 - the pieces before the error count
        return seen, await session.model("m").remote(2)

    assert talk(client, server) == ([0, 1, 2], "good")


def test_too_many_calls_are_rejected_by_the_client(monkeypatch):
    monkeypatch.setattr(connections, "CALLS_MAX", 2)

    async def client(session: jitney.Session) -> None:
        handle = session.model("m")
        calls = [handle.remote(1), handle.remote(2)]
        with pytest.raises(jitney.Overloaded, match="2 calls are under way"):
            handle.remote(3)
        for call in calls:
            call.cancel()

    async def server(peer: Peer) -> None:
        await peer._reader.read()

    talk(client, server)


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x", "http://"])
def test_a_wrong_address_is_rejected_with_the_right_form(url):
    with pytest.raises(ValueError, match="http://host:port"):
        jitney.connect(url)


def test_addresses_are_read():
    assert read_url("http://h:1")[:3] == ("h", 1, None)
    assert read_url("http://h")[:2] == ("h", 80)
    assert read_url("unix:/a/b").unix_path == "/a/b"
    assert read_url("https://h").tls is not None


def test_where_cells_run_a_call_inside_the_loop_can_be_waited_for():
    """The notebook's loop runs in the thread of its cells: calls use the background there, streams both ways."""

    async def server(peer: Peer) -> None:
        await peer.upgrade()
        for number in (1, 2):
            assert await peer.frame() == (frames.CALL, number)
            peer.writer.write(answer(number, number))
        assert await peer.frame() == (frames.CALL, 3)
        peer.writer.write(answer(3, "a", frames.FIRST) + word(frames.CHUNK, 3, values.encode("b")))
        peer.writer.write(word(frames.END, 3))
        await peer._reader.read()

    async def cells(port: int) -> list[Any]:
        with jitney.connect(f"http://127.0.0.1:{port}") as session:
            session.prefers_background = True
            handle = session.model("m")
            return [handle("x"), await handle.remote("y"), [piece async for piece in handle.stream("z")]]

    async def main() -> list[Any]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server(Peer(reader, writer))
            writer.close()

        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener:
            return await asyncio.to_thread(lambda: asyncio.run(cells(port)))

    assert asyncio.run(main()) == [1, 2, ["a", "b"]]


def test_a_handle_that_is_called_inside_a_loop_says_what_to_write():
    async def main() -> None:
        with pytest.raises(TypeError, match=r"await handle\.remote"):
            jitney.connect("http://127.0.0.1:1").model("m")("x")

    asyncio.run(main())


def test_a_call_that_was_given_up_prints_nothing(caplog):
    async def main() -> None:
        session = jitney.connect("http://127.0.0.1:1")
        call = session.model("m").remote("x")
        await asyncio.wait([call])  # It has failed, and nobody looks at it.

    asyncio.run(main())
    gc.collect()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("options", "words"), [({"timeout": 0}, "above 0"), ({"timeout": -1}, "above 0"), ({"priority": "vip"}, "one of")]
)
def test_invalid_options_are_rejected_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        jitney.connect("http://h:1").model("m").options(**options)


def test_a_definition_is_found_where_workers_can_import_it(monkeypatch):
    spec, directory = by_value.importable(importable)
    assert spec == f"{__name__}:importable"
    assert directory in __file__

    def hidden(x: int) -> int:
        return x

    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(jitney.DefinitionError, match=r"inside a function.*pip install 'jitney\[notebook\]'"):
        jitney.run(hidden)


def importable(x: int) -> int:
    return x


def test_a_worker_that_runs_the_file_again_gets_an_error_about_the_guard(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__package__", "jitney.worker")
    with pytest.raises(RuntimeError, match="__main__"):
        jitney.run(importable)
