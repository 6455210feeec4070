"""Which device a worker computes on, and in which precision and memory format.

TorchServe's order: the GPU the server assigned, then xpu, mps and xla where there are any, else the
CPU. A worker that was given no GPU never takes one by itself: another model may live there.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from ts.torch_handler.settings import HandlerSettings, installed, need

logger = logging.getLogger(__name__)


def choose_device(gpu_id: int | str | None, configured: str | None = None) -> Any:
    """The torch device for a worker; `configured` is the one of model-config.yaml."""
    torch = need("torch", "a torch handler")
    if configured is not None:
        return torch.device(configured)
    if gpu_id is not None and torch.cuda.is_available():
        return torch.device(f"cuda:{gpu_id}")
    if has_xpu(torch):
        return torch.device("xpu" if gpu_id is None else f"xpu:{gpu_id}")
    if has_mps(torch):
        return torch.device("mps")
    return xla_device() or torch.device("cpu")


def has_xpu(torch: Any) -> bool:
    """Intel's GPUs, where the operator switched them on or torch brings them."""
    if os.environ.get("TS_IPEX_GPU_ENABLE", "false").lower() == "true":
        need("intel_extension_for_pytorch", "ipex_gpu_enable=true")
    return hasattr(torch, "xpu") and bool(torch.xpu.is_available())


def has_mps(torch: Any) -> bool:
    """Apple's GPU. DEVICE=cpu in the environment keeps a worker off it."""
    mps = getattr(torch.backends, "mps", None)
    return mps is not None and bool(mps.is_available()) and os.environ.get("DEVICE") != "cpu"


def xla_device() -> Any:
    """A TPU or another XLA device, where torch_xla is installed and finds one."""
    if not installed("torch_xla"):
        return None
    try:
        return need("torch_xla.core.xla_model", "an XLA device").xla_device()
    except Exception as error:
        logger.warning("torch_xla is installed but gives no device: %s", error)
        return None


def shaped_model(model: Any, settings: HandlerSettings) -> Any:
    """The model in the configured precision and memory format."""
    torch = need("torch", "a torch handler")
    if settings.precision != "float32":
        model = model.to(getattr(torch, settings.precision))
    if settings.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model


def shaped_input(value: Any, settings: HandlerSettings) -> Any:
    """Tensors, also a list of them, as the model wants them; anything else, and integers, as they are."""
    torch = need("torch", "a torch handler")
    if type(value) is list:
        return [shaped_input(part, settings) for part in value]
    if not torch.is_tensor(value) or not value.is_floating_point():
        return value
    value = value.to(getattr(torch, settings.precision)) if settings.precision != "float32" else value
    if settings.channels_last and value.dim() == 4:
        value = value.contiguous(memory_format=torch.channels_last)
    return value


def plain_output(value: Any, settings: HandlerSettings) -> Any:
    """The model's answer in single precision, whatever it computed in."""
    if settings.precision == "float32":
        return value
    torch = need("torch", "a torch handler")
    if torch.is_tensor(value):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return type(value)((name, plain_output(part, settings)) for name, part in value.items())
    if type(value) in (list, tuple):
        return type(value)(plain_output(part, settings) for part in value)
    return value
