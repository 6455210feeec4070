"""Stock handler `image_segmenter`: class and probability of every pixel."""

from __future__ import annotations

from typing import Any

from ts.torch_handler.image_classifier import ImageClassifier
from ts.torch_handler.images import torch
from ts.torch_handler.profiling import timed
from ts.torch_handler.vision_handler import VisionHandler


class ImageSegmenter(VisionHandler):
    """For models that answer like torchvision's segmentation models: a dictionary with `out`."""

    image_processing = colour_processing = ImageClassifier.image_processing

    @timed
    def postprocess(self, data: Any) -> Any:
        """Height x width x 2 numbers per image: the class, as a float, and its probability."""
        scores = data["out"] if isinstance(data, dict) else data
        probs, classes = torch.max(torch.nn.functional.softmax(scores, dim=1), dim=1, keepdim=True)
        return torch.cat((classes.type(scores.dtype), probs), dim=1).permute(0, 2, 3, 1).tolist()
