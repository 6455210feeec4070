"""The arguments of `jitney.run` as flags of `jitney serve`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from jitney.definition.options import DEVICES
from jitney.machine.process import is_interactive

QUIET = "warning"
"""The log level where cells run."""
NO_PRINTS = "jitney::worker_output=off"


Config = str | os.PathLike[str] | Mapping[str, Any] | None
"""A `jitney.yaml`, or what stands in one."""


class RunOptions(TypedDict, total=False):
    """What `jitney.run` takes besides the target."""

    name: str | None
    workers: int | None
    device: str | Sequence[int] | None
    python: str | os.PathLike[str] | None
    log_level: str | None
    prints: bool
    ray: str | bool | None
    port: int
    program: str | os.PathLike[str] | None
    config: Config


def worker_flags(workers: int | None, device: str | Sequence[int] | None, ray: str | bool | None) -> list[str]:
    """What the command line says about workers."""
    flags = [] if workers is None else ["--workers", str(workers)]
    if isinstance(device, str):
        kind, _, number = device.partition(":")
        if kind not in DEVICES or (number and (not number.isdigit() or kind == "cpu")):
            raise ValueError(f'device must be "cpu", "gpu", "cuda:1" or numbers of GPUs as in [0, 1], not {device!r}')
        flags += ["--device-type", DEVICES[kind], *(["--device-ids", number] if number else [])]
    elif device is not None:
        flags += ["--device-type", "gpu", "--device-ids", ",".join(map(str, device))]
    if ray not in (None, False):
        flags.append(f"--ray={'auto' if ray is True else ray}")
    return flags


def log_flags(level: str | None, prints: bool) -> list[str]:
    level = level or (QUIET if is_interactive() else None)
    level = {"warning": "warn", "critical": "error"}.get(level.lower(), level) if level else None
    if prints:
        return ["--log-level", level] if level else []
    return ["--log-level", f"{level or 'info'},{NO_PRINTS}"]


def config_flags(config: Config, directory: str) -> list[str]:
    if config is None:
        return []
    if isinstance(config, Mapping):
        file = Path(directory, "jitney.yaml")
        file.write_text(json.dumps(config))  # JSON is YAML.
        return ["--config", str(file)]
    return ["--config", os.path.abspath(config)]
