"""A look at the head of a JPEG: enough to know who can decode it, without decoding anything."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

START = b"\xff\xd8"
END = b"\xff\xd9"
END_WITHIN = 16
"""So many bytes may follow the mark of the end; files are padded by some cameras."""
SEGMENTS_MAX = 64
HEAD_BYTES = 1024
SEGMENT = Struct(">BBH")
"""The mark 0xff, the kind, and the length with its own two bytes."""
FRAME = Struct(">BHHB")
"""Bits of a sample, height, width, components; three bytes for each component follow."""
SEQUENTIAL = frozenset((0xC0, 0xC1))
"""Frames of Huffman codes, one scan after another. The others are progressive, lossless or arithmetic."""
SCAN = 0xDA
ADOBE = 0xEE
ADOBE_TRANSFORM_AT = 15
REFUSED = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {SCAN}
read_segment = SEGMENT.unpack_from
read_frame = FRAME.unpack_from
read_colours = Struct("9B").unpack_from
read_byte = Struct("B").unpack_from
RGB_NAMES = (0x52, 0x47, 0x42)
"""Components that are named R, G and B are no YCbCr."""


class JpegHead(NamedTuple):
    """What the head of a plain JPEG says: 8 bits, sequential, grey or YCbCr."""

    width: int
    height: int
    components: int
    sampling: tuple[int, int]
    """How many columns and rows share a colour: (1, 1) is 4:4:4, (2, 1) is 4:2:2, (2, 2) is 4:2:0."""


def look(content: Any) -> JpegHead | None:
    """The head of a plain and whole JPEG; None for anything else, which is for Pillow to read or to refuse."""
    begin = bytes(content[:HEAD_BYTES])  # Reading bytes is faster than reading a view.
    if begin[:2] != START or END not in bytes(content[-END_WITHIN:]):
        return None
    try:
        return walk(begin)
    except StructError:  # It is longer than most.
        if len(begin) == len(content):
            return None
    try:
        return walk(content)
    except StructError:
        return None


def walk(content: Any) -> JpegHead | None:
    """From segment to segment up to the frame; raises where the content ends before it."""
    at, plain = 2, True
    for _ in range(SEGMENTS_MAX):
        mark, kind, length = read_segment(content, at)
        if mark != 0xFF or length < 2:
            return None
        if kind in SEQUENTIAL:
            return frame(content, at + 4, length - 2) if plain else None
        if kind in REFUSED:
            return None
        if kind == ADOBE and length > ADOBE_TRANSFORM_AT - 2:
            (transform,) = read_byte(content, at + ADOBE_TRANSFORM_AT)
            plain = transform == 1
        at += 2 + length
    return None


def frame(content: Any, at: int, length: int) -> JpegHead | None:
    """The frame's own segment."""
    if length < FRAME.size:
        return None
    bits, height, width, components = read_frame(content, at)
    if bits != 8 or not height or not width or length < FRAME.size + 3 * components:
        return None
    if components == 1:
        return JpegHead(width, height, 1, (1, 1))
    if components != 3:
        return None
    one, sampling, _, two, second, _, three, third, _ = read_colours(content, at + FRAME.size)
    if (one, two, three) == RGB_NAMES or second != 0x11 or third != 0x11:
        return None
    return JpegHead(width, height, 3, (sampling >> 4, sampling & 15))
