"""The base of handlers over DeepSpeed: `initialize` settles rank and device, the rest is the handler's."""

from __future__ import annotations

import abc
import os
from typing import Any

from ts.torch_handler.base_handler import BaseHandler
from ts.torch_handler.settings import need


class BaseDeepSpeedHandler(BaseHandler, abc.ABC):
    """Subclasses load their model and give it to `ts.handler_utils.distributed.deepspeed.get_ds_engine`."""

    # TorchServe's own name of the parameter, which handlers use as a keyword.
    def initialize(self, ctx: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Joins the group; loads no model."""
        self.context = ctx
        self.manifest = ctx.manifest
        self.model_yaml_config = ctx.model_yaml_config or {}
        self.device = rank_device()
        self.map_location = self.device.type
        join_group()


def rank_device() -> Any:
    """The device of this rank, as torchrun numbers them: its own GPU where there are any, else the CPU."""
    torch = need("torch", "a distributed handler")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
        return torch.device(f"cuda:{local}")
    return torch.device("cpu")


def join_group() -> None:
    """Meets the other ranks, once."""
    torch = need("torch", "a distributed handler")
    distributed = torch.distributed
    if "RANK" in os.environ and distributed.is_available() and not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
