"""The base of TorchServe's handlers: loads a model in any of its forms and runs it in three stages.

The members are TorchServe's, and subclasses may replace any of them. `handle` is `begin`, `launch` and
`finish` one after another; a worker may call the three itself, each on a thread of its own, to prepare the
next batch while this one is in the model and the last one is answered, but only where `batches_at_a_time`
allows it.
"""

from __future__ import annotations

import abc
import logging
import os
from collections.abc import Callable
from typing import Any

from jitney.gpu.compiled import CompilerImport
from jitney.gpu.report import WarmUpReport
from jitney.gpu.streams import NO_STREAMS, DeviceStreams, streams_of
from jitney.torchserve.threads import THREADS
from ts.torch_handler import formats
from ts.torch_handler.compiling import CompilePlan, compile_plan, compiled, wants_aot
from ts.torch_handler.devices import choose_device, plain_output, shaped_input, shaped_model
from ts.torch_handler.model_graphs import ModelGraphs
from ts.torch_handler.profiling import profiled, profiler_enabled, timed
from ts.torch_handler.rows import numbers_of
from ts.torch_handler.settings import HandlerSettings, import_for_effect, installed, need, read_settings
from ts.torch_handler.stages import Launched, Prepared, asks, merge, milliseconds, now
from ts.torch_handler.threads import set_torch_threads
from ts.torch_handler.warm_up import WarmUp, sample_file
from ts.utils.util import load_label_mapping

torch: Any = need("torch", "a handler based on ts.torch_handler.base_handler")

logger = logging.getLogger(__name__)

ipex_enabled = os.environ.get("TS_IPEX_ENABLE", "false").lower() == "true"
STOCK_MODULES = "ts.torch_handler."
LABELS_FILE = "index_to_name.json"
import_for_effect("torch_tensorrt")  # Classes of TorchScript files.
PROFILER_AVAILABLE = installed("torch.profiler")
XLA_AVAILABLE = installed("torch_xla")
IPEX_AVAILABLE = ipex_enabled and installed("intel_extension_for_pytorch")
ONNX_AVAILABLE = installed("onnxruntime")
PT2_AVAILABLE = hasattr(torch, "compile")
PT230_AVAILABLE = hasattr(torch, "export")
"""What is at hand here; handlers import these names."""


def setup_ort_session(model_pt_path: str, map_location: str) -> Any:
    """A session of ONNX Runtime, for handlers that load their model themselves."""
    return formats.load_onnx(model_pt_path, torch.device(map_location))


class BaseHandler(abc.ABC):  # noqa: B024 - TorchServe's base, which handlers override in parts
    """Loads a model and answers batches with it."""

    # What `initialize` has not set yet, also for handlers whose `__init__` does not call this one.
    handler_settings = HandlerSettings()
    torch_threads = 0
    streams: DeviceStreams = NO_STREAMS
    context: Any = None
    model_graphs: ModelGraphs | None = None
    compile_plan: CompilePlan | None = None

    def __init__(self) -> None:
        self.model: Any = None
        self.mapping: dict[str, str] | None = None
        self.device: Any = None
        self.initialized = False
        self.context: Any = None
        self.model_pt_path: str | None = None
        self.manifest: dict[str, Any] | None = None
        self.map_location: str | None = None
        self.explain = False
        self.target: Any = 0
        self.profiler_args: dict[str, Any] = {}
        self.model_yaml_config: dict[str, Any] = {}

    # -- loading --------------------------------------------------------------------------------

    def initialize(self, context: Any) -> None:
        """Chooses a device, loads the model and the names of its classes."""
        self.context = context
        self.manifest = context.manifest
        self.model_yaml_config = getattr(context, "model_yaml_config", None) or {}
        self.handler_settings = read_settings(self.model_yaml_config)
        self.torch_threads = set_torch_threads(self.handler_settings)
        properties = context.system_properties
        self.device = choose_device(properties.get("gpu_id"), self.handler_settings.device)
        self.map_location = self.device.type
        self.streams = streams_of(self.device)
        model_dir = properties.get("model_dir")
        weights = (self.manifest or {}).get("model", {}).get("serializedFile")
        self.model_pt_path = os.path.join(model_dir, weights) if weights else None
        self.model = self._load_model(model_dir, (self.manifest or {}).get("model", {}).get("modelFile"))
        self.mapping = load_label_mapping(os.path.join(model_dir, LABELS_FILE))
        self.initialized = True
        logger.info("Loaded model on %s with %d threads", self.device, self.torch_threads)

    def _load_model(self, model_dir: str, model_file: str | None) -> Any:
        """The model, ready to be called."""
        path = self.model_pt_path or ""
        pt2 = self.model_yaml_config.get("pt2")
        if model_file:
            return self._ready(self._load_pickled_model(model_dir, model_file, self.model_pt_path))
        if path and not os.path.isfile(path):
            raise RuntimeError(f"Missing the model.pt file: {path}")
        if path.endswith(".so") and wants_aot(pt2):
            return self._load_torch_export_aot_compile(path)
        if path.endswith(".onnx"):
            return formats.load_onnx(path, self.device)
        if path.endswith(".pt2"):
            return self._compiled(formats.load_package(path, self.device))
        if path.endswith(formats.SCRIPT_ENDINGS):
            return self._ready(self._load_torchscript_model(path))
        raise RuntimeError(f"No model weights could be loaded{': ' + os.path.basename(path) if path else ''}")

    def _ready(self, model: Any) -> Any:
        """A module on its device, in its precision, compiled if that is configured."""
        model = shaped_model(model.to(self.device), self.handler_settings)
        model.eval()
        if ipex_enabled:
            model = need("intel_extension_for_pytorch", "ipex_enable=true").optimize(model)
        return self._compiled(model)

    def _compiled(self, model: Any) -> Any:
        """The model compiled if that is configured; where its graphs are, that is left to warming up."""
        pt2 = self.model_yaml_config.get("pt2")
        self.compile_plan = compile_plan(pt2) if self._captures() else None
        if self.compile_plan is None:
            return compiled(model, pt2)
        CompilerImport.start()
        return model

    def compile_now(self) -> None:
        """For a model without graphs, or one that nobody warmed up: torch compiles it when it is called."""
        if self.compile_plan is not None:
            self.compile_plan = None
            self.model = compiled(self.model, self.model_yaml_config.get("pt2"))

    def _captures(self) -> bool:
        """Whether warming up captures the model."""
        stock = self.has_stock_inference() and is_ours(self.handle)
        return stock and self.streams is not NO_STREAMS and self.handler_settings.cuda_graphs != "off"

    def _load_torchscript_model(self, model_pt_path: str) -> Any:
        return formats.load_script(model_pt_path, self.device)

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Any:
        return formats.load_eager(model_dir, model_file, model_pt_path, self.device)

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Any:
        return formats.load_shared_object(model_so_path, self.device)

    # -- the three stages -----------------------------------------------------------------------

    @timed
    def preprocess(self, data: Any) -> Any:
        """Rows of numbers to a tensor."""
        return torch.as_tensor(numbers_of(data), device=self.device)

    @timed
    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """The model's answer for a prepared batch."""
        with torch.inference_mode():
            replay = self.model_graphs.find((data, *args), kwargs) if self.model_graphs is not None else None
            if replay is not None:
                return replay()
            if self.compile_plan is not None and self.model_graphs is None:
                self.compile_now()
            data = data.to(self.device) if torch.is_tensor(data) else data
            if formats.is_onnx(self.model):
                return formats.run_onnx(self.model, (data, *args))
            data = shaped_input(data, self.handler_settings)
            return plain_output(self.model(data, *args, **kwargs), self.handler_settings)

    @timed
    def postprocess(self, data: Any) -> Any:
        """The model's answer to one plain value per row."""
        return data.tolist()

    # -- calls ----------------------------------------------------------------------------------

    def handle(self, data: Any, context: Any) -> Any:
        """Answers a batch: preprocess, inference, postprocess; or describes or explains."""
        self.context = context
        if profiler_enabled():
            return self._profiled(lambda: self._handle(data, context))
        return self._handle(data, context)

    def _profiled(self, call: Callable[[], Any]) -> Any:
        """Runs a call under the profiler; its trace goes to a folder named after the model."""
        name = ((getattr(self, "manifest", None) or {}).get("model") or {}).get("modelName") or ""
        return profiled(call, name, getattr(self, "profiler_args", {}))

    def _handle(self, data: Any, context: Any) -> Any:
        return self.finish(self.launch(self.begin(data, context), context), context)

    def begin(self, data: Any, context: Any) -> Prepared:
        """Prepares a batch. Called for the next one while this one is in `launch`, it must change nothing of self."""
        started = now()
        if asks(context, "describe"):
            return Prepared(data, None, {}, 0.0)
        if not is_ours(self.preprocess):
            rows, batch, failures = self.prepare(data)
            return Prepared(rows, batch, failures, now() - started, self.streams.mark())
        with self.streams.preparing():
            rows, batch, failures = self.prepare(data)
            return Prepared(rows, batch, failures, now() - started, self.streams.mark())

    def prepare(self, data: Any) -> tuple[Any, Any, dict[int, Any]]:
        """Good rows, the batch made of them, and the failures of the others.

        On a GPU the stream for preparing is the current one; who uses another one makes this one wait for it.
        """
        return data, self.preprocess(data), {}

    def launch(self, prepared: Prepared, context: Any) -> Launched:
        """Gives a batch to the model; on a GPU it does not wait for the outputs, nor for the batch.

        It changes nothing of self either: the batch before is in `finish`, and so an `inference` of the user's own,
        which may use anything of self, runs there.
        """
        runs_later = asks(context, "describe") or asks(context, "explain") or not is_ours(self.inference)
        if runs_later or not (prepared.rows or not prepared.failures):
            return Launched(prepared, started=False)
        started = now()
        with self.streams.running(prepared.ready):
            began = self.streams.mark()
            outputs = self.inference(prepared.batch)
            return Launched(prepared, True, outputs, now() - started, self.streams.mark(), began)

    def finish(self, launched: Launched, context: Any) -> Any:
        """Makes the answers of a batch."""
        started = now()
        self.context = context
        if asks(context, "describe"):
            return [self.describe_handle()]
        prepared = launched.prepared
        outputs = self._answer(launched, context) if prepared.rows or not prepared.failures else []
        metrics = getattr(context, "metrics", None)
        if metrics is not None:
            seconds = prepared.seconds + launched.seconds + now() - started
            metrics.add_time("HandlerTime", milliseconds(seconds), None, "ms")
        return merge(outputs, prepared.failures)

    def _answer(self, launched: Launched, context: Any) -> Any:
        prepared = launched.prepared
        if launched.started:
            with self.streams.answering(launched.done):
                return self.postprocess(launched.outputs)
        self.streams.follow(prepared.ready)
        if asks(context, "explain"):
            return self.explain_handle(prepared.batch, prepared.rows)
        return self.postprocess(self.inference(prepared.batch))

    def batches_at_a_time(self) -> int:
        """How many batches a worker may hold so that their stages overlap."""
        return 1

    def slots(self) -> int:
        """How many batches are worth holding: on a GPU one per stage, and one that is being read."""
        return self.handler_settings.overlap or (4 if self.streams is not NO_STREAMS else 2)

    # -- warming up -------------------------------------------------------------------------------

    def warm_up(self, progress: Callable[[int, int, str], None]) -> WarmUpReport:
        """Makes the model ready for its batch sizes, called once when it is loaded; `progress(done, of, what)`.

        On a GPU the model is captured, unless the settings or an `inference` of the user's own forbid it. A handler
        whose own `initialize` replaces the one above has loaded its model as it likes, and nothing is done.
        """
        return WarmUp(self, self.context).run(progress) if self.context is not None else WarmUpReport()

    def has_stock_inference(self) -> bool:
        """Whether `inference` is the one above, not replaced, also not by one that calls it."""
        return getattr(self.inference, "__func__", None) is BaseHandler.inference

    def sample_rows(self, count: int) -> list[Any] | None:
        """So many rows to warm the model up with; None where there are none.

        They are made of the archive's file `jitney_sample.*`. A handler that knows better replaces this.
        """
        content = sample_file(self.context.system_properties.get("model_dir"))
        return None if content is None else [{"body": content} for _ in range(count)]

    def makes_up_samples(self) -> bool:
        """Whether `sample_rows` makes up what requests bring, for the whole way of one."""
        return False

    # -- questions about the model ----------------------------------------------------------------

    def explain_handle(self, data_preprocess: Any, raw_data: Any) -> Any:
        """Explanations by `get_insights`, which gets the first request's value.

        That is TorchServe's way, and what handlers are written for: one that explains a single request only
        answers too little for a batch of several, which is then retried one by one.
        """
        first = raw_data[0]
        if isinstance(first, dict):
            value, self.target = first.get("data") or first.get("body"), first.get("target") or 0
        else:
            value, self.target = first, 0
        return self.get_insights(data_preprocess, value, self.target)

    def get_insights(self, tensor_data: Any, raw_data: Any, target: Any) -> Any:
        """Explanations; a handler that can give them replaces this."""
        raise NotImplementedError(f"{type(self).__name__} cannot explain its answers")

    def describe_handle(self) -> Any:
        """What `GET /models/{name}?customized=true` adds."""
        return {
            "device": str(self.device),
            "precision": self.handler_settings.precision,
            "channelsLast": bool(self.handler_settings.channels_last),
            "torchThreads": THREADS.given or self.torch_threads,
            "batchesAtATime": self.batches_at_a_time(),
            **(self.model_graphs.describe() if self.model_graphs is not None else {}),
        }

    def get_device(self) -> Any:
        """Where the model runs."""
        return self.device

    def _is_explain(self) -> bool:
        return asks(self.context, "explain")

    def _is_describe(self) -> bool:
        return asks(self.context, "describe")


def is_ours(method: Any) -> bool:
    """Whether a stage is one of the stock handlers', not a user's own."""
    return str(getattr(method, "__module__", "")).startswith(STOCK_MODULES)
