"""Several batches at a time, one step apart: while this one is in the model, the next one is prepared and the last
one answered.

For handlers that allow it (`batches_at_a_time`) and have their work in steps: `begin` prepares a batch, `launch` gives
it to the model, `finish` makes the answers. A thread reads frames, one begins, the main thread launches (it is the
one that loaded the model and warmed it up), and one finishes and answers, in the order of arrival. The context shows
each of them its own batch, so nothing of one batch can reach another. A handler without `launch` has the model in its
`finish`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from jitney.gpu.device import enter_device, keep_device
from jitney.torchserve.failures import BatchFailure
from jitney.torchserve.threads import THREADS
from jitney.worker.batch import BatchDecoder
from jitney.worker.context import WorkerContext
from jitney.worker.intake import HeldBatch, Incoming, Intake
from jitney.worker.loader import LoadedModel
from jitney.worker.protocol import Bytes, FrameReader
from jitney.worker.run import answer_from, failure_from, send_answer
from jitney.worker.step_times import StepTimes, now
from jitney.worker.writer import FrameWriter

SWITCH_SECONDS = 0.0005
"""How long a step may keep the interpreter while another one wants it. With Python's 5 ms the model would wait for
whoever builds answers."""

LOOK_SECONDS = 0.01
"""How long the main thread looks for the outputs of a batch that is alone, before it sleeps until they are there."""

Step = Callable[[Any, WorkerContext], Any]


class Stages(NamedTuple):
    """A handler's work in steps, and how many batches it may hold."""

    begin: Step
    launch: Step
    finish: Step
    slots: int


def stages_of(model: LoadedModel) -> Stages | None:
    """The steps of a model whose handler lets them overlap."""
    service = model.service
    if model.mode != "single" or service is None or not callable(getattr(service, "batches_at_a_time", None)):
        return None
    slots = int(service.batches_at_a_time())
    if slots <= 1:
        return None
    if callable(getattr(service, "launch", None)):
        return Stages(service.begin, service.launch, service.finish, slots)
    return Stages(service.begin, service.finish, _as_it_is, slots)


def _as_it_is(outputs: Any, _: WorkerContext) -> Any:
    return outputs


class OverlappedBatches:
    """The batches that one worker holds, at most one for each of its slots.

    An error, or the end of the stream, takes the same way as the batches, behind those that came before it. The
    queues need no bound of their own, so nobody ever waits to put something in. A batch that comes when there is no
    other goes through all its steps on the main thread, unless another one comes meanwhile.
    """

    def __init__(self, writer: FrameWriter, reader: FrameReader, model: LoadedModel, stages: Stages) -> None:
        self._writer = writer
        self._model = model._replace(gpu=None)
        """Until it serves it tells nothing of its GPU."""
        self._context = model.context
        self._stages = stages
        self.slots = stages.slots
        self._intake = Intake(reader, BatchDecoder(model.reader_for), model.context.clients, stages.slots)
        self._received: SimpleQueue[Incoming] = SimpleQueue()
        self._prepared: SimpleQueue[Incoming] = SimpleQueue()
        """Batches for the main thread; one that is alone has not been prepared."""
        self._launched: SimpleQueue[HeldBatch | None] = SimpleQueue()
        self._beginning = threading.Lock()
        self._answered_alone = 0
        self._answered_behind = 0
        """Batches that the main thread answered, and those that the other one did."""
        self._last = StepTimes(0.0)
        self._error: BaseException | None = None
        self._context.show_each_thread_its_own()
        keep_device()
        self._finishing = threading.Thread(target=self._finish_all, name="finish", daemon=True)
        self._finishing.start()
        threading.Thread(target=self._begin_all, name="begin", daemon=True).start()
        self._reading = threading.Thread(target=lambda: self._intake.take_all(self._give), name="read", daemon=True)

    def run_made_up(self, batches: Sequence[HeldBatch]) -> None:
        """Runs batches that nobody sent: one on this thread, several on those of the steps; raises if one fails."""
        writer, self._writer = self._writer, _Unsent(self._prepared)
        try:
            for held in map(self._intake.take, batches):
                (self._run_alone if len(batches) == 1 else self._received.put)(held)
            unanswered = len(batches)
            while unanswered:
                received = self._prepared.get()
                if isinstance(received, BaseException):
                    raise received
                if received is None:
                    unanswered -= 1
                else:
                    self._launch(received)
                    self._launched.put(received)
        finally:
            self._writer = writer
        for held in batches:
            if held.failure is not None:
                raise RuntimeError(held.failure.message)

    def start_reading(self) -> None:
        """From now on batches may come."""
        self._reading.start()

    def run(self, model: LoadedModel) -> None:
        """The main thread's part, in order until the server stops or is gone: launches, and ends the others."""
        self._model = model
        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            try:
                self._launch_all()
            finally:  # What was launched is answered, whatever comes after it.
                self._launched.put(None)
                self._finishing.join()
            if self._error is not None:
                raise self._error
        finally:
            sys.setswitchinterval(interval)
            # A blocked read keeps the socket open even after it was closed; the server must see the end.
            self._writer.shut_down()
            self._intake.end(self._reading)
            self._received.put(None)

    def _held(self) -> int:
        return self._intake.taken - self._answered_alone - self._answered_behind

    def _is_idle(self) -> bool:
        return self._held() == 0

    def _give(self, received: Incoming) -> None:
        """Passes on what the reading thread has read."""
        alone = isinstance(received, HeldBatch) and self._held() == 1
        (self._prepared if alone else self._received).put(received)

    # The threads of the steps

    def _begin_all(self) -> None:
        enter_device()
        received: Incoming = None
        while True:
            del received  # It may be large, and the wait for the next batch long.
            received = self._received.get()
            try:
                if isinstance(received, HeldBatch):
                    self._begin(received)
            except BaseException as error:
                received = error
            self._prepared.put(received)
            if not isinstance(received, HeldBatch):
                return

    def _launch_all(self) -> None:
        received: Incoming = None
        while True:
            del received
            received = self._next()
            if received is None or self._error is not None:
                return
            if isinstance(received, BaseException):
                raise received
            THREADS.follow()
            if received.begun:
                self._launch(received)
                self._launched.put(received)
            else:
                self._run_alone(received)

    def _next(self) -> Incoming:
        if self._is_idle():
            taken = self._intake.take_if_idle(self._is_idle)
            if taken is not None:
                return taken[0]
        self._intake.set_watch()
        return self._prepared.get()

    def _run_alone(self, held: HeldBatch) -> None:
        """All steps of a batch; once others wait for the main thread, the last steps are left to the other one."""
        self._begin(held)
        self._launch(held)
        self._look_for_outputs(held)
        if self._held() == 1:
            self._wait(held)
        if self._held() > 1:
            self._launched.put(held)
            return
        self._context.show(held.bound, to_all=True)
        self._finish(held)
        self._intake.unset_watch()  # The next one is likely to come when this one is answered, and to be alone too.
        self._answer(held, alone=True)

    def _finish_all(self) -> None:
        enter_device()
        held: HeldBatch | None = None
        try:
            while True:
                del held
                held = self._launched.get()
                if held is None:
                    return
                self._context.show(held.bound, to_all=True)
                self._wait(held)
                self._finish(held)
                self._answer(held)
        except BaseException as error:
            self._error = error
            self._prepared.put(error)  # The main thread may be waiting for a batch.

    # The steps of one batch

    def _begin(self, held: HeldBatch) -> None:
        with self._beginning:  # A batch that is alone begins on another thread than those that come after it.
            self._do(self._stages.begin, held)
        held.begun = True
        held.times.prepared = now()

    def _launch(self, held: HeldBatch) -> None:
        """Gives a batch to the model; where models take turns on the GPU, until its outputs are there."""
        if self._model.turns is None:
            self._do(self._stages.launch, held)
            held.launched()
            return
        with self._model.turns:
            self._do(self._stages.launch, held)
            held.launched()
            self._wait(held)
            if held.times.outputs is None:
                self._finish(held)

    def _look_for_outputs(self, held: HeldBatch) -> None:
        """Looks whether the outputs are there, again and again, as long as the batch is alone: to be woken by the
        device takes longer than to look, and who looks sees the next batch come."""
        query = getattr(getattr(held.work, "done", None), "query", None)
        if held.failure is not None or held.wait is None or not callable(query):
            return
        end = now() + LOOK_SECONDS
        try:
            while not query() and self._held() == 1 and now() < end:
                time.sleep(0)  # Lets the other threads have the interpreter.
        except Exception as error:
            self._fail(held, error)

    def _wait(self, held: HeldBatch) -> None:
        """Returns when the outputs are there, if the model has been given the batch."""
        if held.failure is not None or held.wait is None:
            return
        wait, held.wait = held.wait, None
        try:
            measured = wait()
        except Exception as error:
            self._fail(held, error)
        else:
            held.times.got_outputs(now(), measured)

    def _finish(self, held: HeldBatch) -> None:
        if held.finished:
            return
        self._do(self._stages.finish, held)
        held.finished = True
        if held.failure is None and held.times.outputs is None:  # The model ran only now.
            held.times.got_outputs(now())

    def _do(self, step: Step, held: HeldBatch) -> None:
        """One step of one batch; its exception fails this batch."""
        if held.failure is not None:
            return
        self._context.show(held.bound)
        try:
            held.work = step(held.work, self._context)
        except Exception as error:
            self._fail(held, error)

    def _fail(self, held: HeldBatch, error: Exception) -> None:
        """The log shows where a handler failed on requests; for a made-up batch a word is enough."""
        if held.made_up:
            held.failure = BatchFailure("raised", f"{type(error).__name__}: {error}")
        else:
            held.failure = failure_from(error, held.bound.metas)
        held.work = None

    def _answer(self, held: HeldBatch, alone: bool = False) -> None:
        times = held.times.told(self._last)
        self._last.follow(held.times)
        times.update(self._model.facts_to_tell())
        answer = held.failure or answer_from(held.work, held.count, self._context)
        self._answered_alone += alone  # Before it is sent: the next batch may come as soon as the server has it.
        send_answer(self._writer, held.bound.id, held.count, answer, times)
        self._answered_behind += not alone  # After it is sent, so that answers cannot overtake each other.
        self._context.clients.forget_until(held.bound.id)
        self._intake.answered()
        self._model.after_batch(self._has_more)

    def _has_more(self) -> bool:
        return self._held() > 0 or self._intake.is_readable()


class _Unsent(FrameWriter):
    """Throws the answers of made-up batches away, and says to the main thread that they are there."""

    def __init__(self, prepared: SimpleQueue[Incoming]) -> None:
        self._prepared = prepared

    def send(self, kind: int, count: int, frame_id: int, parts: Sequence[Bytes], before: bytes = b"") -> None:
        """Nobody waits for it."""
        self._prepared.put(None)
