"""Stock handler `image_classifier`: the five most likely classes of an image."""

from __future__ import annotations

from typing import Any

from ts.torch_handler.images import torch, transforms
from ts.torch_handler.profiling import timed
from ts.torch_handler.vision_handler import VisionHandler
from ts.utils.util import map_class_to_label


class ImageClassifier(VisionHandler):
    """ImageNet's usual preparation, softmax, and a dictionary of class and probability."""

    topk = 5

    image_processing = colour_processing = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )

    def set_max_result_classes(self, topk: int) -> None:
        """Sets how many classes are returned."""
        self.topk = topk

    def get_max_result_classes(self) -> int:
        """How many classes are returned."""
        return self.topk

    @timed
    def postprocess(self, data: Any) -> Any:
        """The most likely classes first."""
        likely = torch.nn.functional.softmax(data, dim=1)
        probs, classes = torch.topk(likely, min(self.topk, likely.shape[1]), dim=1)
        return map_class_to_label(probs.tolist(), self.mapping, classes.tolist())
