"""DeepSpeed's inference engine around a model, as the model's configuration asks for it."""

from __future__ import annotations

import os
from typing import Any

from ts.torch_handler.settings import need


def get_ds_engine(model: Any, ctx: Any) -> Any:
    """The engine for `deepspeed: {config: file.json, checkpoint: file.json}` in model-config.yaml."""
    section = ctx.model_yaml_config.get("deepspeed")
    if not isinstance(section, dict) or "config" not in section:
        raise ValueError("model-config.yaml: deepspeed.config must name a JSON file of the archive")
    model_dir = ctx.system_properties.get("model_dir")
    config = os.path.join(model_dir, section["config"])
    if not os.path.isfile(config):
        raise ValueError(f"{config} is missing: pack it with --extra-files")
    checkpoint = section.get("checkpoint")
    deepspeed = need("deepspeed", "a DeepSpeed handler")
    return deepspeed.init_inference(
        model, config=config, checkpoint=os.path.join(model_dir, checkpoint) if checkpoint else None
    )
