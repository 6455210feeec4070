"""Stock handler `object_detector`: what is on an image, and where."""

from __future__ import annotations

from typing import Any

from ts.torch_handler.images import Recipe, torch, transforms
from ts.torch_handler.profiling import timed
from ts.torch_handler.vision_handler import VisionHandler
from ts.utils.util import map_class_to_label


class ObjectDetector(VisionHandler):
    """For models that answer like torchvision's detection models; images keep their sizes."""

    threshold = 0.5

    image_processing = colour_processing = transforms.Compose([transforms.ToTensor()])

    def assemble(self, recipe: Recipe, items: list[Any]) -> Any:
        """One tensor where all images have the same size, else a list of them."""
        if len({tuple(item.shape) for item in items}) == 1:
            return super().assemble(recipe, items)
        return [item.to(self.device) for item in items]

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Detections per image. TorchScript detectors take a list and answer with their losses first."""
        if isinstance(self.model, torch.jit.ScriptModule) and torch.is_tensor(data):
            data = list(data)
        answer = super().inference(data, *args, **kwargs)
        return answer[1] if isinstance(answer, tuple) and len(answer) == 2 else answer

    @timed
    def postprocess(self, data: Any) -> Any:
        """Boxes `{class: [x1, y1, x2, y2], "score": s}` of the detections above the threshold."""
        return [self._boxes(found) for found in data]

    def _boxes(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        sure = found["scores"] >= self.threshold
        boxes, classes, scores = (found[name][sure].tolist() for name in ("boxes", "labels", "scores"))
        named = map_class_to_label([[box] for box in boxes], self.mapping, [[label] for label in classes])
        return [{**box, "score": score} for box, score in zip(named, scores)]
