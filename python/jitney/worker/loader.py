"""Makes the model that a LOAD frame describes ready: its context, its directory, its handler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from jitney.images import limit_pixels
from jitney.torchserve.loading import EntryPoint, in_envelope, load_entry_point, module_name
from jitney.torchserve.metrics_cache import MetricsCacheYamlImpl
from jitney.torchserve.outputs import use_strict_json
from jitney.worker.context import WorkerContext


class LoadedModel(NamedTuple):
    """A handler that is ready, and the context it is called with."""

    entry_point: EntryPoint
    context: WorkerContext
    decode_input: bool
    mode: str = "single"
    close: Callable[[], None] | None = None
    """Called once when the worker ends, if there is anything to end."""


def load_model(spec: dict[str, Any]) -> LoadedModel:
    """Loads what a LOAD frame describes; leaves the process inside the model directory."""
    context = make_context(spec)
    limit_pixels(spec.get("max_image_pixels"))
    use_strict_json(spec.get("strict_json", False))
    if is_defined(spec.get("model_yaml_config") or {}):
        return load_definition(spec, context)
    enter_model_dir(spec["model_dir"], spec["handler"])
    entry_point = load_entry_point(spec["handler"], context)
    envelope = spec.get("envelope")
    if envelope:
        entry_point = in_envelope(envelope, entry_point)
    return LoadedModel(entry_point, context, spec.get("decode_input", True), spec.get("mode", "single"))


def is_defined(settings: dict[str, Any]) -> bool:
    """Whether the model is a definition of `jitney` and not a TorchServe handler."""
    return isinstance(settings.get("jitney"), dict) and "object" in settings["jitney"]


def load_definition(spec: dict[str, Any], context: WorkerContext) -> LoadedModel:
    """Loads a definition. Imported only here: handlers need none of it."""
    from jitney.worker.defined import DefinedModel

    model = DefinedModel.load(spec["model_yaml_config"], spec.get("debug_errors", False))
    return LoadedModel(model.handle, context, True, spec.get("mode", "single"), model.instance.close)


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
    metrics.set_request_ids(lambda: context.request_ids)
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
