"""Makes the model that a LOAD frame describes ready: its context, its directory, its handler; and warms it up.

A handler or definition warms up in its method `warm_up(progress)`. A method of that name without a parameter
`progress` is the user's own business and is not called.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from jitney.files.limits import limits
from jitney.gpu.device import assign, limit_memory
from jitney.gpu.turns import GpuTurns, turns_at
from jitney.torchserve.bodies import Reader, read_bytes, reader_for, use_strict_json
from jitney.torchserve.loading import EntryPoint, in_envelope, load_entry_point, module_name, run_alone
from jitney.torchserve.metrics_cache import MetricsCacheYamlImpl
from jitney.worker import prometheus
from jitney.worker.context import WorkerContext
from jitney.worker.garbage import Collector
from jitney.worker.gpus import GpuUse, in_turn

if TYPE_CHECKING:
    import asyncio


class LoadedModel(NamedTuple):
    """A handler that is ready, and the context it is called with."""

    entry_point: EntryPoint
    context: WorkerContext
    reader_for: Callable[[str], Reader]
    """How values reach it, by their content type."""
    mode: str = "single"
    close: Callable[[], None] | None = None
    """Called once when the worker ends, if there is anything to end."""
    service: Any = None
    """The object whose method the entry point is, if it is one; its steps may overlap."""
    about: Mapping[str, Any] = MappingProxyType({})
    """What LOADED says about it."""
    gpu: GpuUse | None = None
    """What the worker holds on its GPU; None without one."""
    turns: GpuTurns | None = None
    """Its turns on the GPU; the entry point takes them by itself."""
    collector: Collector | None = None
    """The process's garbage collector, once the model is loaded."""
    samples: Sequence[list[Any]] = ()
    """Batches of rows to go the whole way of a request before it is loaded."""
    loop: asyncio.AbstractEventLoop | None = None
    """Of a handler of coroutines: where it was initialised and is called."""

    def gpu_facts(self) -> dict[str, int]:
        """How much of its GPU the worker uses, if that was not told a moment ago."""
        held = self.gpu.bytes_to_tell() if self.gpu is not None else None
        return {} if held is None else {"gpu_memory_bytes": held}

    def facts_to_tell(self) -> dict[str, int]:
        """What TIMES says now and then: the same, and how long the garbage collector has paused."""
        told = {} if self.collector is None else self.collector.to_tell()
        return told if self.gpu is None else {**self.gpu_facts(), **told}

    def after_batch(self, waits: Callable[[], bool]) -> None:
        """A batch was answered: the moment to collect garbage, if nothing waits."""
        if self.collector is not None:
            self.collector.after_batch(waits)


def no_progress(done: int, of: int, what: str) -> None:
    """For loading without a server to tell."""


def load_model(spec: dict[str, Any], progress: Progress = no_progress) -> LoadedModel:
    """Loads what a LOAD frame describes and warms it up; leaves the process inside the model directory."""
    context = make_context(spec)
    limits.set(spec.get("image_formats"), spec.get("max_image_pixels"), spec.get("max_expanded_size"))
    use_strict_json(spec.get("strict_json", False))
    assign(spec.get("gpu_id"))
    note = limit_memory(spec.get("gpu_memory_fraction"), spec.get("gpu_id"))
    settings = spec.get("model_yaml_config") or {}
    load = load_definition if is_defined(settings) else load_handler
    if isinstance(settings.get("triton"), dict):
        load = load_triton
    model = load(spec, context)
    model = model._replace(close=one_after_another(model.close, prometheus.begin()))
    about, samples = warm_up(model.entry_point, progress, [note] if note else [])
    model = model._replace(about=about, samples=samples)
    if spec.get("envelope") and load is load_handler:
        # The samples are what is inside of an envelope.
        model = model._replace(entry_point=in_envelope(spec["envelope"], model.entry_point), samples=())
    return with_gpu(model, spec)


def one_after_another(*steps: Callable[[], None] | None) -> Callable[[], None] | None:
    """Those of the steps that there are, as one; the later ones also after one that failed."""
    there = [step for step in steps if step is not None]
    if len(there) < 2:
        return there[0] if there else None

    def close() -> None:
        with contextlib.ExitStack() as stack:
            for step in reversed(there):
                stack.callback(step)

    return close


def load_handler(spec: dict[str, Any], context: WorkerContext) -> LoadedModel:
    """Loads a TorchServe handler from its model directory."""
    enter_model_dir(spec["model_dir"], spec["handler"])
    mode = spec.get("mode", "single")
    loop = new_loop() if mode == "concurrent" else None
    entry_point = load_entry_point(spec["handler"], context, loop.run_until_complete if loop else run_alone)
    readers = reader_for if spec.get("decode_input", True) else read_bytes
    return LoadedModel(entry_point, context, readers, mode, loop=loop)


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop of a handler of coroutines, whose `initialize` may ask for it, to begin what batches go on with."""
    import asyncio

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def with_gpu(model: LoadedModel, spec: dict[str, Any]) -> LoadedModel:
    """The model with what concerns its GPU, if the worker has one, and the service that is behind its entry point."""
    model = model._replace(service=getattr(model.entry_point, "__self__", None))
    if spec.get("gpu_id") is None:
        return model
    turns = turns_at(spec.get("gpu_turns")) if model.mode != "concurrent" else None
    entry_point = in_turn(model.entry_point, turns) if turns is not None else model.entry_point
    return model._replace(gpu=GpuUse(spec["gpu_id"]), turns=turns, entry_point=entry_point)


def is_defined(settings: dict[str, Any]) -> bool:
    """Whether the model is a definition of `jitney` and not a TorchServe handler."""
    return isinstance(settings.get("jitney"), dict) and "object" in settings["jitney"]


def load_definition(spec: dict[str, Any], context: WorkerContext) -> LoadedModel:
    """Loads a definition. Imported only here: handlers need none of it."""
    from jitney.definition import metrics
    from jitney.worker.defined import DefinedModel
    from jitney.worker.requests import reader_for

    model = DefinedModel.load(spec)
    metrics.begin_reporting()

    def close() -> None:
        model.instance.close()
        metrics.flush_metrics()

    return LoadedModel(model.handle, context, reader_for, spec.get("mode", "single"), close)


def load_triton(spec: dict[str, Any], context: WorkerContext) -> LoadedModel:
    """Loads a `model.py` of Triton's Python backend. Imported only here: others need none of it."""
    from jitney.definition import metrics
    from jitney.worker.triton import TritonWorkerModel

    metrics.begin_reporting()
    model = TritonWorkerModel(spec)

    def close() -> None:
        model.close()
        metrics.flush_metrics()

    return LoadedModel(model.handle, context, read_bytes, spec.get("mode", "single"), close)


def make_context(spec: dict[str, Any]) -> WorkerContext:
    """The context all calls of this worker share, with its metrics reading the current request ids."""
    metrics = MetricsCacheYamlImpl()
    context = WorkerContext(
        spec["model_name"],
        spec["model_dir"],
        spec.get("manifest") or {},
        spec.get("batch_size", 1),
        spec.get("gpu_id"),
        spec.get("server_version", ""),
        spec.get("limit_max_image_pixels", True),
        metrics,
        spec.get("model_yaml_config") or {},
    )
    context.batch_sizes = list(spec.get("sizes") or ())
    context.batch_lengths = list(spec.get("lengths") or ())
    context.compile_cache = spec.get("compile_cache")
    context.debug_errors = spec.get("debug_errors", False)
    metrics.set_request_ids(lambda: context.request_ids)
    metrics.names_requests = spec.get("metric_ids", True)
    metrics.set_model_name(context.model_name)
    metrics.declare(spec.get("model_metrics") or {})
    return context


def enter_model_dir(model_dir: str, handler: str) -> None:
    """Makes the model directory the working directory and the first place to import from.

    A handler given with a directory is imported from there if it is really there; archives
    usually keep only the file's base name.
    """
    model_dir = os.path.abspath(model_dir)
    os.chdir(model_dir)
    sys.path.insert(0, model_dir)
    path = handler.partition(":")[0]
    directory = os.path.dirname(os.path.join(model_dir, path))
    if directory != model_dir and os.path.exists(os.path.join(directory, module_name(handler) + ".py")):
        sys.path.insert(0, directory)


logger = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""Called after every step: how many are done, of how many, and what was done."""
FAILED_NOTE = "warming up failed, the model serves without it: "


def warm_up(entry_point: Any, progress: Progress, notes: list[str]) -> tuple[dict[str, Any], list[list[Any]]]:
    """Warms the model up if it can; returns what LOADED says, these notes first, and samples. A failure is a note and
    no more."""
    method: Any = getattr(getattr(entry_point, "__self__", entry_point), "warm_up", None)
    report: Any = None
    if takes_progress(method):
        try:
            report = method(progress)
        except Exception as error:
            logger.warning("warming up failed", exc_info=True)
            notes = [*notes, FAILED_NOTE + f"{type(error).__name__}: {error}"]
    return described(report, notes), getattr(report, "samples", [])


def takes_progress(method: Any) -> bool:
    """Whether this is a method of the kind that is meant here."""
    try:
        return callable(method) and "progress" in inspect.signature(method).parameters
    except (TypeError, ValueError):
        return False


def described(report: Any, notes: list[str]) -> dict[str, Any]:
    """The keys of LOADED for a report of warming up; without those that have nothing to say."""
    graphs = int(getattr(report, "graphs", 0))
    about = {
        "sizes": sorted(map(int, getattr(report, "sizes", ()))),
        "measured": [list(map(round, row)) for row in getattr(report, "measured", ())],
        "graphs": {"count": graphs, "bytes": int(getattr(report, "bytes", 0))} if graphs else None,
        "notes": [*notes, *map(str, getattr(report, "notes", ()))],
    }
    return {key: value for key, value in about.items() if value}
