"""Finds out whether images can be decoded and resized on the model's device, by trying it when the model is loaded."""

from __future__ import annotations

import io
import logging
from typing import Any

from ts.torch_handler.device_images import Decode, DeviceImages, bytes_of
from ts.torch_handler.framing import Framing
from ts.torch_handler.images import Image, pixels, torch, transforms
from ts.torch_handler.needs import need
from ts.torch_handler.resizing import KernelResizer, Picture, Resizer, Shades, TorchResizer
from ts.torch_handler.settings import HandlerSettings

logger = logging.getLogger(__name__)

TORCHVISION_MIN = (0, 19)
"""The first that takes a list of files."""
SOME_COLOUR = (200, 100, 50)


def device_images(device: Any, settings: HandlerSettings) -> DeviceImages | None:
    """What reads images on this device, if there is anything that can and the model may."""
    if settings.decode == "cpu":
        return None
    if device.type != "cuda":
        if settings.decode == "gpu":
            logger.warning("jitney.decode is gpu, but the model runs on %s: images are decoded by Pillow", device)
        return None
    try:
        decode = nvjpeg(device)
    except Exception as error:
        logger.warning("Images are decoded by Pillow, as nvJPEG does not run on %s: %s", device, error)
        return None
    return DeviceImages(device, decode, resizer_for(device))


def nvjpeg(device: Any) -> Decode:
    """torchvision's decoder on a CUDA device, tried out with a small file."""
    version = tuple(int(part) for part in need("torchvision", "an image handler").__version__.split(".")[:2])
    if version < TORCHVISION_MIN:
        raise RuntimeError(f"torchvision {version[0]}.{version[1]} decodes no lists of files, 0.19 does")
    images: Any = need("torchvision.io", "an image handler")

    def decode(files: list[Any]) -> list[Any]:
        found: list[Any] = images.decode_jpeg(files, mode=images.ImageReadMode.RGB, device=device)
        return found

    buffer = io.BytesIO()
    Image.new("RGB", (48, 32), SOME_COLOUR).save(buffer, "JPEG", quality=95)
    (found,) = decode([bytes_of(bytearray(buffer.getvalue()))])
    if found.shape != (3, 32, 48) or not near(found.float().mean((1, 2)).cpu(), torch.tensor(SOME_COLOUR)):
        raise RuntimeError("nvJPEG decodes a plain picture to other colours")
    return decode


def resizer_for(device: Any) -> Resizer:
    """Our kernels if they give Pillow's numbers here, else torch."""
    try:
        resizer = KernelResizer(device)
        check(resizer, device)
    except Exception as error:
        logger.warning("Images are resized by torch, size by size, as our kernels do not run on %s: %s", device, error)
        return TorchResizer()
    return resizer


def check(resizer: Resizer, device: Any) -> None:
    """Raises unless two noisy pictures become what Pillow makes of them, but for one of 256 levels."""
    framing = Framing(40, 32, 24)
    steps = [transforms.Resize(40), transforms.CenterCrop((32, 24))]
    normalize = transforms.Normalize([0.0] * 3, [1.0] * 3)
    noise = torch.Generator().manual_seed(14)
    originals = [torch.randint(0, 256, (rows, 97, 3), generator=noise, dtype=torch.uint8) for rows in (53, 31)]
    wanted = []
    for original in originals:
        image = Image.frombytes("RGB", (97, original.shape[0]), bytes(original.flatten().tolist()))
        for step in steps:
            image = step(image)
        wanted.append(pixels(image).permute(2, 0, 1))
    pictures = []
    for place, original in enumerate(originals):
        frame = framing.frame(original.shape[0], 97)
        if frame is not None:
            pictures.append(Picture(original.permute(2, 0, 1).contiguous().to(device), frame, place))
    batch = torch.empty((len(originals), 3, 32, 24), device=device)
    resizer.resize(pictures, framing, Shades(normalize, batch.dtype, device), batch)
    if not near(batch.cpu() * 255, torch.stack(wanted), 1.5):
        raise RuntimeError("they do not give Pillow's numbers")


def near(found: Any, wanted: Any, most: float = 8.0) -> bool:
    """Whether two tensors are no more levels apart."""
    return bool((found - wanted).abs().max() < most)
