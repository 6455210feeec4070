"""This process among those of one logical worker, as torchrun numbers them in the environment."""

from __future__ import annotations

import os
from typing import Any

from ts.torch_handler.settings import need


def rank_device(parallel: bool = True) -> Any:
    """The device of this rank: its own GPU where there are any, else the CPU."""
    torch = need("torch", "a distributed handler")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available() and parallel:
        torch.cuda.set_device(local)
        return torch.device(f"cuda:{local}")
    return torch.device("cpu")


def join_group() -> None:
    """Meets the other ranks, once."""
    torch = need("torch", "a distributed handler")
    distributed = torch.distributed
    if "RANK" in os.environ and distributed.is_available() and not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
