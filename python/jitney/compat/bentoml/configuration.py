"""BentoML's configuration file: the one that `BENTOML_CONFIG` (or `BENTOML_CONFIGURATION`) names.

Of it `services:` and `runners:` are read. In both a known key holds for all, and any other key is the name of a
service or runner whose own values come first. Values in the file win over those in the code, as in BentoML.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from jitney.compat.bentoml.exceptions import BentoMLConfigException

ARGUMENTS = "JITNEY_BENTOML_ARGS"
VARIABLES = ("BENTOML_CONFIG", "BENTOML_CONFIGURATION")
SERVICE_KEYS = frozenset((
    "backlog", "batching", "cmd", "description", "endpoints", "envs", "extra_ports", "grpc", "http", "image", "labels",
    "logging", "max_runner_connections", "metrics", "monitoring", "name", "path_prefix", "resources", "runner_probe",
    "service_class", "ssl", "threads", "timeout", "tracing", "traffic", "workers", "workers_per_resource",
))  # fmt: skip
"""What `@bentoml.service` and `services:` may say."""
RUNNER_KEYS = frozenset((
    "batching", "embedded", "logging", "metrics", "optimization", "resources", "timeout", "traffic",
    "workers_per_resource",
))  # fmt: skip
"""What `runners:` may say."""
BATCHING_KEYS = frozenset(("enabled", "max_batch_size", "max_latency_ms", "strategy"))


def use_arguments(kind: Any = None) -> Any:
    """The arguments of a template: BentoML's `--arg name=value`, here a JSON object in `JITNEY_BENTOML_ARGS`."""
    given = json.loads(os.environ.get(ARGUMENTS) or "{}")
    return SimpleNamespace(**given) if kind is None else kind(**given)


def for_service(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a service: of the code, and of the file over it."""
    return _over(dict(given), _chosen("services", name, SERVICE_KEYS))


def for_runner(name: str) -> dict[str, Any]:
    """The configuration of a runner."""
    return _chosen("runners", name, RUNNER_KEYS)


def check_keys(where: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
    """An unknown key is an error that names the nearest known one."""
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(sorted(known))}"
            raise BentoMLConfigException(f"{where} has no {key!r}; {hint}")


def workers_of(config: Mapping[str, Any]) -> int | None:
    """How many workers a configuration asks for."""
    workers = config.get("workers")
    if workers == "cpu_count":
        return os.cpu_count() or 1
    if isinstance(workers, list):  # One entry per worker, with its GPUs.
        return len(workers)
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise BentoMLConfigException(f"workers is a number or 'cpu_count', not {workers!r}")
    return workers


def seconds_of(config: Mapping[str, Any]) -> int | None:
    """`traffic.timeout`, or the `timeout` of BentoML 1.0."""
    timeout = (config.get("traffic") or {}).get("timeout", config.get("timeout"))
    return None if timeout is None else max(round(float(timeout)), 1)


def options_of(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration says about the model of a service or runner."""
    return {
        "name": name,
        "workers": workers_of(config),
        "response_timeout_s": seconds_of(config),
        "mix_origins": True,
    }


def batching_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What it says about batches."""
    batching = dict(config.get("batching") or {})
    check_keys("batching", batching, BATCHING_KEYS)
    return batching


def _chosen(section: str, name: str, known: frozenset[str]) -> dict[str, Any]:
    content = _file().get(section) or {}
    if not isinstance(content, Mapping):
        raise BentoMLConfigException(f"{section}: must be a mapping")
    for_all = {key: value for key, value in content.items() if key in known}
    own = content.get(name) if name not in known else None
    check_keys(f"{section}.{name}", own or {}, known)
    return _over(for_all, own or {})


def _over(lower: dict[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings inside are merged, everything else is replaced."""
    merged = dict(lower)
    for key, value in upper.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = _over(dict(before or {}), value) if both else value
    return merged


def _file() -> Mapping[str, Any]:
    path = next((os.environ[name] for name in VARIABLES if os.environ.get(name)), None)
    return _read(os.path.abspath(path)) if path else {}


@functools.lru_cache(maxsize=4)
def _read(path: str) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError:
        raise BentoMLConfigException(f"reading {path} needs PyYAML: pip install pyyaml") from None
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file) or {}
    except (OSError, yaml.YAMLError) as error:
        raise BentoMLConfigException(f"{path} cannot be read: {error}") from None
    if not isinstance(content, Mapping):
        raise BentoMLConfigException(f"{path} must hold a mapping")
    return content
