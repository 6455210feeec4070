"""Coroutine handlers: many batches at a time, answered as they are ready."""

from __future__ import annotations

import wire

HANDLER = """
    import asyncio
    import sys
    from ts.handler_utils.utils import send_intermediate_predict_response

    class Patient:
        def initialize(self, context):
            self.gates = {}

        async def handle(self, data, context):
            word = bytes(data[0]["body"]).decode()
            if word.startswith("wait "):
                await self.gates.setdefault(word[5:], asyncio.Event()).wait()
            if word.startswith("open "):
                self.gates.setdefault(word[5:], asyncio.Event()).set()
            if word == "raise":
                raise ValueError
            if word == "exit":
                sys.exit(3)
            if word == "stream":
                send_intermediate_predict_response(["piece"], context.request_ids, "ok", 200, context)
                await asyncio.sleep(0)
            return [word + " " + context.get_request_id(0)]
"""


STREAMS_ON = """
                while not context.cancelled():
                    await asyncio.sleep(0)
                send_intermediate_predict_response(["more"], context.request_ids, "ok", 200, context)"""


def ask(one, word, frame_id):
    one.send(wire.batch([wire.item([("body", "", word)], request_id=f"r{frame_id}")], frame_id))


def answer(one):
    kind, count, frame_id, payload = one.read()
    body = wire.decode_reply(payload, count)[0]["body"] if kind == wire.REPLY else None
    return kind, frame_id, body


def start(worker):
    return worker(HANDLER, mode="concurrent")


def test_batches_overlap_and_each_keeps_its_own_context(worker):
    one = start(worker)
    ask(one, b"wait a", 1)
    ask(one, b"wait b", 2)
    ask(one, b"open b", 3)
    got = {answer(one), answer(one)}
    assert got == {(wire.REPLY, 3, b"open b r3"), (wire.REPLY, 2, b"wait b r2")}
    ask(one, b"open a", 4)
    assert {answer(one), answer(one)} == {(wire.REPLY, 4, b"open a r4"), (wire.REPLY, 1, b"wait a r1")}


def test_a_failing_batch_does_not_affect_the_others(worker):
    one = start(worker)
    ask(one, b"wait a", 1)
    ask(one, b"raise", 2)
    assert answer(one)[:2] == (wire.FAILED, 2)
    ask(one, b"open a", 3)
    assert {answer(one)[:2], answer(one)[:2]} == {(wire.REPLY, 3), (wire.REPLY, 1)}


def test_pieces_go_to_their_own_batch(worker):
    one = start(worker)
    ask(one, b"wait a", 1)
    ask(one, b"stream", 2)
    kind, count, frame_id, payload = one.read()
    assert (kind, frame_id, wire.decode_chunk(payload, count)[0]["body"]) == (wire.CHUNK, 2, b"piece")
    assert answer(one) == (wire.REPLY, 2, b"stream r2")


def test_stop_waits_for_begun_batches_and_the_end_of_the_stream_does_not(worker):
    one = start(worker)
    ask(one, b"wait a", 1)
    ask(one, b"open a", 2)
    one.send(wire.control(wire.STOP))
    assert {answer(one)[1], answer(one)[1]} == {1, 2}
    assert one.ended() and one.end() == 0

    one = start(worker)
    ask(one, b"wait for ever", 1)
    assert one.end() == 0


def test_a_handler_that_exits_ends_its_process(worker):
    one = start(worker)
    ask(one, b"exit", 1)
    assert one.ended()
    assert isinstance(one.end(), SystemExit)


def test_a_plain_function_works_too(worker):
    one = worker("def handle(data, context):\n    return ['plain' for _ in data or ()]\n", mode="concurrent")
    ask(one, b"x", 1)
    assert answer(one) == (wire.REPLY, 1, b"plain")


def test_a_coroutine_function_is_initialised_too(worker):
    one = worker(
        "ready = []\nasync def handle(data, context):\n"
        "    if data is None:\n        ready.append(1)\n        return\n    return [str(ready)]\n",
        mode="concurrent",
    )
    ask(one, b"x", 1)
    assert answer(one) == (wire.REPLY, 1, b"[1]")


ONE_LOOP = """
    import asyncio

    class Engine:
        def initialize(self, context):
            self.loop = asyncio.get_event_loop()
            self.queue = asyncio.Queue()
            self.worker = self.loop.create_task(self.work())
            self.ready = self.loop.run_until_complete(self.load())

        async def load(self):
            return asyncio.get_running_loop() is self.loop

        async def work(self):
            while True:
                word, answered = await self.queue.get()
                answered.set_result(word.upper())

        async def handle(self, data, context):
            answered = asyncio.get_running_loop().create_future()
            await self.queue.put((bytes(data[0]["body"]).decode(), answered))
            return [f"{await answered} {self.ready}"]
"""


def test_a_handler_is_called_in_the_loop_in_which_it_was_initialised(worker):
    one = worker(ONE_LOOP, mode="concurrent")
    ask(one, b"a", 1)
    assert answer(one) == (wire.REPLY, 1, b"A True")
    assert one.end() == 0


def test_an_archives_coroutine_is_asked_to_end_by_what_it_sends(worker):
    one = worker(HANDLER.replace("await asyncio.sleep(0)", STREAMS_ON), mode="concurrent")
    ask(one, b"stream", 1)
    assert answer(one)[:2] == (wire.CHUNK, 1)
    one.send(wire.control(wire.CANCEL, frame_id=1))
    assert answer(one) == (wire.REPLY, 1, b"")


def test_a_coroutine_that_is_cancelled_by_its_own_code_has_failed(worker):
    one = worker(HANDLER.replace("raise ValueError", "raise asyncio.CancelledError"), mode="concurrent")
    ask(one, b"raise", 1)
    assert answer(one)[:2] == (wire.FAILED, 1)
    ask(one, b"next", 2)
    assert answer(one) == (wire.REPLY, 2, b"next r2")
