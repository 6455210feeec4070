"""Classes of pictures, things in them and where they are. A picture is the body of a request, or base64 in `inputs`."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any, ClassVar

from jitney.call.errors import BadInput, Error
from jitney.definition.decorators import batch
from jitney.files.images import open_image
from jitney.files.limits import FileRejected
from jitney.gpu.device import device, find_torch
from jitney.gpu.graphed import graphs
from jitney.loaders.huggingface.network import load_network, load_part, precision
from jitney.loaders.huggingface.scores import SCORES, ranked, score_kind, usual_kind
from jitney.loaders.huggingface.task import NOT_GIVEN, FolderTask, checked, or_error, whole

PICTURES_MAX = 64


class ImageTask(FolderTask):
    """A model over pictures."""

    example_file: ClassVar = ("image/jpeg", "picture.jpg")

    auto = ""

    def setup(self) -> None:
        """Once per worker."""
        import PIL.Image  # noqa: F401 - `open_image` looks for it.

        self.processor = load_part("AutoImageProcessor", self.folder, self.trust)
        self.model = load_network(self.auto, self.folder, self.trust)
        self.precision = precision(self.folder)
        self.run = graphs(self.forward)

    def forward(self, pixels: Any) -> Any:
        """The tensors that answers are made of, with a row for each picture."""
        return self.model(pixel_values=pixels).logits

    def answers(self, pictures: list[Any], parameters: list[dict[str, Any]]) -> list[Any]:
        """An answer for each picture."""
        raise NotImplementedError

    @batch(max_batch_size=PICTURES_MAX)
    def predict(self, inputs: list[Any], parameters: list[Any] = NOT_GIVEN) -> list[Any]:
        """Answers as the task's pipeline gives them."""
        opened: list[Any] = [_picture(one, told) for one, told in zip(inputs, parameters)]
        good = [at for at, one in enumerate(opened) if not isinstance(one, Exception)]
        if good:
            pictures, told = zip(*(opened[at] for at in good))
            for at, answer in zip(good, self.answers(list(pictures), list(told))):
                opened[at] = answer
        return opened

    def outputs(self, pictures: list[Any]) -> list[Any]:
        """What the model gives for pictures; those that differ in size after preparation are run apart."""
        torch = find_torch()
        found: list[Any] = [None] * len(pictures)
        by_shape: dict[Any, list[tuple[int, Any]]] = {}
        for at, picture in enumerate(pictures):
            pixels = self.processor(images=picture, return_tensors="pt")["pixel_values"]
            by_shape.setdefault(tuple(pixels.shape), []).append((at, pixels))
        with torch.inference_mode():
            for group in by_shape.values():
                whole_batch = torch.cat([pixels for _, pixels in group]).to(device(), self.precision)
                for (at, _), one in zip(group, rows_of(self.run(whole_batch))):
                    found[at] = one
        return found


def rows_of(outputs: Any) -> list[Any]:
    """The outputs of each item, where the processor reads them."""
    if isinstance(outputs, tuple):
        return list(zip(*(rows_of(one) for one in outputs)))
    return list(outputs.float().cpu())


class ImageClassification(ImageTask):
    """A picture's classes: `[{"label": ..., "score": ...}]`, the five best unless `top_k` says otherwise."""

    auto = "AutoModelForImageClassification"

    def answers(self, pictures: list[Any], parameters: list[dict[str, Any]]) -> list[Any]:
        """The best classes."""
        return [or_error(self._ranked, *one) for one in zip(self.outputs(pictures), parameters)]

    def _ranked(self, outputs: Any, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        labels = self.model.config.id2label
        kind = score_kind(parameters.get("function_to_apply"), usual_kind(self.model.config))
        return ranked(SCORES[kind](outputs).tolist(), labels, whole(parameters, "top_k", 5, len(labels)))


class ObjectDetection(ImageTask):
    """Things in a picture: `[{"label": ..., "score": ..., "box": {"xmin": ..., ...}}]`, with `threshold` 0.5."""

    auto = "AutoModelForObjectDetection"

    def forward(self, pixels: Any) -> Any:
        """Classes and boxes."""
        found = self.model(pixel_values=pixels)
        return found.logits, found.pred_boxes

    def answers(self, pictures: list[Any], parameters: list[dict[str, Any]]) -> list[Any]:
        """What is found in each."""
        together = zip(self.outputs(pictures), pictures, parameters)
        return [or_error(self._things, *one) for one in together]

    def _things(self, outputs: Any, picture: Any, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        from transformers.utils import ModelOutput

        threshold = parameters.get("threshold", 0.5)
        if not isinstance(threshold, int | float):
            raise BadInput(f"threshold must be a number, not {threshold!r}")
        logits, boxes = (one[None] for one in outputs)
        told = ModelOutput(logits=logits, pred_boxes=boxes)
        size = [(picture.height, picture.width)]
        found = self.processor.post_process_object_detection(told, threshold=threshold, target_sizes=size)[0]
        corners = ("xmin", "ymin", "xmax", "ymax")
        names = self.model.config.id2label
        return [
            {"score": score, "label": names[label], "box": dict(zip(corners, map(int, box)))}
            for score, label, box in zip(*(found[key].tolist() for key in ("scores", "labels", "boxes")))
        ]


class ImageSegmentation(ImageTask):
    """Where the classes of a picture are: `[{"label": ..., "score": null, "mask": ...}]`, each mask a PNG of the
    picture's size in base64, white where the class is."""

    auto = "AutoModelForSemanticSegmentation"

    def answers(self, pictures: list[Any], parameters: list[dict[str, Any]]) -> list[Any]:
        """The classes of each, in the order of their numbers."""
        return [self._masks(*one) for one in zip(self.outputs(pictures), pictures)]

    def _masks(self, outputs: Any, picture: Any) -> list[dict[str, Any]]:
        from transformers.utils import ModelOutput

        size = [(picture.height, picture.width)]
        told = ModelOutput(logits=outputs[None])
        classes = self.processor.post_process_semantic_segmentation(told, target_sizes=size)[0].cpu()
        names = self.model.config.id2label
        return [{"score": None, "label": names[one], "mask": _png(classes == one)} for one in classes.unique().tolist()]


def _png(mask: Any) -> str:
    """Truth values as a picture in base64."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(mask.byte().mul(255).numpy()).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _picture(value: Any, parameters: Any) -> Any:
    """The picture of one request and its parameters; an error in their place where they are wrong."""
    try:
        content = value
        if isinstance(value, str):
            content = base64.b64decode(value.partition(",")[2] if value.startswith("data:") else value, validate=True)
        if not isinstance(content, bytes | bytearray | memoryview):
            raise BadInput("send a picture as the body, or as base64 in inputs")
        return open_image(content).convert("RGB"), checked(parameters)
    except binascii.Error:
        return BadInput("inputs is no base64 of a picture; send the picture as the body, or encode it")
    except FileRejected as error:
        return BadInput(f"the picture cannot be read: {error}")
    except Error as error:
        return error
