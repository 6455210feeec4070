"""Not in Jitney: TorchServe's module of this name builds on TensorRT-LLM."""

from ts.torch_handler.absent import absent

raise absent(__name__, "TensorRT-LLM")
