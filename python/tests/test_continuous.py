"""Continuous batching: one step of all live jobs at a time."""

from __future__ import annotations

import json

import pytest
import wire

HANDLER = """

    from ts.handler_utils.utils import send_intermediate_predict_response


    class Counter:
        def initialize(self, context):
            context.cache = {}

        def handle(self, data, context):
            out = []
            for idx, (row, rid) in enumerate(zip(data, context.request_ids.values())):
                if rid not in context.cache:
                    words = bytes(row["body"]).decode().split()
                    if words[0] == "describe":
                        return ["described " + str(len(data))]
                    context.cache[rid] = {"left": int(words[1]), "order": words[0], "seen": 0}
                job = context.cache[rid]
                assert (row == {}) == (job["seen"] > 0), row
                job["left"] -= 1
                job["seen"] += 1
                if job["order"] == "raise":
                    raise ValueError("no")
                if job["order"] == "badstop" and job["left"] == 0:
                    job["order"] = "broken"
                if job["order"] == "extra":
                    send_intermediate_predict_response(["+"] * len(data), {idx: rid}, "ok", 200, context)
                out.append({"object": object()}["object"] if job["order"] == "object" and job["left"] == 0
                           else f"{rid}:{job['left']}of{len(data)}")
                context.set_response_header(idx, "x-step", str(job["seen"]))
            context.stopping_criteria = [self.criterion(context, rid) for rid in context.request_ids.values()]
            if any(job["order"] == "short" for job in context.cache.values()):
                return out[:-1]
            return out

        def criterion(self, context, rid):
            def stop(output):
                job = context.cache[rid]
                if job["order"] == "broken":
                    raise RuntimeError("criterion")
                if job["order"] == "whole":
                    return None
                if job["left"] == 0:
                    del context.cache[rid]
                    return True
                return False
            return stop
"""


def start(worker):
    return worker(HANDLER, mode="continuous", batch_size=4)


def frame(body, frame_id, headers=()):
    return wire.batch([wire.item([("body", "", body)], headers, request_id=f"r{frame_id}")], frame_id)


def ask(one, body, frame_id, headers=()):
    one.send(frame(body, frame_id, headers))


def receive(one):
    """Kind, batch, body and headers of the next frame."""
    kind, count, frame_id, payload = one.read()
    if kind == wire.FAILED:
        return kind, frame_id, json.loads(payload)["cause"], {}
    assert count == 1
    item = (wire.decode_chunk if kind == wire.CHUNK else wire.decode_reply)(payload, count)[0]
    return kind, frame_id, item["body"].decode(), dict(item["headers"])


def test_a_job_streams_a_piece_per_step_and_ends_when_its_criterion_says_so(worker):
    one = start(worker)
    ask(one, b"count 3", 1)
    got = [receive(one) for _ in range(3)]
    assert [(kind, body) for kind, _, body, _ in got] == [
        (wire.CHUNK, "r1:2of1"), (wire.CHUNK, "r1:1of1"), (wire.REPLY, "r1:0of1")]  # fmt: skip
    assert got[0][3] == {"ts_stream_next": "true", "x-step": "1"}
    assert got[1][3] == {} and got[2][3] == {"ts_stream_next": "false", "x-step": "3"}


def test_a_job_that_ends_with_its_first_step_has_a_plain_answer(worker):
    one = start(worker)
    ask(one, b"count 1", 1)
    assert receive(one)[:3] == (wire.REPLY, 1, "r1:0of1")
    ask(one, b"whole 5", 2)
    kind, _, body, headers = receive(one)
    assert (kind, body, "ts_stream_next" in headers) == (wire.REPLY, "r2:4of1", False)


def read_all(one, batches):
    """What each batch got until all have their last word."""
    got = {batch: [] for batch in batches}
    open_batches = set(batches)
    while open_batches:
        kind, batch, body, _ = receive(one)
        got[batch].append(body)
        if kind != wire.CHUNK:
            open_batches.discard(batch)
    return got


def test_jobs_join_between_steps_and_end_when_they_are_complete(worker):
    one = start(worker)
    # Both are there before the first step ends, however slow this process is.
    one.send(frame(b"count 2000", 1) + frame(b"count 2", 2))
    got = read_all(one, [1, 2])
    assert got[2] == ["r2:1of2", "r2:0of2"]
    assert len(got[1]) == 2000 and "r1:0of1" in got[1][-1]
    assert sum("of2" in body for body in got[1]) == 2


def test_a_cancelled_job_drops_out_with_what_the_handler_kept_of_it(worker):
    one = start(worker)
    ask(one, b"count 1000000", 1)
    receive(one)
    one.send(wire.control(wire.CANCEL, frame_id=1))
    while (received := receive(one))[0] == wire.CHUNK:
        pass
    assert received[:3] == (wire.REPLY, 1, "")
    one.send(wire.control(wire.CANCEL, frame_id=1))  # It may cross with the last word.
    ask(one, b"count 2", 1)  # The same request id: nothing is left of the first.
    assert read_all(one, [1]) == {1: ["r1:1of1", "r1:0of1"]}


@pytest.mark.parametrize(("order", "cause"), [(b"raise 5", "raised"), (b"short 5", "wrong-length")])
def test_a_failed_step_fails_its_jobs_and_no_later_ones(worker, order, cause):
    one = start(worker)
    ask(one, order, 1)
    assert receive(one)[:3] == (wire.FAILED, 1, cause)
    ask(one, b"count 1", 2)
    assert receive(one)[:3] == (wire.REPLY, 2, "r2:0of1")


def test_a_criterion_that_raises_ends_its_own_job_only(worker):
    one = start(worker)
    ask(one, b"count 300", 1)
    receive(one)
    ask(one, b"badstop 1", 2)
    got = read_all(one, [1, 2])
    assert got[2] == ["raised"] and "r1:0of1" in got[1][-1]


def test_an_output_without_bytes_fails_alone_and_breaks_a_stream_off(worker):
    one = start(worker)
    ask(one, b"object 1", 1)
    kind, _, body, _ = receive(one)
    assert (kind, body) == (wire.REPLY, "Unsupported model output data type.")
    ask(one, b"object 2", 2)
    assert [receive(one)[:2], receive(one)[:2]] == [(wire.CHUNK, 2), (wire.FAILED, 2)]


def test_a_handler_may_send_more_pieces_by_itself(worker):
    one = start(worker)
    ask(one, b"extra 1", 1)
    assert [receive(one)[:3], receive(one)[:3]] == [(wire.CHUNK, 1, "+"), (wire.REPLY, 1, "r1:0of1")]


def test_a_description_is_answered_apart_from_the_live_jobs(worker):
    one = start(worker)
    ask(one, b"count 300", 1)
    receive(one)
    ask(one, b"describe", 2, [("describe", "True")])
    assert read_all(one, [1, 2])[2] == ["described 1"]


def test_stop_waits_for_live_jobs_and_the_end_of_the_stream_does_not(worker):
    one = start(worker)
    ask(one, b"count 3", 1)
    one.send(wire.control(wire.STOP))
    assert [receive(one)[0] for _ in range(3)] == [wire.CHUNK, wire.CHUNK, wire.REPLY]
    assert one.ended() and one.end() == 0

    one = start(worker)
    ask(one, b"count 1000000000", 1)
    receive(one)
    assert one.end() == 0


def test_an_unexpected_frame_ends_the_worker(worker):
    one = start(worker)
    one.send(wire.control(wire.LOADED))
    assert one.ended()
