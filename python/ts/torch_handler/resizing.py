"""Pictures of any sizes on a device to one batch: resized, cropped, normalised.

`KernelResizer` does it with kernels of our own, in three launches for the whole batch, and gives the numbers Pillow
gives. `TorchResizer` does it with torch alone, size by size, and may be one of 256 levels away from Pillow.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from jitney.gpu.nvjpeg import DevicePicture
from jitney.gpu.nvrtc import Kernels
from ts.torch_handler.framing import Framing, ImageFrame
from ts.torch_handler.resize_source import SOURCE
from ts.torch_handler.settings import need

torch: Any = need("torch", "an image handler")

KERNELS = ("weigh", "narrow_rows", "shorten_columns_16", "shorten_columns_32")
WIDE_BLOCK = 128
BLOCK = (32, 8, 1)
ROWS_PER_THREAD = 4
LEVELS = 256
COPIED_AT_ONCE = 1 << 15


class Picture(NamedTuple):
    """A decoded picture, its crop, and its place in the batch."""

    decoded: DevicePicture
    frame: ImageFrame
    place: int


class Shades:
    """The normalised number of every byte, by channel: what `ToTensor` and `Normalize` make of it."""

    def __init__(self, normalize: Any, dtype: Any, device: Any) -> None:
        mean, deviation = (torch.as_tensor(each, dtype=torch.float32) for each in (normalize.mean, normalize.std))
        levels = torch.arange(LEVELS, dtype=torch.float32).div(LEVELS - 1).repeat(3, 1)
        numbers = levels.sub_(mean.view(-1, 1)).div_(deviation.view(-1, 1))
        self.numbers = numbers.to(dtype).contiguous().to(device)


class Resizer(Protocol):
    """Writes pictures into their places of a batch."""

    def resize(self, pictures: Sequence[Picture], framing: Framing, shades: Shades, batch: Any) -> None:
        """Asks for it on the current stream; the pictures must stay until that is done."""


class KernelResizer:
    """With kernels of our own, on one CUDA device."""

    def __init__(self, device: Any, kernels: Any = None) -> None:
        self.device = device
        self.kernels = kernels or Kernels(SOURCE, KERNELS, device)

    def resize(self, pictures: Sequence[Picture], framing: Framing, shades: Shades, batch: Any) -> None:
        """Three launches and one small copy to the device."""
        stream = torch.cuda.current_stream(self.device.index or 0) if self.device.type == "cuda" else None
        height, width = framing.height, framing.width
        numbers, places, offset, taps, tallest = array("q"), array("q"), 0, 1, 1
        for (_, address, _, rows, columns), (resized_height, resized_width, top, left, needed), place in pictures:
            numbers.extend((address, rows, columns, resized_height, resized_width, top, left, offset))
            places.append(place)
            offset += 3 * rows * width
            if needed > taps:
                taps = needed
            if rows > tallest:
                tallest = rows
        count, outputs = len(pictures), width + height
        table = on_device(torch.frombuffer(numbers + places, dtype=torch.int64), self.device)
        between = torch.empty(offset, dtype=torch.uint8, device=self.device)
        memory = torch.empty((2 + taps) * count * outputs, dtype=torch.int32, device=self.device)
        sizes = (count, taps, width, height)
        launch = self.kernels.launch
        launch("weigh", (blocks(outputs, WIDE_BLOCK), count, 1), (WIDE_BLOCK, 1, 1), (table, memory, *sizes), stream)
        launch(
            "narrow_rows",
            (blocks(width, BLOCK[0]), blocks(tallest, BLOCK[1] * ROWS_PER_THREAD), count),
            BLOCK,
            (table, memory, between, *sizes),
            stream,
        )
        launch(
            "shorten_columns_16" if batch.element_size() == 2 else "shorten_columns_32",
            (blocks(width, BLOCK[0]), blocks(height, BLOCK[1]), count),
            BLOCK,
            (table, memory, between, shades.numbers, batch, *sizes, is_channels_last(batch)),
            stream,
        )


class TorchResizer:
    """With torch's own operations, on any device."""

    def resize(self, pictures: Sequence[Picture], framing: Framing, shades: Shades, batch: Any) -> None:
        """A few calls for the pictures of each size."""
        by_size: dict[tuple[int, int], list[Picture]] = {}
        for picture in pictures:
            by_size.setdefault((picture.decoded.height, picture.decoded.width), []).append(picture)
        for same in by_size.values():
            frame = same[0].frame
            levels = torch.stack([picture.decoded.pixels() for picture in same]).float()
            size = (frame.resized_height, frame.resized_width)
            if tuple(levels.shape[2:]) != size:
                levels = torch.nn.functional.interpolate(levels, size=size, mode="bilinear", antialias=True)
            crop = levels[..., frame.top : frame.top + framing.height, frame.left : frame.left + framing.width]
            places = torch.tensor([picture.place for picture in same], device=batch.device)
            batch[places] = shades_of(shades, crop.round().clamp_(0, LEVELS - 1).long()).to(batch.dtype)


def shades_of(shades: Shades, levels: Any) -> Any:
    """The normalised numbers of pictures in whole levels."""
    offsets = torch.arange(3, device=levels.device).mul_(LEVELS).view(1, 3, 1, 1)
    return shades.numbers.view(-1)[levels + offsets]


def on_device(numbers: Any, device: Any) -> Any:
    """A tensor of the host on its way to the device; nobody waits for it. A small one is copied at once."""
    if device.type == "cuda" and numbers.nbytes > COPIED_AT_ONCE:
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=True)


def is_channels_last(batch: Any) -> int:
    """Whether the three numbers of a pixel lie side by side; the batch is dense in either order."""
    return int(batch.stride(1) == 1 and batch.stride(3) == 3)


def blocks(size: int, block: int) -> int:
    """How many blocks cover the size."""
    return -(-size // block)
