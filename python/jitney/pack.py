"""A definition as a model directory, which is what the server loads.

The directory holds no code: a manifest with name and version, the options as the model's own
settings, where to import the object from, and its API description. Everything the server does
with models (queues, versions, scaling, draining) is then the same for a definition.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from jitney.definition import Definition
from jitney.http import openapi

API_FILE = "jitney-api.json"


def pack(definition: Definition, spec: str, directory: str, out: Path, version: str | None = None) -> dict[str, Any]:
    """Writes the model directory; returns what its maker should know."""
    version = version or definition.version
    manifest = {
        "createdOn": "",
        "runtime": "python",
        "model": {
            "modelName": definition.name,
            "modelVersion": version,
            "handler": spec,
            "configFile": "model-config.yaml",
        },
        "archiverVersion": "0.12.0",
    }
    write(out / "MAR-INF" / "MANIFEST.json", manifest)
    write(out / "model-config.yaml", settings(definition, spec, directory))  # JSON is YAML.
    write(out / API_FILE, api(definition))
    return {"name": definition.name, "version": version, "sources": sources(directory)}


def settings(definition: Definition, spec: str, directory: str) -> dict[str, Any]:
    """The options as the server's settings."""
    options = definition.options
    first = definition.endpoints[0].options
    delay = _least(definition, "max_batch_delay_ms")
    batching = {
        "max_batch_size": definition.max_batch_size,
        "max_latency_ms": _least(definition, "max_latency_ms"),
        "max_batch_delay": None if delay is None else round(delay),
        "policy": options.policy or first.policy,
        "mix_origins": options.mix_origins,
        **_costs(definition),
        "max_concurrent_batches": definition.concurrency if definition.concurrency > 1 else None,
    }
    found = {
        "minWorkers": options.workers,
        "maxWorkers": options.workers,
        "jobQueueSize": options.queue,
        "responseTimeout": options.response_timeout_s,
        "startupTimeout": options.startup_timeout_s,
        "batching": {key: value for key, value in batching.items() if value is not None},
        "jitney": {"object": spec, "directory": directory},
    }
    return {key: value for key, value in found.items() if value is not None}


def api(definition: Definition) -> dict[str, Any]:
    """What the server tells clients, and the endpoints whose requests must not meet."""
    return {
        "endpoints": [one.name for one in definition.endpoints],
        "paths": openapi.paths(definition),
    }


def sources(directory: str) -> list[str]:
    """The user's own files that were imported: those to watch."""
    root = os.path.abspath(directory) + os.sep
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    own = {os.path.abspath(file) for file in files if isinstance(file, str)}
    return sorted(file for file in own if file.startswith(root) and "site-packages" not in file)


def write(path: Path, value: Any) -> None:
    """Writes one JSON document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")


def _costs(definition: Definition) -> dict[str, Any]:
    """With `cost` the sum is limited: by the server as far as requests say theirs, then by the worker."""
    if all(one.options.cost is None for one in definition.endpoints):
        return {}
    return {"cost": "tokens", "max_cost": definition.max_batch_size}


def _least(definition: Definition, name: str) -> float | None:
    """The endpoints share one queue, so the strictest of their wishes holds."""
    wishes = [getattr(one.options, name) for one in definition.endpoints]
    return min((wish for wish in wishes if wish), default=None)
