"""Continuous batching with real workers: jobs join, stream a piece per step, end and leave on their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.archives import Store
from harness.client import together
from harness.server import Server
from harness.wait import until
from test_streaming import Listener

CONFIG = {"minWorkers": 1, "maxWorkers": 1, "batchSize": 4, "maxBatchDelay": 5000, "continuousBatching": True}


@pytest.fixture
def server(start: Any, store: Store) -> Server:
    """A server with one worker that spells."""
    server = start("serve", store.mar("echo"), "--model-store", store.path, store=store)
    server.need("speller", "speller", config=json.dumps(CONFIG))
    return server


def spell(server: Server, word: str) -> Listener:
    """Asks for a word and reads the head of the answer."""
    return Listener(server, "speller", {"word": word})


def rest(listener: Listener) -> list[bytes]:
    """All further chunks."""
    chunks = []
    while (chunk := listener.chunk()) != b"":
        assert chunk is not None, f"the answer broke off after {len(chunks)} chunks"
        chunks.append(chunk)
    return chunks


def test_every_step_is_a_chunk(server: Server) -> None:
    """The answer is streamed letter by letter; it does not wait for a batch to fill."""
    listener = spell(server, "abc")
    assert (listener.status, listener.headers["transfer-encoding"]) == (200, "chunked")
    assert listener.headers["ts_stream_next"] == "true"
    assert rest(listener) == [b"a", b"b", b"c"]


def test_one_step_is_a_plain_answer(server: Server) -> None:
    """What is complete at once is not streamed."""
    answer = server.predict("speller", {"word": "x"})
    assert (answer.text, answer.headers["content-length"]) == ("x", "1")
    assert server.describe("speller")["continuousBatching"] is True


def test_jobs_join_and_leave_between_steps(server: Server) -> None:
    """A long job goes on while short ones come and go; each is told how many it was worked on with."""
    long = spell(server, "#" * 20_000)
    assert long.chunk() == b"1"
    short = server.predict("speller", {"word": "#"})
    assert short.text == "2"
    counted = rest(long)
    assert len(counted) == 19_999 and b"2" in counted and counted[-1] == b"1"


def test_many_at_a_time_each_with_its_own_answer(server: Server) -> None:
    """More than there are slots, all answered in full."""
    words = [f"word-{number}" for number in range(24)]
    answers = together([lambda word=word: server.predict("speller", {"word": word}).text for word in words])
    assert answers == words


def test_a_client_that_leaves_makes_room(server: Server) -> None:
    """Its job is dropped, with what the handler kept of it, and its slot is free."""
    leaving = [spell(server, "x" * 2_000_000) for _ in range(4)]
    assert all(listener.chunk() == b"x" for listener in leaving)
    for listener in leaving:
        listener.stream.close()
        listener.socket.close()
    until(lambda: server.predict("speller", {"word": "#"}).text == "1", "the others have been dropped")
    assert server.predict("speller", {"word": "?"}).text == "1"
    server.logged("Connection to client got closed; Removing job")


def test_a_step_that_raises_costs_those_in_it_and_none_after(server: Server) -> None:
    """A plain request gets its error, a stream breaks off, the worker goes on."""
    long = spell(server, "x" * 2_000_000)
    assert long.chunk() == b"x"
    assert server.predict("speller", {"word": "!"}).status_code == 503
    while (piece := long.chunk()) == b"x":
        pass
    assert piece is None
    assert server.predict("speller", {"word": "ok"}).text == "ok"


def test_a_drain_lets_streams_finish(server: Server) -> None:
    """SIGTERM ends the server when its live jobs are done."""
    listener = spell(server, "abc")
    server.terminate()
    assert rest(listener) == [b"a", b"b", b"c"]
    assert server.wait() == 0


def test_sequences_and_continuous_batching_go_together(start: Any, store: Store) -> None:
    """A job of a sequence goes to its worker and steps there with the others."""
    server = start("serve", store.mar("echo"), "--model-store", store.path, store=store)
    both = {**CONFIG, "sequenceBatching": True, "sequenceMaxIdleMSec": 60000, "maxNumSequence": 8,
            "maxSequenceJobQueueSize": 5}  # fmt: skip
    server.need("speller", "speller", config=json.dumps(both))

    def play(sequence: str) -> list[str]:
        headers = {"ts_request_sequence_id": sequence}
        return [server.predict("speller", {"word": sequence * 3}, headers=headers).text for _ in range(3)]

    assert together([lambda: play("a"), lambda: play("b")]) == [["aaa"] * 3, ["bbb"] * 3]
