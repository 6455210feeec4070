"""What model-config.yaml asks of the handlers, read once and checked.

TorchServe's keys are `handler: {profile}` and `pt2`. Ours stand under `jitney`:

    jitney:
      device: cuda:0            # instead of the one the server assigned
      precision: float16        # float32 (default), float16 or bfloat16: weights and inputs
      channels_last: true       # memory format of convolution weights and image batches; measured on a GPU if not said
      preprocess_threads: 4     # for handlers that prepare items one by one; 1 is off
      decode_processes: 4       # has no effect any more: the threads decode
      overlap: 2                # batches a worker holds at most, so that their stages overlap; 1 is off
      torch_threads: 2          # torch.set_num_threads
      decode: auto              # where images are decoded: gpu, cpu, or auto: on the GPU where there is one
      cuda_graphs: auto         # on a GPU the model is captured once per batch size and replayed; off: it is not

What the stock handlers need installed, and the message when it is missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

PACKAGES = {"PIL": "pillow", "torch": "torch", "torchvision": "torchvision", "onnxruntime": "onnxruntime"}
"""What to ask pip for, by module."""


def need(module: str, purpose: str) -> Any:
    """Imports a module, or raises an error that tells what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = PACKAGES.get(module.partition(".")[0], module)
        message = (
            f"{purpose} needs {module}, which the workers' Python ({sys.executable}) cannot import: {error}. "
            f"Install it there (pip install {package}) or point the server at a Python that has it."
        )
        raise ImportError(message) from error


def import_for_effect(module: str) -> None:
    """Imports a module that is installed, for what it registers; one that fails is a line in the log."""
    if not installed(module):
        return
    try:
        importlib.import_module(module)
    except Exception as error:
        logger.warning("%s is installed and cannot be imported: %s", module, error)


def installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


PRECISIONS = ("float32", "float16", "bfloat16")
DECODING = ("auto", "gpu", "cpu")
CUDA_GRAPHS = ("auto", "off")
SPELLINGS = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
OVERLAP_MAX = 8
THREADS_MAX = 256
PROCESSES_MAX = 128


class HandlerSettings(NamedTuple):
    """The `jitney` section of a model-config.yaml."""

    device: str | None = None
    precision: str = "float32"
    channels_last: bool | None = None
    preprocess_threads: int | None = None
    decode_processes: int | None = None
    overlap: int | None = None
    torch_threads: int | None = None
    decode: str = "auto"
    cuda_graphs: str = "auto"


def read_settings(config: dict[str, Any] | None) -> HandlerSettings:
    """Reads the section; a wrong value or an unknown key is an error that names it."""
    section = (config or {}).get("jitney") or {}
    if not isinstance(section, dict):
        raise ValueError("model-config.yaml: jitney must be a map")
    unknown = sorted(set(section) - set(HandlerSettings._fields))
    if unknown:
        known = ", ".join(HandlerSettings._fields)
        raise ValueError(f"model-config.yaml: jitney.{unknown[0]} is unknown; known are {known}")
    settings = HandlerSettings(**section)
    return settings._replace(
        precision=precision(settings.precision),
        channels_last=None if settings.channels_last is None else flag("channels_last", settings.channels_last),
        preprocess_threads=optional("preprocess_threads", settings.preprocess_threads, THREADS_MAX),
        decode_processes=optional("decode_processes", settings.decode_processes, PROCESSES_MAX, 0),
        overlap=optional("overlap", settings.overlap, OVERLAP_MAX),
        torch_threads=optional("torch_threads", settings.torch_threads, THREADS_MAX),
        decode=one_of("decode", settings.decode, DECODING),
        cuda_graphs=one_of("cuda_graphs", settings.cuda_graphs, CUDA_GRAPHS),
    )


def precision(value: Any) -> str:
    """The name of a floating point type."""
    name = SPELLINGS.get(value, value) if isinstance(value, str) else None
    if name not in PRECISIONS:
        raise ValueError(f"model-config.yaml: jitney.precision is {value!r}, not one of {', '.join(PRECISIONS)}")
    return name


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """One of the known words. YAML reads `off` and `on` as no and yes."""
    word = {False: "off", True: "auto"}.get(value, value) if isinstance(value, bool) else value
    if word not in known:
        raise ValueError(f"model-config.yaml: jitney.{name} is {value!r}, not one of {', '.join(known)}")
    return str(word)


def flag(name: str, value: Any) -> bool:
    """A yes or no."""
    if not isinstance(value, bool):
        raise ValueError(f"model-config.yaml: jitney.{name} is {value!r}, not true or false")
    return value


def number(name: str, value: Any, limit: int, least: int = 1) -> int:
    """A number from `least` to its limit."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= limit:
        raise ValueError(f"model-config.yaml: jitney.{name} is {value!r}, not a number from {least} to {limit}")
    return value


def optional(name: str, value: Any, limit: int, least: int = 1) -> int | None:
    """A number, or None where none was given."""
    return None if value is None else number(name, value, limit, least)
