"""The base of handlers over DeepSpeed: `initialize` settles rank and device, the rest is the handler's."""

from __future__ import annotations

import abc
from typing import Any

from ts.torch_handler.base_handler import BaseHandler
from ts.torch_handler.distributed.ranks import join_group, rank_device


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
