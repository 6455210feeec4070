"""Finds out whether images can be decoded and resized on the model's device, by trying it when the model is loaded."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from jitney.gpu.nvjpeg import DevicePicture, JpegFile, Nvjpeg
from ts.torch_handler.device_images import Decode, DeviceImages, bytes_of
from ts.torch_handler.framing import Framing
from ts.torch_handler.images import Image, pixels, torch, transforms
from ts.torch_handler.resizing import KernelResizer, Picture, Resizer, Shades, TorchResizer
from ts.torch_handler.settings import HandlerSettings, need

logger = logging.getLogger(__name__)

TORCHVISION_MIN = (0, 19)
"""The first that takes a list of files."""
SAMPLINGS = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0"}
NOT_WRITTEN = (1, 2)
"""4:4:0: Pillow writes none to try, but who interpolates the others interpolates it."""
FAITHFUL_LEVELS = 2.5
"""Another rounding of the cosine transform is 1 to 2 levels away on average, colours without interpolation 5 to 10."""


def device_images(device: Any, settings: HandlerSettings) -> DeviceImages | None:
    """What reads images on this device, if there is anything that can and the model may."""
    if settings.decode == "cpu":
        return None
    if device.type != "cuda":
        if settings.decode == "gpu":
            logger.warning("jitney.decode is gpu, but the model runs on %s: images are decoded by Pillow", device)
        return None
    decode, faithful = decoder_for(device, (lambda device: Nvjpeg(device).decode, torchvision_decoder))
    if decode is None:
        logger.warning("Images are decoded by Pillow, as nvJPEG does not run on %s", device)
        return None
    if set(SAMPLINGS) - faithful and settings.decode == "auto":
        said = ", ".join(name for sampling, name in SAMPLINGS.items() if sampling not in faithful)
        logger.warning("JPEGs of %s are decoded by Pillow: nvJPEG gives other colours (jitney.decode: gpu)", said)
    wanted = {*SAMPLINGS, NOT_WRITTEN} if settings.decode == "gpu" else faithful
    return DeviceImages(device, decode, resizer_for(device), wanted)


def decoder_for(
    device: Any, ways: Iterable[Callable[[Any], Decode]]
) -> tuple[Decode | None, AbstractSet[tuple[int, int]]]:
    """The first of some ways to decode that gives Pillow's pixels, else the one that does for most samplings, and for
    which."""
    best: tuple[Decode | None, AbstractSet[tuple[int, int]]] = (None, frozenset())
    for way in ways:
        try:
            decode = way(device)
            faithful = {sampling for sampling, name in SAMPLINGS.items() if is_faithful(decode, device, name)}
        except Exception as error:
            logger.warning("A way to nvJPEG does not work on %s: %s", device, error)
            continue
        if len(faithful) > len(best[1]):
            best = decode, faithful
        if len(faithful) == len(SAMPLINGS):
            return decode, faithful | {NOT_WRITTEN}
    return best


def torchvision_decoder(device: Any) -> Decode:
    """torchvision's decoder on a CUDA device."""
    version = tuple(int(part) for part in need("torchvision", "an image handler").__version__.split(".")[:2])
    if version < TORCHVISION_MIN:
        raise RuntimeError(f"torchvision {version[0]}.{version[1]} decodes no lists of files, 0.19 does")
    images: Any = need("torchvision.io", "an image handler")

    def decode(files: list[JpegFile]) -> list[DevicePicture]:
        contents = [file.content for file in files]
        return list(map(DevicePicture.of, images.decode_jpeg(contents, mode=images.ImageReadMode.RGB, device=device)))

    return decode


def trial_file(subsampling: str) -> tuple[JpegFile, Any]:
    """A small file of coloured blocks, and its pixels as Pillow reads them."""
    colours = torch.randint(60, 200, (16 * 24 * 3,), generator=torch.Generator().manual_seed(14))
    blocks = (
        Image.frombytes("RGB", (24, 16), bytes(colours.tolist())).resize((96, 64), Image.NEAREST).crop((0, 0, 95, 63))
    )
    buffer = io.BytesIO()
    blocks.save(buffer, "JPEG", quality=90, subsampling=subsampling)
    file = JpegFile(bytes_of(bytearray(buffer.getvalue())), 63, 95)
    return file, pixels(Image.open(buffer)).permute(2, 0, 1)


def is_faithful(decode: Decode, device: Any, subsampling: str) -> bool:
    """Whether a decoder gives Pillow's pixels for a sampling of colours, but for a level or two."""
    file, wanted = trial_file(subsampling)
    (decoded,) = decode([file])
    found = decoded.pixels()
    far = (found.cpu().float() - wanted.float()).abs().mean().item() if found.shape == wanted.shape else math.inf
    return far < FAITHFUL_LEVELS


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
            decoded = DevicePicture.of(original.permute(2, 0, 1).contiguous().to(device))
            pictures.append(Picture(decoded, frame, place))
    batch = torch.empty((len(originals), 3, 32, 24), device=device)
    resizer.resize(pictures, framing, Shades(normalize, batch.dtype, device), batch)
    far = (batch.cpu() * 255 - torch.stack(wanted)).abs().max().item()
    if not far < 1.5:
        raise RuntimeError(f"they are {far:.1f} levels away from Pillow")
