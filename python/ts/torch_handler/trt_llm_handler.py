"""TorchServe's module of this name needs TensorRT-LLM; Jitney has no such module and says so."""

from __future__ import annotations

from ts.torch_handler.absent import absent

raise absent(
    __name__,
    "TensorRT-LLM",
    "Write an asynchronous handler around the engine and set asyncCommunication: true in model-config.yaml.",
)
