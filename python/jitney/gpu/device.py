"""The device of this process: what the server gave its worker, or outside a worker the first GPU if there is one; and a
model's share of the memory there, for models that share one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

CPU = "cpu"
QUEUES_VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
QUEUES = 32
"""CUDA's most. With its 8 the streams of the model, of preparing and of the JPEG engines share queues, and what is
prepared waits for all that was asked of the model."""


class Device(str):
    """A device as torch spells it, `cuda:1` or `cpu`: a text, so that it needs no torch, which takes it as it is."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """`cuda`, `mps` or `cpu`, as a `torch.device` has it."""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]  # As a `torch.device` has it; nobody looks for text in one.
        """The number of the GPU, among those that the process sees; None on the processor."""
        return int(self.partition(":")[2]) if ":" in self else None

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.type != CPU


class _Assigned:
    """What the server gave this worker; a process has one worker."""

    by_server = False
    gpu: int | None = None
    current: int | None = None
    """The GPU that was current where the model was loaded."""


def assign(gpu: int | None) -> None:
    """Makes this process a worker with this GPU, or with none."""
    _Assigned.by_server, _Assigned.gpu = True, gpu


def device() -> Device:
    """The device of this worker, `cuda:1` or `cpu`, to be given to torch: `model.to(jitney.device())`.

    The server gives each worker its GPU, in turn or among `device_ids`. Outside a worker it is the first GPU if torch
    sees one, else the processor. AMD's GPUs are `cuda` to torch, Apple's is `mps`. A torch that was built without any
    has the processor only.
    """
    gpu = _Assigned.gpu if _Assigned.by_server else 0
    if gpu is not None and _is_apples():
        return Device("mps")
    return Device(f"cuda:{gpu}") if gpu is not None and _has_gpu(_Assigned.by_server) else Device(CPU)


def _is_apples() -> bool:
    """Whether the GPU is Apple's, of which a machine has one."""
    torch = find_torch()
    metal = getattr(getattr(torch, "backends", None), "mps", None)
    return metal is not None and not torch.cuda.is_available() and bool(metal.is_available())


def _has_gpu(given: bool) -> bool:
    """Whether the process can use a GPU. Without torch the server is believed, or else the driver's files."""
    torch = find_torch()
    if torch is not None:
        return bool(torch.cuda.is_available())
    return given or gpu_in_sight()


def gpu_in_sight() -> bool:
    """Whether the driver's files say that there is a GPU, for those who do not import torch."""
    return os.path.exists("/dev/nvidia0") and os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1")


def find_torch() -> Any:
    """The module, imported if it is installed; None if it is not."""
    if "torch" in sys.modules:
        return sys.modules["torch"]
    return importlib.import_module("torch") if importlib.util.find_spec("torch") is not None else None


def loaded_torch() -> Any:
    """The module if something here imported it and used CUDA, so that there is something on a GPU; else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def choose_device() -> None:
    """Makes the worker's GPU the current one of this thread, so that `cuda` means it: where torch was imported, and
    unless something lies on a GPU already, which then stays together with the rest."""
    torch = sys.modules.get("torch")
    if _Assigned.gpu and torch is not None and not torch.cuda.is_initialized() and torch.cuda.is_available():
        torch.cuda.set_device(_Assigned.gpu)


def keep_device() -> None:
    """Notes which GPU is the current one of this thread, which loaded the model, for those that help it."""
    torch = loaded_torch()
    _Assigned.current = torch.cuda.current_device() if torch is not None else None


def has_all_queues() -> bool:
    """Whether this process has as many queues to its GPU as there can be."""
    return os.environ.get(QUEUES_VARIABLE) == str(QUEUES)


def enter_device() -> None:
    """Makes the GPU that was kept the current one of this thread. Current devices belong to threads, and every new
    thread begins with GPU 0."""
    torch = loaded_torch()
    if torch is not None and _Assigned.current:
        torch.cuda.set_device(_Assigned.current)


def wait_for_gpu() -> None:
    """Returns when the GPU has done what this thread gave it, on the stream that is current."""
    torch = loaded_torch()
    if torch is None:
        return
    for gpu in {torch.cuda.current_device(), _Assigned.gpu} - {None}:
        torch.cuda.current_stream(gpu).synchronize()


def limit_memory(fraction: float | None, gpu: int | None) -> str | None:
    """Limits what torch takes of the GPU in this process. Returns a sentence for the log if it cannot.

    Tensors count, and so do those of CUDA graphs; what the driver itself needs (some hundred MB) does not.
    """
    if fraction is None or gpu is None:
        return None
    torch = find_torch()
    if torch is None:
        return f"gpu_memory_fraction {fraction:g} has no effect: this Python has no torch"
    if not torch.cuda.is_available():
        return f"gpu_memory_fraction {fraction:g} has no effect: torch sees no GPU"
    try:
        torch.cuda.set_per_process_memory_fraction(fraction, gpu)
    except (RuntimeError, ValueError) as error:
        return f"gpu_memory_fraction {fraction:g} has no effect: {error}"
    return None


def memory_used(gpu: int | None) -> int | None:
    """The bytes of the GPU that torch holds in this process, cached ones included; None where there are none."""
    if gpu is None:
        return None
    torch = find_torch()
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.memory_reserved(gpu))
