"""Opens images of the formats that the server takes, within a limit of pixels.

Pillow knows formats that run other programs (EPS) or decode before their size is known (ICO): those are not tried. It
only warns of images above its limit, up to twice as many pixels: half a gigabyte each. Here they are errors, before a
pixel is decoded.
"""

from __future__ import annotations

import io
import sys
from typing import Any

from jitney.files.limits import FileRejected, limits


class TooManyPixels(FileRejected):
    """An image is larger than the server allows."""


def pixel_limit() -> int | None:
    """Pillow's limit, which is ours once Pillow is there; None if the model or the operator lifted it."""
    images: Any = sys.modules["PIL.Image"]
    if limits.pixels is not None and images.MAX_IMAGE_PIXELS is not None:
        images.MAX_IMAGE_PIXELS = limits.pixels
    limits.pixels = None
    limit: int | None = images.MAX_IMAGE_PIXELS
    return limit


def open_image(content: Any) -> Any:
    """An image of which all pixels are read."""
    images: Any = sys.modules["PIL.Image"]
    limit = pixel_limit()
    try:
        image = images.open(io.BytesIO(content), formats=limits.image_formats)
        width, height = image.size
        if limit is not None and width * height > limit:
            what = f"{width} x {height} pixels, and the server takes at most {limit} (max_image_pixels)"
            raise TooManyPixels(f"it has {what}")
        image.load()
    except (FileRejected, MemoryError):
        raise
    except images.DecompressionBombError as error:
        raise TooManyPixels(str(error)) from None
    except images.UnidentifiedImageError:  # Its own text is an address in this process.
        known = ", ".join(limits.image_formats)
        raise FileRejected(f"no known image format; send one of {known} (image_formats)") from None
    except KeyError as error:
        raise FileRejected(f"image_formats names {error}, which the server's Pillow does not know") from None
    except Exception as error:  # Each of Pillow's formats has errors of its own.
        raise FileRejected(str(error)) from error
    return image
