"""Writes JPEGs of given coefficients: one with three planes, and one for each of its planes, which Pillow then reads
as it is. So a test knows the planes of a picture exactly, whatever their sampling."""

from __future__ import annotations

import random
import struct

COEFFICIENTS = 5
QUANTUM = 8
SIZES = list(range(12))
"""The symbols of both tables: how many bits follow. Their codes are 4 bits wide."""


class CodedJpeg:
    """A picture of random coefficients. `across` and `down`: how many columns and rows share a colour; 0 is grey."""

    def __init__(self, width, height, across, down, seed=0):
        self.width, self.height, self.across, self.down = width, height, across, down
        self._random = random.Random(seed)
        units = [(across or 1, down or 1)] + [(1, 1)] * (2 if across else 0)
        self.columns, self.rows = (
            -(-size // (8 * unit)) for size, unit in ((width, units[0][0]), (height, units[0][1]))
        )
        self.units = units
        self.planes = [
            {(row, column): self._block() for row in range(self.rows * down) for column in range(self.columns * across)}
            for across, down in units
        ]

    def _block(self):
        return [self._random.randint(-60, 60)] + [
            self._random.choice((-1, 1)) * self._random.randint(1, 12) for _ in range(COEFFICIENTS)
        ]

    def content(self):
        """The file."""
        order = [
            (plane, (row * down + y, column * across + x))
            for row in range(self.rows)
            for column in range(self.columns)
            for plane, (across, down) in enumerate(self.units)
            for y in range(down)
            for x in range(across)
        ]
        return written(self.width, self.height, self.units, [(plane, self.planes[plane][at]) for plane, at in order])

    def plane_sizes(self):
        """The width and height of every plane."""
        most_across, most_down = self.units[0]
        return [
            (-(-self.width * across // most_across), -(-self.height * down // most_down)) for across, down in self.units
        ]

    def plane(self, number):
        """The file of one plane, as a grey picture."""
        width, height = self.plane_sizes()[number]
        places = [(row, column) for row in range(-(-height // 8)) for column in range(-(-width // 8))]
        return written(width, height, [(1, 1)], [(0, self.planes[number][place]) for place in places])


def written(width, height, units, blocks):
    """A file with these blocks: the number of the plane and its coefficients."""
    bits, last = [], [0] * len(units)
    for plane, block in blocks:  # No coefficient is 0 but those behind the last, so that there are no runs.
        bits.append(number(block[0] - last[plane]))
        last[plane] = block[0]
        bits += [number(value) for value in block[1:]]
        bits.append("0000")
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    body = int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\x00")
    table = bytes([0, 0, 0, len(SIZES)] + [0] * 12 + SIZES)
    components = b"".join(bytes([place + 1, across << 4 | down, 0]) for place, (across, down) in enumerate(units))
    scan = bytes([len(units)]) + b"".join(bytes([place + 1, 0]) for place in range(len(units))) + b"\0\x3f\0"
    return b"".join(
        (
            b"\xff\xd8",
            segment(0xDB, b"\0" + bytes([QUANTUM]) * 64),
            segment(0xC0, struct.pack(">BHHB", 8, height, width, len(units)) + components),
            segment(0xC4, b"\x00" + table + b"\x10" + table),
            segment(0xDA, scan),
            body,
            b"\xff\xd9",
        )
    )


def number(value):
    """The code of a value: how many bits it has, and these."""
    size = abs(value).bit_length()
    return f"{size:04b}" + (f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else "")


def segment(kind, content):
    return struct.pack(">BBH", 0xFF, kind, len(content) + 2) + content
