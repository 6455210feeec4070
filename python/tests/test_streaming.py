"""Intermediate responses leave at once, one CHUNK each; the return value ends the stream."""

from __future__ import annotations

import json

import pytest
import wire

STREAMS = """
    from {module} import send_intermediate_predict_response

    def handle(data, context):
        if not data:
            return []
        if data[0]["body"] == b"stream":
            for part in range(2):
                send_intermediate_predict_response(
                    [f"part{{part}} of {{i}}" for i in range(len(data))], context.request_ids, "ok", 200, context)
            context.set_response_header(0, "x-late", "no")
        if data[0]["body"] == b"one":
            context.set_response_status(202, "wait", 1)
            send_intermediate_predict_response(["-", "only"], {{1: "r1"}}, "ok", 200, context)
        if data[0]["body"] == b"raise":
            send_intermediate_predict_response(["a"], {{0: "r0"}}, "ok", 200, context)
            raise ValueError
        if data[0]["body"] == b"object":
            send_intermediate_predict_response([object()], {{0: "r0"}}, "ok", 200, context)
        return ["end" for _ in data]
"""


@pytest.fixture
def streams(worker):
    return worker(STREAMS.format(module="ts.handler_utils.utils"))


def chunk(one):
    kind, count, frame_id, payload = one.read()
    assert (kind, frame_id) == (wire.CHUNK, 1)
    return [(p["position"], p["body"], p["headers"]) for p in wire.decode_chunk(payload, count)]


def last(one):
    kind, count, _, payload = one.read()
    return wire.decode_reply(payload, count) if kind == wire.REPLY else json.loads(payload)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("module", ["ts.handler_utils.utils", "ts.protocol.otf_message_handler"])
def test_every_intermediate_response_is_one_chunk_for_each_request(worker, module):
    one = worker(STREAMS.format(module=module))
    one.send(wire.batch(wire.bodies(b"stream", b"x")))
    head = [["ts_stream_next", "true"]]
    assert chunk(one) == [(0, b"part0 of 0", head), (1, b"part0 of 1", head)]
    assert chunk(one) == [(0, b"part1 of 0", []), (1, b"part1 of 1", [])]
    assert [(a["body"], dict(a["headers"])["ts_stream_next"]) for a in last(one)] == [(b"end", "false")] * 2
    assert one.ask(wire.bodies(b"x")) == [
        {"outcome": 0, "cause": 0, "status": 200, "phrase": "", "headers": [], "body": b"end"}
    ]


def test_a_piece_may_be_for_some_of_the_batch_only_and_brings_status_and_headers(streams):
    streams.send(wire.batch(wire.bodies(b"one", b"x")))
    kind, count, _, payload = streams.read()
    (piece,) = wire.decode_chunk(payload, count)
    assert (kind, piece["position"], piece["status"], piece["phrase"]) == (wire.CHUNK, 1, 202, "wait")
    assert [a["body"] for a in last(streams)] == [b"end", b"end"]


def test_a_handler_that_raises_after_a_piece_fails_its_batch(streams):
    streams.send(wire.batch(wire.bodies(b"raise")))
    assert chunk(streams)[0][1] == b"a"
    assert last(streams)["cause"] == "raised"


def test_a_piece_without_a_byte_form_fails_the_batch(streams):
    assert streams.ask(wire.bodies(b"object"))["cause"] == "raised"


def test_streaming_from_a_thread_of_the_handler(worker):
    one = worker("""
        import threading
        from ts.handler_utils.utils import send_intermediate_predict_response

        def handle(data, context):
            if not data:
                return []
            def stream():
                for k in range(100):
                    send_intermediate_predict_response([str(k)], context.request_ids, "ok", 200, context)
            thread = threading.Thread(target=stream)
            thread.start()
            thread.join()
            return ["end"]
    """)
    one.send(wire.batch(wire.bodies(b"x")))
    assert [chunk(one)[0][1] for _ in range(100)] == [b"%d" % k for k in range(100)]
    assert last(one)[0]["body"] == b"end"


HOLDS = """
    from ts.handler_utils.utils import send_intermediate_predict_response

    def handle(data, context):
        if not data:
            return []
        if data[0]["body"] != b"stream":
            return ["plain" for _ in data]
        send_intermediate_predict_response(["a"] * len(data), context.request_ids, "ok", 200, context)
        while not context.cancelled(1):
            pass
        send_intermediate_predict_response(["b"] * len(data), context.request_ids, "ok", 200, context)
        while not context.cancelled():
            pass
        send_intermediate_predict_response(["c"] * len(data), context.request_ids, "ok", 200, context)
"""


def test_who_has_left_gets_no_more_and_a_batch_of_nobody_ends(worker):
    one = worker(HOLDS)
    one.send(wire.batch(wire.bodies(b"stream", b"x")))
    assert [position for position, *_ in chunk(one)] == [0, 1]
    one.send(wire.batch(wire.bodies(b"next"), frame_id=2))  # It waits for its turn, whatever is read before.
    one.send(wire.control(wire.CANCEL, {"positions": [1]}, frame_id=1))
    assert [position for position, *_ in chunk(one)] == [0]
    one.send(wire.control(wire.CANCEL, {"positions": [0]}, frame_id=1))
    assert [a["body"] for a in last(one)] == [b"", b""]
    assert [a["body"] for a in last(one)] == [b"plain"]
    assert one.ask(wire.bodies(b"x"))[0]["body"] == b"plain"
