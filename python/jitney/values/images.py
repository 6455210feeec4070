"""Opens the images that clients send, within a limit of pixels.

Pillow only warns of images above its limit, up to twice as many pixels: half a gigabyte each. Here they are
errors, before a pixel is decoded.
"""

from __future__ import annotations

import io
import sys
from typing import Any

_chosen: int | None = None


class TooManyPixels(ValueError):
    """An image is larger than the server allows."""


def limit_pixels(pixels: int | None) -> None:
    """Sets the limit of this process, unless it is None. Pillow may still be missing, and is not imported for it."""
    global _chosen
    _chosen = pixels


def pixel_limit() -> int | None:
    """Pillow's limit, which is ours once Pillow is there; None if the model or the operator lifted it."""
    global _chosen
    images: Any = sys.modules["PIL.Image"]
    if _chosen is not None and images.MAX_IMAGE_PIXELS is not None:
        images.MAX_IMAGE_PIXELS = _chosen
    _chosen = None
    limit: int | None = images.MAX_IMAGE_PIXELS
    return limit


def open_image(content: Any) -> Any:
    """An image of which all pixels are read."""
    images: Any = sys.modules["PIL.Image"]
    limit = pixel_limit()
    try:
        image = images.open(io.BytesIO(content))
    except images.DecompressionBombError as error:
        raise TooManyPixels(str(error)) from None
    width, height = image.size
    if limit is not None and width * height > limit:
        what = f"{width} x {height} pixels, and the server takes at most {limit} (max_image_pixels)"
        raise TooManyPixels(f"it has {what}")
    image.load()
    return image
