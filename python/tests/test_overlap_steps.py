"""Handlers with three steps, each on a thread of its own, seen through the socket; without torch."""

from __future__ import annotations

import json
import threading

import pytest
import wire
from wire import bodies

from jitney.worker.gpus import GpuUse
from jitney.worker.step_times import StepTimes
from ts.torch_handler.stages import Launched, Prepared

STEPS = """
import threading

class Steps:
    class Launched:
        def __init__(self, text, started):
            self.text, self.started = text, started

        def wait(self):
            if self.text == "fail in wait":
                raise ValueError
            return (0.25, 0.125) if self.text == "measured" else None

    def initialize(self, context):
        self.kept = context
        self.held = self.most = 0
        self.lock = threading.Lock()
        self.begun, self.gone = threading.Event(), threading.Event()

    def batches_at_a_time(self):
        return 3

    def count(self, change):
        with self.lock:
            self.held += change
            self.most = max(self.most, self.held)

    def seen(self, step, text):
        if text == f"fail in {step}":
            raise ValueError
        if text == f"exit in {step}":
            raise SystemExit(3)
        self.kept.set_response_header(0, step, self.kept.get_request_id(0) + threading.current_thread().name)

    def begin(self, data, context):
        self.count(1)
        text = bytes(data[0]["body"]).decode()
        self.seen("begin", text)
        if text == "third":
            self.begun.set()
        return text

    def launch(self, text, context):
        self.seen("launch", text)
        if text == "first":
            self.begun.wait()
        if text == "second":
            self.gone.set()
        return text if text == "no wait" else self.Launched(text, text != "late")

    def finish(self, launched, context):
        text = getattr(launched, "text", launched)
        self.seen("finish", text)
        if text == "first":
            self.gone.wait()
        self.count(-1)
        return [{"text": text, "most": self.most}]

    def handle(self, data, context):
        raise NotImplementedError
"""


def numbered(*texts: str) -> bytes:
    """One batch of one request for each text; the ids of batch and request are its number."""
    items = ([wire.item([("body", "", text.encode())], request_id=f"n{at}-")] for at, text in enumerate(texts))
    return b"".join(wire.batch(one, at) for at, one in enumerate(items))


def read_answers(one, count: int) -> list[tuple[dict, dict]]:
    """The times and answers of so many batches, which come in order."""
    found = []
    for at in range(count):
        times, (kind, _, frame_id, payload) = one.read_timed()
        assert (kind, frame_id) == (wire.REPLY, at)
        found.append((times, wire.decode_reply(payload, 1)[0]))
    return found


def test_three_batches_are_in_their_steps_at_the_same_time(worker):
    one = worker(STEPS)
    # The first is in the model until the third is prepared, and is finished only when the second is in the model.
    one.send(numbered("first", "second", "third"))
    answers = [json.loads(reply["body"])["text"] for _, reply in read_answers(one, 3)]
    assert answers == ["first", "second", "third"]


def test_every_step_sees_its_own_batch_in_the_context_that_the_handler_keeps(worker):
    one = worker(STEPS)
    one.send(numbered("first", "second", "third"))
    names = []
    for at, (_, reply) in enumerate(read_answers(one, 3)):
        headers = dict(reply["headers"])
        assert all(value.startswith(f"n{at}-") for value in headers.values())
        names.append({step: value.removeprefix(f"n{at}-") for step, value in headers.items()})
    main = names[0]["launch"]
    assert names[0] == {"begin": main, "launch": main, "finish": "finish"}  # It was alone until the others came.
    assert names[1] == names[2] == {"begin": "begin", "launch": main, "finish": "finish"}


def test_a_batch_that_is_alone_needs_no_other_thread(worker):
    one = worker(STEPS)
    for number in range(20):
        (reply,) = one.ask([wire.item([("body", "", b"plain")], request_id="n-")], number)
        assert len(set(dict(reply["headers"]).values())) == 1
        assert dict(reply["headers"])["begin"] not in ("n-begin", "n-finish")


LOOKED_AT = (
    STEPS
    + """
    class Mark:
        looks = 0

        def query(self):
            self.looks += 1
            if self.text == "fail in query":
                raise ValueError
            if self.text == "until the next":
                return False
            return self.looks > 3

    def launch(self, text, context):
        launched = self.Launched(text, True)
        launched.done = self.Mark()
        launched.done.text = text
        return launched

    def finish(self, launched, context):
        return [{"looks": launched.done.looks}]
"""
)


def test_outputs_of_a_batch_that_is_alone_are_looked_for(worker):
    one = worker(LOOKED_AT)
    (reply,) = one.ask(bodies(b"plain"), 7)  # While nothing was held: that one is alone for sure.
    assert json.loads(reply["body"])["looks"] == 4
    assert one.ask(bodies(b"fail in query"), 8)["cause"] == "raised"
    assert json.loads(one.ask(bodies(b"until the next"), 9)[0]["body"])["looks"] > 1
    one.send(numbered("plain", "plain"))
    assert all(json.loads(reply["body"])["looks"] <= 4 for _, reply in read_answers(one, 2))


def test_no_more_batches_are_held_than_there_are_slots(worker):
    one = worker(STEPS)
    one.send(numbered(*["plain"] * 40))
    most = [json.loads(reply["body"])["most"] for _, reply in read_answers(one, 40)]
    assert max(most) <= 3


@pytest.mark.parametrize("step", ["begin", "launch", "wait", "finish"])
def test_a_failure_in_any_step_is_of_its_own_batch(worker, step):
    one = worker(STEPS)
    one.send(numbered("a", f"fail in {step}", "b"))
    assert one.read_timed()[1][0] == wire.REPLY
    failed = one.read()
    if step == "finish":  # The model had it, and so its times are known.
        assert failed[0] == wire.TIMES
        failed = one.read()
    assert (failed[0], failed[2]) == (wire.FAILED, 1)
    assert one.read_timed()[1][0] == wire.REPLY


@pytest.mark.parametrize("step", ["begin", "launch", "finish"])
def test_an_exit_in_any_step_ends_the_worker_after_the_batches_before_it(raw_worker, model, step):
    one = raw_worker()
    one.load(model(STEPS), "handler.py")
    one.read_control(wire.LOADED)
    one.send(numbered("a", f"exit in {step}", "b"))
    assert one.read_timed()[1][2] == 0
    assert one.ended()
    assert isinstance(one.end(), SystemExit)


def test_no_thread_is_left_when_the_server_is_gone(raw_worker, model):
    before = set(threading.enumerate())
    one = raw_worker()
    one.load(model(STEPS), "handler.py")
    one.read_control(wire.LOADED)
    one.send(numbered("a"))
    one.read_timed()
    started = set(threading.enumerate()) - before
    assert {"read", "begin", "finish"} <= {thread.name for thread in started}
    assert one.end() == 0
    for thread in started:
        thread.join(wire.PATIENCE_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize("text", ["plain", "no wait", "late", "measured"])
def test_the_worker_tells_how_long_preparing_and_the_model_took(worker, text):
    one = worker(STEPS)
    one.send(numbered(text))
    ((times, reply),) = read_answers(one, 1)
    assert json.loads(reply["body"])["text"] == text
    assert set(times) == {"prepare_us", "model_us"}
    if text == "measured":  # On the device it was prepared a quarter of a second ago, long before it came.
        assert times == {"prepare_us": 0, "model_us": 125_000}


def test_with_turns_the_model_has_the_gpu_until_its_outputs_are_there(raw_worker, model, tmp_path):
    lock = tmp_path / "gpu-0.lock"
    source = (
        STEPS
        + """
    def wait_in_turn(self):
        import fcntl, os
        file = os.open(PATH, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise RuntimeError("nobody has the GPU")
        except BlockingIOError:
            return None
        finally:
            os.close(file)

PATH = {path!r}
Steps.Launched.wait = Steps.wait_in_turn
"""
    )
    one = raw_worker()
    one.load(model(source.replace("{path!r}", repr(str(lock)))), "handler.py", gpu_id=0, gpu_turns=str(lock))
    one.read_control(wire.LOADED)
    one.send(numbered("a", "late", "b"))
    assert [json.loads(reply["body"])["text"] for _, reply in read_answers(one, 3)] == ["a", "late", "b"]


# -- times by themselves ----------------------------------------------------------------------------


def batch_times(began: float, prepared: float, outputs: float, measured=None) -> StepTimes:
    times = StepTimes(began)
    times.prepared = prepared
    times.got_outputs(outputs, measured)
    return times


def test_a_batch_alone_is_measured_from_its_first_byte_and_from_when_it_was_prepared():
    assert batch_times(1.0, 1.5, 3.5).told(StepTimes(0.0)) == {"prepare_us": 500_000, "model_us": 2_000_000}


def test_waiting_for_the_batch_before_is_not_counted():
    last = StepTimes(0.0)
    last.follow(batch_times(0.0, 2.0, 4.0))
    # It came at 1 but was prepared from 2 on, and was ready at 3 but in the model from 4 on.
    assert batch_times(1.0, 3.0, 5.0).told(last) == {"prepare_us": 1_000_000, "model_us": 1_000_000}


def test_a_batch_that_failed_has_no_times_and_was_never_in_the_model():
    last = StepTimes(0.0)
    last.follow(batch_times(0.0, 1.0, 2.0))
    failed = StepTimes(1.0)
    failed.prepared = 3.0
    assert failed.told(last) == {}
    last.follow(failed)
    assert batch_times(3.0, 4.0, 5.0).told(last) == {"prepare_us": 1_000_000, "model_us": 1_000_000}


def test_the_device_knows_better_when_a_batch_was_prepared():
    times = batch_times(1.0, 1.1, 4.0, (2.0, 0.5))
    assert times.told(StepTimes(0.0)) == {"prepare_us": 1_000_000, "model_us": 500_000}


class FakeMark:
    """An event of a GPU at some millisecond."""

    def __init__(self, at: float) -> None:
        self.at, self.waited = at, False

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, later: FakeMark) -> float:
        return later.at - self.at


def test_stock_handlers_say_what_the_device_has_measured():
    ready, began, done = FakeMark(500.0), FakeMark(700.0), FakeMark(1500.0)
    launched = Launched(Prepared([], None, {}, 0.0, ready), True, None, 0.0, done, began)
    assert launched.wait() == (1.0, 0.8) and done.waited
    assert Launched(Prepared([], None, {}, 0.0), True).wait() is None


# -- memory -----------------------------------------------------------------------------------------


class FakeCuda:
    cuda: FakeCuda
    asked = 0

    def is_initialized(self) -> bool:
        return True

    is_available = is_initialized

    def memory_reserved(self, gpu: int) -> int:
        self.asked += 1
        return 100 + gpu


def test_memory_of_the_gpu_is_told_at_most_once_a_second(monkeypatch):
    torch = FakeCuda()
    torch.cuda = torch
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)
    clock = iter([10.0, 10.5, 11.0, 11.9, 12.0])
    monkeypatch.setattr("jitney.worker.gpus.time.monotonic", lambda: next(clock))
    use = GpuUse(1)
    assert [use.bytes_to_tell() for _ in range(5)] == [101, None, 101, None, 101]
    assert torch.asked == 3


def test_without_cuda_there_is_no_memory_to_tell(raw_worker, model):
    one = raw_worker()
    one.load(model(STEPS), "handler.py", gpu_id=0)
    assert "gpu_memory_bytes" not in one.read_control(wire.LOADED)
    one.send(numbered("a"))
    assert "gpu_memory_bytes" not in one.read_timed()[0]
