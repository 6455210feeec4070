"""TorchServe's module of this name needs NVIDIA DALI; in Jitney importing it is an error."""

from __future__ import annotations

from ts.torch_handler.absent import absent

raise absent(
    __name__,
    "NVIDIA DALI",
    "Derive from ts.torch_handler.image_classifier.ImageClassifier and run the DALI pipeline in preprocess.",
)
