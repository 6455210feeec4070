"""JPEGs that look like photos to a decoder: smooth areas, some grain, no two alike."""

from __future__ import annotations

import io
import pathlib
import random
from concurrent.futures import ThreadPoolExecutor

import numpy
from PIL import Image

BYTES_PER_PIXEL = 0.25
"""50 KB for 500 x 400."""
WIDTHS = (300, 1000)


def alike(count: int) -> list[bytes]:
    """Pictures of one size, 500 x 400."""
    return drawn([(seed, 500, 400) for seed in range(count)])


def many_sizes(count: int) -> list[bytes]:
    """Pictures of 300 to 1,000 pixels in width, upright and lying, each with a size of its own."""
    chance = random.Random(7)
    wanted = []
    for seed in range(count):
        wide = chance.randint(*WIDTHS)
        high = max(200, min(WIDTHS[1], int(wide * chance.choice([0.56, 0.67, 0.75, 0.8, 1.0, 1.33]))))
        wanted.append((1000 + seed, wide, high))
    return drawn(wanted)


def drawn(wanted: list[tuple[int, int, int]]) -> list[bytes]:
    """Pictures by seed, width and height; Pillow and numpy leave the interpreter to other threads."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda one: picture(*one), wanted))


def picture(seed: int, wide: int, high: int) -> bytes:
    """A picture in the best quality that has no more bytes than asked for."""
    chance = numpy.random.default_rng(seed)
    coarse = Image.fromarray(chance.integers(0, 256, (5, 6, 3), dtype=numpy.uint8))
    fine = Image.fromarray(chance.integers(0, 256, (40, 50, 3), dtype=numpy.uint8))
    large, small = (numpy.asarray(one.resize((wide, high), Image.BICUBIC), numpy.float32) for one in (coarse, fine))
    grain = chance.normal(0, 9, (high, wide, 3))
    pixels = numpy.clip(large * 0.7 + small * 0.3 + grain, 0, 255).astype(numpy.uint8)
    worst, best = 5, 97
    while worst < best:
        quality = (worst + best + 1) // 2
        if len(saved(pixels, quality)) <= BYTES_PER_PIXEL * wide * high:
            worst = quality
        else:
            best = quality - 1
    return saved(pixels, worst)


def saved(pixels: numpy.ndarray, quality: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def write(bodies: list[bytes], folder: pathlib.Path, ending: str) -> pathlib.Path:
    """A folder of bodies for `jitney bench`, which sends them in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, body in enumerate(bodies):
        (folder / f"{number:05}.{ending}").write_bytes(body)
    return folder


def files(folder: pathlib.Path) -> list[bytes]:
    """The bodies of a folder, in order."""
    return [path.read_bytes() for path in sorted(folder.iterdir())]
