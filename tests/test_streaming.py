"""Streams as clients see them: pieces one by one over a bare socket, ends good and bad, async handlers.

Every piece after the first is made only when the test has seen the one before, so a piece that is held
back anywhere on its way hangs the test instead of passing it.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.client import request, together
from harness.server import Server

PATIENT = """
import asyncio

SEEN = {}

async def handle(data, context):
    if data is None:
        return None
    name, wanted = data[0]["body"].decode().split()
    event = SEEN.setdefault(name, asyncio.Event())
    SEEN[name + "#"] = count = SEEN.get(name + "#", 0) + 1
    if count == int(wanted):
        event.set()
    await event.wait()
    return [f"{name} {count}"]
"""


class Listener:
    """One request on a socket of its own, read chunk by chunk."""

    def __init__(self, server: Server, model: str, body: object) -> None:
        self.socket = socket.create_connection(server.address, timeout=120)
        content = json.dumps(body).encode()
        self.socket.sendall(request(f"/predictions/{model}", content, "Content-Type: application/json"))
        self.stream = self.socket.makefile("rb")
        self.status = int(self.stream.readline().split()[1])
        lines = iter(self.stream.readline, b"\r\n")
        self.headers = {n.lower(): v.strip() for n, _, v in (line.decode().partition(":") for line in lines)}

    def chunk(self) -> bytes | None:
        """The next chunk, empty for the last one; None if the connection just ends."""
        size = self.stream.readline()
        if not size:
            return None
        piece = self.stream.read(int(size, 16))
        assert self.stream.readline() == b"\r\n"
        return piece


@pytest.fixture(scope="module")
def teller(shared: Server) -> Server:
    shared.need("storyteller", "storyteller")
    return shared


def story(*pieces: str, gates: list[Path] | None = None, then: str = "end") -> dict[str, object]:
    return {"pieces": pieces, "gates": [str(gate) for gate in gates or []] or [""] * len(pieces), "then": then}


def test_every_piece_is_a_chunk_that_arrives_before_the_next_is_made(teller: Server, tmp_path: Path) -> None:
    gates = [tmp_path / name for name in "abc"]
    listener = Listener(teller, "storyteller", story("one ", "two ", "three ", gates=gates))
    assert (listener.status, listener.headers["transfer-encoding"]) == (200, "chunked")
    assert "content-length" not in listener.headers
    assert (listener.headers["ts_stream_next"], listener.headers["x-story"]) == ("true", "yes")
    assert "batch" in listener.headers["server-timing"] and len(listener.headers["x-request-id"]) == 36
    for piece, gate in zip((b"one ", b"two ", b"three "), gates):
        assert listener.chunk() == piece
        gate.touch()
    assert listener.chunk() == b"end"
    assert listener.chunk() == b"", "the stream ends as it should"


def test_the_connection_lives_on_after_a_stream(teller: Server) -> None:
    with requests.Session() as session:
        for _ in range(3):
            answer = session.post(teller.url("/predictions/storyteller"), json=story("a", "b"), timeout=120)
            assert (answer.status_code, answer.text) == (200, "abend")


def test_an_answer_without_pieces_has_a_length(teller: Server) -> None:
    answer = teller.predict("storyteller", story())
    assert (answer.text, answer.headers["content-length"]) == ("end", "3")


def test_a_stream_that_breaks_off_does_not_look_complete(teller: Server) -> None:
    for then in ("raise", "exit"):
        listener = Listener(teller, "storyteller", story("one ", then=then))
        assert listener.chunk() == b"one "
        assert listener.chunk() is None, "no last chunk: the client can tell"
    assert teller.predict("storyteller", story("a")).text == "aend"


def test_a_client_that_leaves_mid_stream_disturbs_no_other_request(teller: Server, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    listener = Listener(teller, "storyteller", story("one", gates=[gate]))
    assert listener.chunk() == b"one"
    listener.socket.close()
    gate.touch()
    assert teller.predict("storyteller", story("a")).text == "aend"


def test_everybody_in_a_batch_hears_the_story(start, store: Store) -> None:
    server = start("serve", store.mar("storyteller", config="{batchSize: 2, maxBatchDelay: 10000}"))
    answers = together([lambda: server.predict("storyteller", story("a ", "b "))] * 2)
    assert [answer.text for answer in answers] == ["a b end"] * 2


def test_an_async_handler_serves_requests_that_wait_for_each_other(start, store: Store) -> None:
    config = "{asyncCommunication: true, minWorkers: 1, maxWorkers: 1}"
    server = start("serve", store.mar("patient", source=PATIENT, config=config))
    answers = together([lambda: server.predict("patient", b"all 20")] * 20)
    assert sorted(answer.text for answer in answers) == sorted(f"all {k}" for k in range(1, 21))


def test_an_archives_stream_is_events_for_who_accepts_them(teller: Server) -> None:
    def told(then: str) -> requests.Response:
        return teller.predict("storyteller", story("one\n", "two", then=then), headers={"Accept": "text/event-stream"})

    whole = told("end")
    assert whole.headers["content-type"] == "text/event-stream" and whole.headers["x-story"] == "yes"
    assert whole.text == "data: one\ndata: \n\ndata: two\n\ndata: end\n\nevent: end\ndata: \n\n"
    *_, name, data, _, _ = told("raise").text.split("\n")
    assert name == "event: error" and json.loads(data.removeprefix("data: "))["message"] == "Prediction failed"


def test_events_that_a_handler_writes_itself_are_framed_once(teller: Server) -> None:
    pieces, accepts = ("data: one\n\n", "data: [DONE]\n\n"), {"Accept": "text/event-stream"}
    told = teller.predict("storyteller", story(*pieces), headers=accepts)
    assert told.headers["content-type"] == "text/event-stream"
    assert told.text == "".join(pieces) + "end"
