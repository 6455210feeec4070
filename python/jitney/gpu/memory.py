"""A model's share of the memory of its GPU, for models that share one."""

from __future__ import annotations

from jitney.gpu.device import find_torch


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
