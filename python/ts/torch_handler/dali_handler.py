"""Not in Jitney: TorchServe's module of this name builds on NVIDIA DALI."""

from ts.torch_handler.absent import absent

raise absent(__name__, "NVIDIA DALI")
