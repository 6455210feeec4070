"""What the usual steps of a transform, `Resize` to a number and `CenterCrop`, make of a picture's size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

KNOWN_SIZES_MAX = 4096


class ImageFrame(NamedTuple):
    """Where the crop lies in a resized picture."""

    resized_height: int
    resized_width: int
    top: int
    left: int
    taps: int
    """How many pixels in a row or column one of the answer is made of, at most."""

    @property
    def size(self) -> int:
        """The pixels of the picture before it is cropped."""
        return self.resized_height * self.resized_width


class Framing(NamedTuple):
    """A transform that makes pictures of one size from those of any."""

    short: int | None
    """The length of the shorter side after `Resize`; None if there is no such step."""
    height: int
    width: int

    def frame(self, height: int, width: int) -> ImageFrame | None:
        """The crop of a picture of this size; None if the picture is too small for it."""
        return frame_of(self, height, width)


def framing_of(steps: Iterable[list[object] | None]) -> Framing | None:
    """The framing of steps as `images.describe_step` tells them, if they are of that kind and end with a crop."""
    known = list(steps)
    match known:
        case [["resize", int(short)], ["center_crop", int(height), int(width)]]:
            return Framing(short, height, width)
        case [["center_crop", int(height), int(width)]]:
            return Framing(None, height, width)
    return None


@lru_cache(KNOWN_SIZES_MAX)
def frame_of(framing: Framing, height: int, width: int) -> ImageFrame | None:
    """As torchvision counts: the longer side is cut to a whole number, the crop's corner is rounded."""
    short, resized_height, resized_width = framing.short, height, width
    if short is not None:
        longer = int(short * max(width, height) / min(width, height))
        resized_width, resized_height = (short, longer) if width <= height else (longer, short)
    if resized_height < framing.height or resized_width < framing.width:
        return None
    top, left = round((resized_height - framing.height) / 2.0), round((resized_width - framing.width) / 2.0)
    scale = max(height / resized_height, width / resized_width, 1.0)
    return ImageFrame(resized_height, resized_width, top, left, math.ceil(scale) * 2 + 1)
