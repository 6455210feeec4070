"""Not in Jitney: TorchServe's module of this name builds on vLLM."""

from ts.torch_handler.absent import absent

raise absent(__name__, "vLLM")
