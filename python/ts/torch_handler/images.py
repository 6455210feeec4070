"""From the bytes of one request to an image, and from images to a batch.

Whatever is wrong with a client's image becomes a PredictionException with status 400 here, so that it
fails alone. The arithmetic at the end of the usual transforms (`ToTensor`, `Normalize`) is done for the
whole batch at once, with the same operations in the same order: the same numbers, a quarter of the bytes
on their way to a GPU, and no interpreter time per image.
"""

from __future__ import annotations

import base64
import binascii
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from jitney.files.images import TooManyPixels, open_image
from ts.torch_handler.framing import Framing, framing_of
from ts.torch_handler.rows import value_of
from ts.torch_handler.settings import need
from ts.torch_handler.threads import ItemPool
from ts.utils.util import PredictionException

torch: Any = need("torch", "an image handler")
Image: Any = need("PIL.Image", "an image handler")
transforms: Any = need("torchvision.transforms", "an image handler")

BAD_IMAGE = 400

warnings.filterwarnings("ignore", "The given buffer is not writable")  # Nobody writes to what clients sent.


class Recipe:
    """An image transform, cut where work for one image ends and arithmetic for all begins."""

    def __init__(self, processing: Callable[[Any], Any], to_rgb: bool) -> None:
        self.processing = processing
        self.to_rgb = to_rgb
        self.head, self.normalize = cut(processing)

    def framing(self) -> Framing | None:
        """The steps before the arithmetic, if they are the usual ones and make pictures of one size."""
        if self.normalize is None or {len(self.normalize.mean), len(self.normalize.std)} != {3}:
            return None
        return framing_of(describe_step(step) for step in self.head)

    def is_plain(self) -> bool:
        """Whether the transform turns an image into numbers and does nothing else."""
        steps = getattr(self.processing, "transforms", ())
        return type(self.processing) is transforms.Compose and [type(step) for step in steps] == [transforms.ToTensor]

    def content_of(self, row: Any) -> Any:
        """The bytes of an image file; None if the row has none, or text that is no base64."""
        value = value_of(row)
        if isinstance(value, str):
            try:
                return decode_base64(value)
            except PredictionException:
                return None
        return value if isinstance(value, (bytes, bytearray, memoryview)) else None

    def read(self, row: Any) -> Any:
        """One row to a tensor, or to an image where the arithmetic is left to `stack`."""
        value = value_of(row)
        if isinstance(value, str):
            value = decode_base64(value)
        if not isinstance(value, (bytes, bytearray, memoryview)):
            return numbers(value)
        image = decode(value)
        if self.to_rgb and image.mode != "RGB":
            image = image.convert("RGB")
        if self.normalize is None or image.mode != "RGB":
            return self.processing(image)
        for step in self.head:
            image = step(image)
        return image

    def stack(self, items: Sequence[Any], device: Any) -> Any:
        """Items that `read` made, as one tensor on the device."""
        if self.normalize is not None and all(map(plain_rgb, items)) and len({item.size for item in items}) == 1:
            return self._normalized(torch.stack([pixels(item) for item in items]).to(device))
        tensors = [item if torch.is_tensor(item) else self._finished(item) for item in items]
        return torch.stack(tensors).to(device)

    def _normalized(self, batch: Any) -> Any:
        batch = batch.permute(0, 3, 1, 2).contiguous().to(torch.get_default_dtype())
        mean, deviation = self.statistics(batch.dtype, batch.device)
        return batch.div_(255).sub_(mean).div_(deviation)

    def statistics(self, dtype: Any, device: Any) -> tuple[Any, Any]:
        """The mean and deviation of every channel."""
        mean, deviation = (
            torch.as_tensor(values, dtype=dtype, device=device).view(-1, 1, 1)
            for values in (self.normalize.mean, self.normalize.std)
        )
        return mean, deviation

    def _finished(self, image: Any) -> Any:
        return self.normalize(transforms.functional.to_tensor(image))


def cut(processing: Any) -> tuple[list[Any], Any]:
    """The steps before `ToTensor, Normalize` and the Normalize, if a transform ends that way."""
    if type(processing) is not transforms.Compose or len(processing.transforms) < 2:
        return [], None
    *head, to_tensor, normalize = processing.transforms
    if type(to_tensor) is not transforms.ToTensor or type(normalize) is not transforms.Normalize:
        return [], None
    return head, normalize


def describe_step(step: Any) -> list[Any] | None:
    """A step of a transform in words that `framing` knows, if it does."""
    if type(step) is transforms.Resize and isinstance(step.size, int):
        plain = step.interpolation == transforms.InterpolationMode.BILINEAR and getattr(step, "max_size", None) is None
        return ["resize", step.size] if plain else None
    return ["center_crop", *map(int, step.size)] if type(step) is transforms.CenterCrop else None


def plain_rgb(item: Any) -> bool:
    """Whether an item is still an image of three bytes per pixel."""
    return getattr(item, "mode", None) == "RGB"


def pixels(image: Any) -> Any:
    """Height x width x 3 bytes, which nobody writes to."""
    return torch.frombuffer(image.tobytes(), dtype=torch.uint8).view(image.size[1], image.size[0], 3)


def decode(content: Any) -> Any:
    """Bytes to an image, fully read."""
    try:
        image = open_image(content)
    except TooManyPixels as error:
        raise PredictionException(f"the image is too large: {error}", BAD_IMAGE) from error
    except Exception as error:
        raise PredictionException(f"the image cannot be decoded: {error}", BAD_IMAGE) from error
    return image


def decode_base64(text: str) -> bytes:
    """An image in a JSON string."""
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError) as error:
        raise PredictionException(f"the image is text, but not base64: {error}", BAD_IMAGE) from error


def numbers(value: Any) -> Any:
    """Nested lists of numbers, for clients that prepare images themselves."""
    try:
        return torch.FloatTensor(value)
    except (TypeError, ValueError) as error:
        message = f"an image is bytes, base64 text or nested lists of numbers: {error}"
        raise PredictionException(message, BAD_IMAGE) from error


WRITTEN = object()
"""In place of an item that is in the batch already."""


class HostBatch:
    """The batch of one transform that makes images of one size, in the memory of the host.

    Each thread reads an image and puts its numbers where they belong, so that the arithmetic of `ToTensor` and
    `Normalize` is done side by side too, on memory that the thread's processor still has at hand.
    """

    def __init__(self, recipe: Recipe, framing: Framing, rows: Sequence[Any]) -> None:
        self.recipe = recipe
        self.rows = rows
        self.size = (framing.width, framing.height)
        self.numbers = torch.empty((len(rows), 3, framing.height, framing.width))
        self.mean, self.deviation = recipe.statistics(self.numbers.dtype, self.numbers.device)

    def read(self, pool: ItemPool) -> list[Any]:
        """One item per row: WRITTEN, or what could not be put into the batch: an exception, or numbers as they came."""
        return pool.map(self._read, range(len(self.rows)))

    def _read(self, place: int) -> Any:
        item = self.recipe.read(self.rows[place])
        if not plain_rgb(item) or item.size != self.size:
            return item
        levels = pixels(item).permute(2, 0, 1)
        self.numbers[place].copy_(levels).div_(255).sub_(self.mean).div_(self.deviation)
        return WRITTEN

    def of(self, items: Sequence[Any], good: Sequence[int]) -> Any:
        """The batch of the items at these places."""
        if any(items[place] is not WRITTEN for place in good):
            found = [self.numbers[place] if items[place] is WRITTEN else items[place] for place in good]
            return self.recipe.stack(found, self.numbers.device)
        return self.numbers if len(good) == len(items) else self.numbers[list(good)]
