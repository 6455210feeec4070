"""The modules of TorchServe that Jitney does not have, and what to use in their place.

Importing one of them raises this error, so that a worker's log tells what to do.
"""

from __future__ import annotations

DALI = "Derive from ts.torch_handler.image_classifier.ImageClassifier and run the DALI pipeline in preprocess."
ENGINE = "Use vllm_handler, or write a handler around the engine, with asyncCommunication: true in model-config.yaml."
PIPPY = "Use ts.torch_handler.distributed.base_deepspeed_handler or torch.distributed in a handler of parallel workers."

INSTEAD = {
    "NVIDIA DALI": DALI,
    "PiPPy": PIPPY,
    "TensorRT-LLM": ENGINE,
}


def absent(name: str, library: str) -> ImportError:
    """What an import of such a module raises."""
    return ImportError(f"{name} builds on {library} and is not part of Jitney. {INSTEAD[library]}", name=name)
