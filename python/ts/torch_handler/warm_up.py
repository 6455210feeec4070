"""Makes a handler's model ready for its batch sizes, while it is loaded."""

from __future__ import annotations

from typing import Any

from jitney.gpu.errors import CannotCapture
from jitney.gpu.graphs import Progress, Variant
from jitney.gpu.report import WarmUpReport
from jitney.gpu.sizes import allowed_sizes, in_order
from ts.torch_handler import formats
from ts.torch_handler.compiling import SCRIPT_NOTE, compiled
from ts.torch_handler.model_graphs import Arguments, ModelGraphs, capture_for
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
        """Returns what was found out. A model that cannot be captured stays as it is, with a note why."""
        capture = capture_for(self.handler.device, self.handler.streams.model) if self._may_capture() else None
        if capture is None:
            return self.report
        settings = self.handler.handler_settings
        graphs = ModelGraphs(self.handler.model, capture, self._sizes(), self._lengths(), settings)
        batch = self._sample_batch()
        if batch is None:
            self._compile_later()
            graphs.watch()
            self.handler.model_graphs = graphs
            return self.report
        try:
            given = graphs.shaped((batch,), {})
            graphs.add([*frozen(self.handler.model), *self._compiled(graphs, given, progress)])
            graphs.capture(given, progress)
        except CannotCapture as error:
            self.report.notes.append(f"The model runs without CUDA graphs: {error}")
            self._compile_later()
            return self.report
        self.handler.model_graphs = graphs
        self._tell(graphs)
        return self.report

    def _compiled(self, graphs: ModelGraphs, given: Arguments, progress: Progress) -> list[Variant]:
        """The compiled model, if that is configured and can be done."""
        plan = self.handler.compile_plan
        if plan is None:
            return []
        if formats.is_script(self.handler.model):
            self.report.notes.append(SCRIPT_NOTE)
            return []
        cache = cache_of(self.context, self.handler.device)
        identity = identity_of(self.context, self.handler.handler_settings)
        compiler = ModelCompiler(graphs.sized, plan, cache, identity)
        try:
            return [compiler.variant(given, progress)]
        except Exception as error:
            self.report.notes.append(f"The model is not compiled: {error}")
            return []
        finally:
            self.report.notes += compiler.notes

    def _compile_later(self) -> None:
        """Without graphs the model is compiled as torch.compile does it: when it is called."""
        handler = self.handler
        if handler.compile_plan is not None:
            handler.model = compiled(handler.model, handler.model_yaml_config.get("pt2"))
            handler.compile_plan = None

    def _may_capture(self) -> bool:
        handler = self.handler
        allowed = handler.handler_settings.cuda_graphs != "off" and handler.has_stock_inference()
        return allowed and not formats.is_onnx(handler.model)

    def _sizes(self) -> list[int]:
        """The batch sizes that the operator allows, or else ours."""
        largest = max(1, int(self.context.system_properties.get("batch_size") or 1))
        given = getattr(self.context, "batch_sizes", None)
        return in_order(given, largest) if given else allowed_sizes(largest)

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
