"""TorchServe's module of this name needs PiPPy; in Jitney importing it is an error."""

from __future__ import annotations

from ts.torch_handler.absent import absent

raise absent(
    __name__,
    "PiPPy",
    "Use ts.torch_handler.distributed.base_deepspeed_handler or torch.distributed in a handler of parallel workers.",
)
