"""TorchServe's module of this name needs TensorRT-LLM; in Jitney importing it is an error."""

from __future__ import annotations

from ts.torch_handler.absent import absent

raise absent(
    __name__,
    "TensorRT-LLM",
    "Write an asynchronous handler around the engine and set asyncCommunication: true in model-config.yaml.",
)
