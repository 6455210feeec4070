"""Which device a worker computes on.

TorchServe's order: the GPU the server assigned, then xpu, mps and xla where there are any, else the
CPU. A worker that was given no GPU never takes one by itself: another model may live there.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from ts.torch_handler.settings import installed, need

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
