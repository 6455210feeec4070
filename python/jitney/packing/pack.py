"""A definition as a model directory, which is what the server loads; an application as one for each part.

A directory holds no code: a manifest with name and version, the options as the model's own
settings, where to import the object from, and its API description. Everything the server does
with models (queues, versions, scaling, draining) is then the same for a definition. For requests that bring several
items, or differ in cost or bucket, the options also say which parameters an endpoint has and what their values look
like from outside: the server reads that of a request before it waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.application import Application, Part
from jitney.definition.definition import Definition, Endpoint
from jitney.definition.expressions import Expression, form_of
from jitney.definition.hints import Param
from jitney.definition.multiplexed import models_kept
from jitney.definition.options import DEVICES
from jitney.definition.signature import describe
from jitney.definition.wiring import wiring_of
from jitney.packing import openapi

API_FILE = "jitney-api.json"
REQUIREMENTS = "__jitney_requirements__"
"""The attribute of a class that names the file of the packages that it needs, if it has one."""

FILES_WATCHED_MAX = 1000
QUEUE_DEFAULT, QUEUE_MAX = 100, 65535
"""The server's own queue, and the longest that a large batch asks for."""


def pack(application: Application, spec: str, directory: str, out: Path, version: str | None = None) -> dict[str, Any]:
    """Writes the model directories, that of the application's root to `out` and those of its other parts beside it;
    returns names, version and source files. All parts have the version of the root."""
    root = application.root
    version = version or root.definition.version
    parts = [
        {"name": part.name, "version": version, "directory": os.path.abspath(f"{out}.part{number}")}
        for number, part in enumerate(application.parts[:-1], 1)
    ]
    for part, told in zip(application.parts, parts):
        pack_part(part, spec, directory, Path(told["directory"]), version, part.name)
    pack_part(root, spec, directory, out, version)
    is_file = hasattr(root.definition.target, "__jitney_found__")
    watched = model_files(Path(spec)) if is_file else sources(directory, spec)
    return {"name": root.name, "version": version, "sources": watched, "parts": parts}


def pack_part(
    part: Part, spec: str, directory: str, out: Path, version: str, name_in_application: str | None = None
) -> None:
    """Writes one model directory."""
    definition = part.definition
    for remark in (*definition.remarks(), *definition.mistakes()):
        print(f"warning: {definition.name}: {remark}", file=sys.stderr)
    deployed = getattr(definition.target, "__jitney_deployment__", None)
    if deployed is not None:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the description of what was packed.
            deployed()
    manifest: dict[str, Any] = {
        "createdOn": "",
        "runtime": "python",
        "model": {
            "modelName": definition.name,
            "modelVersion": version,
            "handler": handler_name(spec),
            "configFile": "model-config.yaml",
        },
        "archiverVersion": "0.12.0",
    }
    needed = getattr(definition.target, REQUIREMENTS, None)
    if needed is not None:
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(needed, out / "requirements.txt")
        manifest["model"]["requirementsFile"] = "requirements.txt"
    write(out / "MAR-INF" / "MANIFEST.json", manifest)
    write(out / "model-config.yaml", settings(definition, spec, directory, name_in_application))  # JSON is YAML.
    write(out / API_FILE, {**api(definition), **links(part, version)})


def links(part: Part, version: str) -> dict[str, Any]:
    """What a part calls: the other parts in this version, models of the server in the one that was named, if any."""
    if not part.links:
        return {}
    told = []
    for link in part.links:
        called = version if link.is_part else link.version
        told.append({"slot": link.slot, "model": link.model, **({"version": called} if called else {})})
    wiring = wiring_of(part.definition.target)  # Its numbers are the places of its parts here.
    return {"depends": told, **({} if wiring is None else {"wiring": wiring})}


def settings(definition: Definition, spec: str, directory: str, part: str | None = None) -> dict[str, Any]:
    """The options as the server's settings, and where workers find the definition."""
    options = definition.options
    first = definition.endpoints[0].options
    delay = _least_delay(definition)
    at_once = None if delay != 0 else "opportunistic"  # A delay of zero, which the settings file cannot express.
    batching = {
        "max_batch_size": definition.most_items,
        "max_latency_ms": min(latencies(definition).values(), default=None),
        "max_batch_delay": max(round(delay), 1) if delay else None,
        "policy": options.policy or first.policy or at_once,
        "mix_origins": options.mix_origins,
        **_costs(definition),
        "sizes": list(definition.sizes) or None,
        "lengths": list(definition.lengths) or None,
        "max_concurrent_batches": _slots(definition),
    }
    found = {
        "minWorkers": options.workers or (options.max_workers and 1),
        "maxWorkers": options.max_workers or options.workers,
        "jobQueueSize": queue_size(definition),
        "responseTimeout": options.response_timeout_s,
        "startupTimeout": options.startup_timeout_s,
        "deviceType": DEVICES[options.device] if options.device else None,
        "deviceIds": list(options.device_ids) if options.device_ids else None,
        "gpu_memory_fraction": options.gpu_memory_fraction,
        "gpu_turns": options.gpu_turns,
        "sequenceBatching": options.max_sequences and True,
        "maxNumSequence": options.max_sequences,
        "maxSequenceJobQueueSize": options.max_sequence_queue,
        "sequenceMaxIdleMSec": options.sequence_max_idle_ms and max(round(options.sequence_max_idle_ms), 1),
        "ray": dict(options.ray) if options.ray else None,
        "batching": {key: value for key, value in batching.items() if value is not None},
        "jitney": {
            "object": spec,
            "directory": directory,
            **getattr(definition.target, "__jitney_found__", {}),
            **({"part": part} if part else {}),
            **({"cpus": options.cpus} if options.cpus else {}),
            **({"min_workers": 0} if options.workers == 0 else {}),  # TorchServe's key counts 0 as 1.
        },
    }
    return {key: value for key, value in found.items() if value is not None}


def queue_size(definition: Definition) -> int | None:
    """Requests that may wait: enough to fill a batch for every worker, or batches would never be full."""
    size, batch = definition.options.queue, definition.max_batch_size
    if size is None:
        room = 2 * batch * definition.concurrency * (definition.options.workers or 1)
        return min(room, QUEUE_MAX) if room > QUEUE_DEFAULT else None
    if size < batch:
        print(
            f"warning: {definition.name}: batches of {batch} can never be full, since only {size} requests may wait; "
            f"set queue={2 * batch} or more, or max_batch_size={size}",
            file=sys.stderr,
        )
    return size


def api(definition: Definition) -> dict[str, Any]:
    """The endpoints with their batch sizes, latencies and ways to read requests, and the paths of the API."""
    differ = len({one.options.max_latency_ms or None for one in definition.endpoints}) > 1
    return {
        "endpoints": [one.name for one in definition.endpoints],
        "batch_sizes": {one.name: one.most_items for one in definition.endpoints if one.batched},
        "latencies_ms": latencies(definition) if differ else {},
        "sizes": sizes(definition),
        "tensors": {
            one.name: describe(one.tensors, one.shape.takes_any, one.options.dims[0]) for one in definition.endpoints
        },
        "openai": openai(definition),
        "multiplexed": models_kept(definition.target),
        "http": http_paths(definition),
        "metrics": metric_names(definition),
        **openapi.describe(definition),
    }


TASKS = {"submit": "POST", "status": "GET", "get": "GET", "cancel": "PUT", "retry": "POST"}
"""What the server answers below the route of a task, as BentoML's clients ask for it."""


def http_paths(definition: Definition) -> dict[str, Any]:
    """The paths that it answers beside those of its name."""
    raw = [one.name for one in definition.endpoints if one.raw]
    routes: list[dict[str, Any]] = []
    for one in definition.endpoints:
        path, methods = one.options.route_methods or ("", [])
        shared = {"shared": True} if one.options.route_shared else {}
        routes += [{"path": path, "methods": methods, "endpoint": one.name, **shared}] if path else []
    tasks = [
        (one.name, found[0])
        for one in definition.endpoints
        if one.options.task_routes and (found := one.options.route_methods)
    ]
    routes += [
        {"path": f"{path.rstrip('/')}/{word}", "methods": [method], "endpoint": name, "answers": word}
        for name, path in tasks
        for word, method in TASKS.items()
    ]
    health = definition.options.health_routes or {}
    routes += [{"path": path, "methods": ["GET"], "answers": answer} for path, answer in health.items()]
    paths = [str(one["path"]).rstrip("/") for one in routes]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise DefinitionError(f"{definition.name}: {twice or '/'} is the route of two endpoints")
    mount = definition.options.mount
    if mount is None:
        return {"raw": raw, "routes": routes}
    if len(raw) != 1 and "http" not in raw:
        raise DefinitionError(
            f"{definition.name}: mount={mount!r} needs an endpoint with raw=True to send requests to; of several it is "
            "the one that is named http. For one path of an endpoint that is not raw there is route="
        )
    target = raw[0] if len(raw) == 1 else "http"
    return {"raw": raw, "routes": routes, "mount": {"prefix": mount, "endpoint": target}}


def metric_names(definition: Definition) -> dict[str, list[dict[str, Any]]]:
    """Other names of what is measured, by endpoint."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in definition.endpoints:
        for name, labels in one.options.metric_names or ():
            spelt = {key: str(value) for key, value in labels.items()}
            found.setdefault(one.name, []).append({"name": name, "labels": spelt})
    return found


def openai(definition: Definition) -> dict[str, str]:
    """The endpoints that answer as OpenAI's do, by the name of the latter."""
    found: dict[str, str] = {}
    for one in definition.endpoints:
        role = one.options.openai
        if role is None:
            continue
        required = [param for param in one.params if param.required]
        if len(required) != 1 or required[0].hint not in (str, Any):
            raise DefinitionError(f"{one.name}: openai={role!r} is for endpoints with one parameter, a text")
        if role in found:
            raise DefinitionError(f"{found[role]} and {one.name}: only one endpoint may say openai={role!r}")
        found[role] = one.name
    return found


def latencies(definition: Definition) -> dict[str, float]:
    """The latency target of every endpoint that has one. The model's own is the least of them, which
    holds for all unless they differ."""
    targets = {one.name: one.options.max_latency_ms for one in definition.endpoints}
    return {name: latency for name, latency in targets.items() if latency}


def handler_name(spec: str) -> str:
    """What the manifest says: no path that leads out of the model directory, which the server rejects."""
    module, colon, name = spec.partition(":")
    leads_out = os.path.isabs(module) or os.pardir in module.split(os.sep)
    return f"{os.path.basename(module)}{colon}{name}" if leads_out else spec


def sources(directory: str, spec: str) -> list[str]:
    """The user's own files that were imported: those to watch, in the directory and beside the file that was named."""
    beside = os.path.dirname(os.path.join(directory, spec.partition(":")[0]))
    roots = tuple(os.path.join(os.path.abspath(root), "") for root in {directory, beside})
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    own = {os.path.abspath(file) for file in files if isinstance(file, str)}
    return sorted(file for file in own if file.startswith(roots) and "site-packages" not in file)


def model_files(path: Path) -> list[str]:
    """The files of a model that a loader found."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    return [str(one) for one in files[:FILES_WATCHED_MAX]]


def write(path: Path, value: Any) -> None:
    """Writes one JSON document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")


def _slots(definition: Definition) -> int | None:
    """Batches that a worker holds at a time. Of a mixed class it is one: the worker says of which it takes none."""
    return definition.concurrency if definition.concurrency > 1 and not definition.is_mixed else None


def _costs(definition: Definition) -> dict[str, Any]:
    """With `cost` the sum is limited, or with `padded` the items times the longest: by the server as far as `cost`
    is an expression or requests carry a cost, then by the worker. Endpoints share the server's unit; it is a length
    only if all pad."""
    weighed = [one.options for one in definition.endpoints if one.options.cost is not None]
    if not weighed:
        return {}
    unit = "length" if all(options.padded for options in weighed) else "tokens"
    return {"cost": unit, "max_cost": definition.max_batch_size}


def _least_delay(definition: Definition) -> float | None:
    """The endpoints share one queue, so the shortest of their windows holds."""
    delays = [one.options.max_batch_delay_ms for one in definition.endpoints]
    return min((delay for delay in delays if delay is not None), default=None)


def sizes(definition: Definition) -> dict[str, Any]:
    """How to read the sizes of requests, by endpoint."""
    read = {one.name: _of(one) for one in definition.endpoints if one.batched}
    return {name: spec for name, spec in read.items() if spec is not None}


def _of(endpoint: Endpoint) -> dict[str, Any] | None:
    params = [param for param in endpoint.params if not param.is_request]
    places = {param.name: place for place, param in enumerate(params)}
    told = [_param(param) for param in params]
    options = endpoint.options
    given = {"cost": options.cost, "bucket": options.bucket}
    expressions = {name: one for name, one in given.items() if isinstance(one, Expression)}
    if not expressions and not any(one["rows"] for one in told):
        return None
    steps = {option: expression.steps(places) for option, expression in expressions.items()}
    others = {"takes_any": endpoint.shape.takes_any, "batch_dim": options.dims[0]}
    return {"params": told, **others, **steps}


def _param(param: Param) -> dict[str, Any]:
    form = form_of(param.hint) or "json"
    rows = form in ("array", "frame", "any") and not param.is_list
    return {"name": param.name, "form": form, "required": param.required, "rows": rows}
