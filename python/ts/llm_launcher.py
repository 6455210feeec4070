"""TorchServe's module of this name serves vLLM and TensorRT-LLM; in Jitney importing it is an error."""

from __future__ import annotations

from ts.torch_handler.absent import absent

raise absent(
    __name__,
    "vLLM or TensorRT-LLM",
    "Write an asynchronous handler around the engine, archive it and set asyncCommunication: true in "
    "model-config.yaml; or serve the model with the engine's own server.",
)
