"""Sequences as clients use them: sticky, in order, bounded, and alive after a worker's death."""

from __future__ import annotations

import json
import os
import queue
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from google.protobuf import message_factory

from harness.archives import Store
from harness.client import later, together
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from harness.wait import until
from test_grpc import INFERENCE, POOL, Stub, address
from test_sources import torchserve

ID = "ts_request_sequence_id"


def config(**more: Any) -> str:
    """A model-config.yaml for sequences."""
    settings = {
        "minWorkers": 1, "maxWorkers": 1, "batchSize": 4, "maxBatchDelay": 5, "sequenceBatching": True,
        "sequenceMaxIdleMSec": 60000, "maxNumSequence": 8, "maxSequenceJobQueueSize": 10,
    }  # fmt: skip
    return json.dumps({**settings, **more})


@pytest.fixture
def server(start: Any, store: Store) -> Server:
    """A server to register models with."""
    return start("serve", store.mar("echo"), "--model-store", store.path, store=store)


def add(server: Server, name: str = "rememberer", workers: int = 1, **more: Any) -> str:
    """Registers a model that keeps sequences."""
    settings = config(minWorkers=workers, maxWorkers=workers, **more)
    return server.need(name, "rememberer", config=settings, workers=workers)


def say(server: Server, model: str, sequence: str | None, order: str = "x") -> requests.Response:
    """One request of a sequence."""
    return server.predict(model, order.encode(), headers={ID: sequence} if sequence else None)


def test_sequences_are_counted_apart_and_in_order(server: Server) -> None:
    """Each sequence has its own count, on one worker, whoever shares its batches."""
    model = add(server, workers=2)

    def play(sequence: str) -> list[dict]:
        return [say(server, model, sequence).json() for _ in range(5)]

    plays = together([lambda name=name: play(name) for name in ("a", "b", "c", "d")])
    for name, answers in zip("abcd", plays):
        assert [(it["id"], it["count"], it["start"]) for it in answers] == [(name, k, None) for k in range(1, 6)]
        assert len({it["pid"] for it in answers}) == 1
    assert sorted(answers[0]["pid"] for answers in plays).count(plays[0][0]["pid"]) == 2


def test_a_request_without_an_id_begins_a_sequence(server: Server) -> None:
    """The handler is told the new id and that it is a beginning; the id can be used to go on."""
    model = add(server)
    first = say(server, model, None).json()
    assert first["id"].startswith("ts-seq-") and (first["count"], first["start"]) == (1, "true")
    assert say(server, model, first["id"]).json()["count"] == 2


def test_the_headers_can_have_other_names(start: Any, store: Store, tmp_path: Path) -> None:
    """One key of the configuration renames a header for clients, server and handler alike."""
    store.mar("rememberer", config=config())
    names = "ts_header_key_sequence_id=x-session\nts_header_key_sequence_end=x-over\n"
    server = torchserve(start, tmp_path, store, names)
    server.register("rememberer.mar")

    def ask(order: str, **headers: str) -> dict[str, Any]:
        return server.predict("rememberer", order.encode(), headers=headers).json()

    told = [ask("x", **{"x-session": "a"}), ask("x", **{"x-session": "a"}), ask("x", **{ID: "a"})]
    assert [(it["id"], it["count"]) for it in told[:2]] == [("a", 1), ("a", 2)]
    assert told[2]["id"].startswith("ts-seq-"), "the usual name means nothing here"
    assert ask("end", **{"x-session": "a"})["id"] == "a"
    server.logged("rememberer")


STEPPER = """
import time

class Stepper:
    def initialize(self, context):
        context.cache, self.cancelled = {}, set()

    def handle(self, data, context):
        context.stopping_criteria = [self.judge(context, index) for index in range(len(data))]
        return [self.step(context, index, row) for index, row in enumerate(data)]

    def step(self, context, index, row):
        request, sequence = context.get_request_id(index), context.get_sequence_id(index)
        if request not in context.cache:
            context.cache[request] = bytes(row.get("data") or row["body"]).decode()
        if context.cache[request] == "cancel":
            self.cancelled.add(sequence)
        time.sleep(0.01)
        return context.cache[request]

    def judge(self, context, index):
        request, sequence = context.get_request_id(index), context.get_sequence_id(index)

        def over(answer):
            if answer == "stream":
                return sequence in self.cancelled
            return None

        return over
"""


def test_a_stream_can_be_cancelled_by_another_request_of_its_sequence(server: Server) -> None:
    """Step by step, requests of one sequence are worked on together, so one can be about another."""
    settings = config(continuousBatching=True, batchSize=2)
    server.register(server.store.mar("stepper", source=STEPPER, config=settings))
    url = server.url("/predictions/stepper")
    with requests.post(url, data=b"stream", headers={ID: "a"}, stream=True, timeout=120) as stream:
        pieces = stream.iter_content(chunk_size=None)
        assert next(pieces).startswith(b"stream")
        assert say(server, "stepper", "a", "cancel").text == "cancel"
        assert not b"".join(pieces).replace(b"stream", b"")


def test_bounds_are_rejections_with_a_reason(server: Server, tmp_path: Path) -> None:
    """Too many sequences and too many waiting requests are told apart, and may be tried again."""
    model = add(server, maxNumSequence=1, maxSequenceJobQueueSize=1)
    gate = tmp_path / "gate"
    hold = later(lambda: say(server, model, "a", f"wait {gate}"))
    until(lambda: server.metric("jitney_batches_total", model) >= 1, "the first is under way")
    waits = later(lambda: say(server, model, "a"))
    until(lambda: server.describe(model)["jobQueueStatus"]["pendingRequests"] == 1, "the second waits")
    full, many = say(server, model, "a"), say(server, model, "b")
    gate.touch()
    assert (full.status_code, many.status_code) == (503, 503)
    assert "maxSequenceJobQueueSize" in full.json()["message"] and "maxNumSequence" in many.json()["message"]
    assert full.headers["retry-after"]
    assert [hold.result(20).json()["count"], waits.result(20).json()["count"]] == [1, 2]


def test_the_handler_ends_a_sequence(server: Server) -> None:
    """Its response header makes room for another sequence at once."""
    model = add(server, maxNumSequence=1)
    assert say(server, model, "a").json()["count"] == 1
    assert say(server, model, "b").status_code == 503
    assert say(server, model, "a", "end").json()["count"] == 2
    assert say(server, model, "b").json()["count"] == 1


def test_an_idle_sequence_makes_room(server: Server) -> None:
    """After sequenceMaxIdleMSec without a request the place is free."""
    model = add(server, maxNumSequence=1, sequenceMaxIdleMSec=200)
    assert say(server, model, "a").json()["count"] == 1
    until(lambda: say(server, model, "b").status_code == 200, "the idle sequence has ended")
    late = say(server, model, "a")
    assert late.status_code == 503 and "sequence_expired" in late.text, "nobody remembers what came before"


def test_in_torchserve_a_sequence_goes_on_after_an_idle_gap(start: Any, store: Store, tmp_path: Path) -> None:
    """Its own example has an idle time of 10 ms, and people type its commands."""
    store.mar("rememberer", config=config(maxNumSequence=1, sequenceMaxIdleMSec=10))
    server = torchserve(start, tmp_path, store)
    server.register("rememberer.mar")
    for sequence in ("a", "b", "a"):
        until(lambda name=sequence: say(server, "rememberer", name).ok, "the sequence before has ended")


def test_a_sequence_outlives_its_worker(server: Server) -> None:
    """The request under way fails with a clear error; the next one begins anew, and says so to the handler."""
    model = add(server)
    first = say(server, model, "a").json()
    assert say(server, model, "a", "exit").status_code == 500
    after = say(server, model, "a").json()
    assert (after["count"], after["start"]) == (1, "true") and after["pid"] != first["pid"]
    assert say(server, model, "a").json()["count"] == 2
    os.kill(after["pid"], signal.SIGKILL)
    until(lambda: after["pid"] not in server.ready(model).values() and server.ready(model), "a new worker is up")
    assert say(server, model, "a").json()["count"] == 1


def test_a_failure_of_the_handler_does_not_end_a_sequence(server: Server) -> None:
    """Nothing is tried again: a sequence must not count twice."""
    model = add(server)
    assert say(server, model, "a").json()["count"] == 1
    assert say(server, model, "a", "raise").status_code == 503
    assert say(server, model, "a").json()["count"] == 3


# -- gRPC ---------------------------------------------------------------------------------------


class Talk:
    """A StreamPredictions2 call."""

    def __init__(self, channel: grpc.Channel) -> None:
        method = POOL.FindServiceByName(INFERENCE).FindMethodByName("StreamPredictions2")
        self.request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        self.call = channel.stream_stream(
            f"/{INFERENCE}/StreamPredictions2",
            request_serializer=self.request.SerializeToString,
            response_deserializer=response.FromString,
        )

    def message(self, model: str, order: str, sequence: str | None = None, **more: bytes) -> Any:
        fields = {"sequence_id": sequence} if sequence else {}
        return self.request(model_name=model, input={"data": order.encode(), **more}, **fields)


@pytest.fixture
def talk(server: Server) -> Iterator[Talk]:
    """The way to talk to the server."""
    with grpc.insecure_channel(address(server, "inference")) as channel:
        yield Talk(channel)


def counts(answers: Any) -> list[tuple[str, int]]:
    """Sequence and count of each answer."""
    return [(doc["id"], doc["count"]) for doc in (json.loads(answer.prediction) for answer in answers)]


def test_a_stream_is_answered_message_by_message(server: Server, talk: Talk) -> None:
    """Each answer comes while the stream is open, and names its sequence."""
    model, todo = add(server), queue.Queue()
    stream = talk.call(iter(todo.get, None), timeout=120)
    for number in range(1, 4):
        todo.put(talk.message(model, "x", "s"))
        answer = next(stream)
        assert (counts([answer]), answer.sequence_id) == ([("s", number)], "s")
    todo.put(None)
    assert list(stream) == []


def test_a_client_that_stops_sending_gets_every_answer(server: Server, talk: Talk) -> None:
    """Also more of them than may wait, since the stream itself holds them back."""
    model = add(server, maxSequenceJobQueueSize=1)
    messages = [talk.message(model, "x", "s") for _ in range(20)]
    assert counts(talk.call(iter(messages), timeout=120)) == [("s", k) for k in range(1, 21)]


def test_sequences_of_one_stream_go_side_by_side(server: Server, talk: Talk, tmp_path: Path) -> None:
    """A sequence that is held up does not hold up the others."""
    model, gate = add(server, workers=2), tmp_path / "gate"
    messages = [talk.message(model, f"wait {gate}", "slow"), talk.message(model, "x", "fast")]
    stream = talk.call(iter(messages), timeout=120)
    assert counts([next(stream)]) == [("fast", 1)]
    gate.touch()
    assert counts(stream) == [("slow", 1)]


def test_messages_without_an_id_are_one_sequence(server: Server, talk: Talk) -> None:
    """The stream's own, until a message says that it starts another."""
    model = add(server)
    messages = [
        talk.message(model, "x"),
        talk.message(model, "x"),
        talk.message(model, "x", ts_request_sequence_start=b""),
    ]
    answers = list(talk.call(iter(messages), timeout=120))
    (first, one), (second, two), (third, three) = counts(answers)
    assert first == second != third and first.startswith("ts-seq-")
    assert (one, two, three) == (1, 2, 1)
    assert [answer.sequence_id for answer in answers] == [first, second, third]


def test_what_goes_wrong_is_said_inside_the_stream(server: Server, talk: Talk) -> None:
    """An unknown model or a failing handler costs one message, not the stream."""
    model = add(server)
    messages = [talk.message("ghost", "x", "s"), talk.message(model, "raise", "s"), talk.message(model, "x", "s")]
    ghost, failed, fine = talk.call(iter(messages), timeout=120)
    assert ghost.status.code and "Model not found: ghost" in ghost.status.message
    assert ghost.status.details[0].type_url.endswith("google.rpc.ErrorInfo")
    assert b"ModelNotFoundException" in ghost.status.details[0].value
    assert (failed.status.code, failed.status.message) == (grpc.StatusCode.UNAVAILABLE.value[0], "Prediction failed")
    assert counts([fine]) == [("s", 2)]


def test_rest_and_grpc_share_a_sequence(server: Server, talk: Talk) -> None:
    """A sequence is its id, through whichever door its requests come."""
    model = add(server)
    assert counts(talk.call(iter([talk.message(model, "x", "s")]), timeout=120)) == [("s", 1)]
    assert say(server, model, "s").json()["count"] == 2
    with grpc.insecure_channel(address(server, "inference")) as channel:
        answer, _ = Stub(channel, INFERENCE)("Predictions", model_name=model, sequence_id="s", input={"data": b"x"})
    assert counts([answer]) == [("s", 3)]


TALLY = """
import jitney


@jitney.model(max_sequences=8, max_sequence_queue=4, sequence_max_idle_ms=3_600_000, workers=2)
class Tally:
    def setup(self):
        self.sums = {}

    @jitney.batch(max_batch_size=4)
    def predict(self, x: list[int], requests: list[jitney.Request]) -> list[int]:
        return [self.add(one, request) for one, request in zip(x, requests)]

    def add(self, x, request):
        kept = 0 if request.starts_sequence else self.sums.get(request.sequence_id, 0)
        self.sums[request.sequence_id] = kept + x
        return self.sums.pop(request.sequence_id) if request.ends_sequence else kept + x
"""


def test_a_definition_keeps_sequences_over_every_protocol(start: Any, tmp_path: Path) -> None:
    (tmp_path / "tally.py").write_text(TALLY)
    server = start("serve", "tally.py:Tally", cwd=tmp_path)
    http = triton_http.InferenceServerClient(server.url("").removeprefix("http://").rstrip("/"))
    rpc = triton_grpc.InferenceServerClient(address(server, "inference"))

    def plain(number: int, **said: Any) -> int:
        headers = {f"ts_request_{name}": str(value).lower() for name, value in said.items()}
        return server.predict("Tally", {"x": number}, headers=headers).json()

    def tensor(kind: Any, client: Any, number: int, **said: Any) -> int:
        given = kind.InferInput("x", [1], "INT64")
        given.set_data_from_numpy(np.array([number]))
        return int(client.infer("Tally", [given], **said).as_numpy("output")[0])

    def handle(number: int, **said: Any) -> int:
        named = {f"ts_request_{name}": str(value).lower() for name, value in said.items()}
        return tally.options(headers=named).remote(number).result(ASK_SECONDS)

    session = jitney.connect(server.url(""))
    tally = session.model("Tally")
    ways = [plain, partial(tensor, triton_http, http), partial(tensor, triton_grpc, rpc), handle]
    for number, ask in enumerate(ways, 1):
        assert ask(1, sequence_id=str(number), sequence_start=True) == 1
    # Each goes on over another protocol than it began with.
    for number, ask in enumerate([*ways[1:], ways[0]], 1):
        assert ask(number, sequence_id=str(number)) == 1 + number
    for number, ask in enumerate([*ways[2:], *ways[:2]], 1):
        assert ask(10, sequence_id=str(number), sequence_end=True) == 11 + number
        assert ask(5, sequence_id=str(number)) == 5, "it has begun again"
    session.close()
    http.close()
    rpc.close()
