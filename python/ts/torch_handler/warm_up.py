"""Makes a handler's model ready for its batch sizes, while it is loaded; the sample is a file of the archive, or a
picture. A model that is compiled in the background takes the compiled graphs over while it serves.
"""

from __future__ import annotations

import glob
import io
import json
import logging
import os
import threading
from collections.abc import Sequence
from typing import Any

from jitney.gpu.graphs import Progress, RunShape, Variant
from jitney.gpu.inputs import CannotCapture, CannotCompile
from jitney.gpu.report import WarmUpReport
from jitney.gpu.shapes import allowed_sizes, compiled_sizes, in_order
from ts.torch_handler import formats
from ts.torch_handler.compiling import SCRIPT_NOTE
from ts.torch_handler.compiling_processes import CompilingProcesses
from ts.torch_handler.model_form import ModelForm
from ts.torch_handler.model_graphs import Arguments, ModelGraphs, capture_for
from ts.torch_handler.settings import need
from ts.torch_handler.stages import now
from ts.torch_handler.variants import ModelCompiler, cache_of, frozen, identity_of

NO_SAMPLE = (
    "There is no file jitney_sample.* in the archive: CUDA graphs are captured for the shape of the first batches, "
    "while requests wait"
)


class WarmUp:
    """Captures the model of a handler on a GPU, and measures what preparing a batch and running it take."""

    def __init__(self, handler: Any, context: Any) -> None:
        self.handler = handler
        self.context = context
        self.report = WarmUpReport()

    def run(self, progress: Progress) -> WarmUpReport:
        """Returns what was found out, and the batches that go the whole way of a request."""
        self._capture(progress)
        self.report.samples = self._samples()
        return self.report

    def _capture(self, progress: Progress) -> None:
        """A model that cannot be captured stays as it is, with a note why."""
        graphs = self._graphs()
        if graphs is None:
            return
        compiler = self._compiler(graphs)
        batch = self._sample_batch()
        if batch is None:
            self.handler.compile_now()
            graphs.watch()
            self.handler.model_graphs = graphs
            return
        if self.handler.compile_plan is None:  # A compiler chooses the memory format by itself.
            graphs.settings = self._choose_form(batch)
        given = graphs.shaped((batch,), {})
        later = compiler is not None and compiler.plan.background and bool(compiler.missing(given))
        try:
            graphs.add([*frozen(self.handler.model), *([] if later else self._compiled(compiler, given, progress))])
            graphs.capture(given, progress)
        except CannotCapture as error:
            self.report.notes.append(f"The model runs without CUDA graphs: {error}")
            self.handler.compile_now()
            return
        self.handler.model_graphs = graphs
        if compiler is not None and not later:
            compiler.remember()
        if compiler is not None and later:
            self.report.notes.append("The model serves as it is until other processes have compiled it")
            BackgroundCompilation(compiler, given).start()
        self._tell(graphs)

    def _choose_form(self, batch: Any) -> Any:
        """The handler's settings, with what they leave open and the GPU tells."""
        handler = self.handler
        form = ModelForm(
            handler.model, batch, self._sizes()[-1], lambda: capture_for(handler.device, handler.streams.model)
        )
        says_nothing = "precision" not in (handler.model_yaml_config.get("jitney") or {})
        handler.handler_settings = form.chosen(handler.handler_settings, says_nothing)
        self.report.notes += form.notes
        return handler.handler_settings

    def _samples(self) -> list[list[Any]]:
        """Of every size that was captured, the largest first, since the others find its memory; else of one item and of
        the largest batch, where handlers make samples up."""
        sizes = self.report.sizes[::-1] or (sorted({1, self._largest()}) if self.handler.makes_up_samples() else [])
        return [self.handler.sample_rows(size) for size in sizes]

    def compile_only(self, shapes: Sequence[RunShape]) -> None:
        """Compiles the model for shapes into its cache and leaves it there, for a worker that waits or serves."""
        graphs, batch = self._graphs(), self._sample_batch()
        compiler = self._compiler(graphs) if graphs is not None else None
        if graphs is None or compiler is None or batch is None:
            raise CannotCompile("its worker could not have asked for it")
        given = graphs.shaped((batch,), {})
        for shape in shapes:
            compiler.compile_here(given, shape)

    def _compiler(self, graphs: ModelGraphs) -> ModelCompiler | None:
        """What compiles the model, if that is configured and the model can be."""
        plan = self.handler.compile_plan
        if plan is None:
            return None
        if formats.is_script(self.handler.model):
            self.report.notes.append(SCRIPT_NOTE)
            return None
        cache = cache_of(self.context, self.handler.device)
        identity = identity_of(self.context, self.handler.handler_settings)
        return ModelCompiler(graphs.sized, plan, cache, identity, CompilingProcesses(self.handler, self.context))

    def _compiled(self, compiler: ModelCompiler | None, given: Arguments, progress: Progress) -> list[Variant]:
        if compiler is None:
            return []
        compiler.recall()
        try:
            return [compiler.variant(given, progress)]
        except Exception as error:
            self.report.notes.append(f"The model is not compiled: {error}")
            return []
        finally:
            self.report.notes += compiler.notes

    def _graphs(self) -> ModelGraphs | None:
        """Where the model's graphs will be; None if it cannot have any."""
        handler, settings = self.handler, self.handler.handler_settings
        if settings.cuda_graphs == "off" or not handler.has_stock_inference() or formats.is_onnx(handler.model):
            return None
        capture = capture_for(handler.device, handler.streams.model)
        return ModelGraphs(handler.model, capture, self._sizes(), self._lengths(), settings) if capture else None

    def _sizes(self) -> list[int]:
        """The batch sizes that the operator allows, or else ours."""
        largest = self._largest()
        given = getattr(self.context, "batch_sizes", None)
        if given:
            return in_order(given, largest)
        return compiled_sizes(largest) if self.handler.compile_plan is not None else allowed_sizes(largest)

    def _largest(self) -> int:
        return max(1, int(self.context.system_properties.get("batch_size") or 1))

    def _lengths(self) -> list[int]:
        return in_order(getattr(self.context, "batch_lengths", None) or ())

    def _sample_batch(self) -> Any:
        """A batch of one row, prepared; None where there is no sample, or none that can be prepared."""
        try:
            rows = self.handler.sample_rows(1)
            prepared = self.handler.begin(rows, self.context) if rows else None
        except Exception as error:
            self.report.notes.append(f"The sample cannot be prepared, the first batches are used instead: {error}")
            return None
        if prepared is None or prepared.batch is None:
            self.report.notes.append(NO_SAMPLE)
            return None
        prepared.wait()
        return prepared.batch

    def _tell(self, graphs: ModelGraphs) -> None:
        sized, report = graphs.sized, self.report
        report.sizes, report.graphs, report.bytes = sized.captured_sizes(), len(sized), sized.bytes
        report.notes += sized.notes
        report.measured = [one._replace(prepare_us=self._prepare_us(one.size)) for one in sized.measured()]

    def _prepare_us(self, size: int) -> int:
        """What it takes to prepare a batch of samples, the second time."""
        seconds = 0.0
        for _ in range(2):
            started = now()
            self.handler.begin(self.handler.sample_rows(size), self.context).wait()
            seconds = now() - started
        return round(seconds * 1e6)


SAMPLE_FILES = "jitney_sample.*"
PICTURE_SIZE = (500, 400)
NOISE = 64


def sample_file(model_dir: str) -> Any:
    """What a request would bring whose body is the archive's `jitney_sample.*`; None if there is no such file."""
    found = sorted(glob.glob(os.path.join(glob.escape(model_dir), SAMPLE_FILES)))
    if not found:
        return None
    with open(found[0], "rb") as file:
        content = file.read()
    ending = os.path.splitext(found[0])[1].lower()
    if ending == ".json":
        return json.loads(content)
    return content.decode("utf-8") if ending == ".txt" else content


def picture() -> bytes:
    """A JPEG of noise, about as hard to decode as a photo."""
    image = need("PIL.Image", "an image handler")
    grey = image.effect_noise(PICTURE_SIZE, NOISE)
    buffer = io.BytesIO()
    image.merge("RGB", (grey, grey, grey)).save(buffer, "JPEG")
    return buffer.getvalue()


logger = logging.getLogger(__name__)


class BackgroundCompilation:
    """One compilation, on a thread that waits for the processes which do it."""

    def __init__(self, compiler: ModelCompiler, given: Arguments) -> None:
        self.compiler, self.given = compiler, given

    def start(self) -> threading.Thread:
        """Returns at once. Whatever goes wrong, the model goes on as it is."""
        thread = threading.Thread(target=self._run, name="compiling", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            variant = self.compiler.variant(self.given, ignored)
            sized = self.compiler.sized
            twin = sized.twin([variant])
            twin.capture(*self.given, ignored)
            taken = sized.take(twin)
            self.compiler.remember()
            logger.info("Compiled the model in the background; %d batch sizes run compiled now", taken)
        except Exception as error:
            logger.warning("The model runs uncompiled, since compiling it in the background failed: %s", error)


def ignored(done: int, of: int, what: str) -> None:
    """Progress of what nobody waits for."""
