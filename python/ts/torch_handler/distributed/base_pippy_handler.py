"""Not in Jitney: TorchServe's module of this name builds on PiPPy."""

from ts.torch_handler.absent import absent

raise absent(__name__, "PiPPy")
