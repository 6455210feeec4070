"""Which rows of tokens are run together. The server batches by what it sees of a text, its characters; how many tokens
it has is known only here. Pure: lengths in, groups out."""

from __future__ import annotations

from collections.abc import Sequence

LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Lengths that rows are padded to where graphs run them."""
SIZES = (1, 2, 4, 8, 16, 32, 64)
ROWS_MAX = SIZES[-1]
TOKENS_PER_BATCH = ROWS_MAX * 128
"""The most rows times their padded length in one run, unless one row alone is longer."""
FREE_PADDING = 256
"""So many tokens of padding cost less than a run of its own."""
CHARACTERS_PER_TOKEN = 4
"""By this the server guesses lengths."""


def allowed_lengths(longest: int) -> tuple[int, ...]:
    """The lengths up to that of the longest text."""
    return (*(one for one in LENGTHS if one < longest), longest)


def groups(lengths: Sequence[int]) -> list[list[int]]:
    """Positions of rows that are run together, those of like length; the longest group first."""
    made: list[list[int]] = []
    padding = 0
    for at in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        longest = lengths[made[-1][0]] if made else 0
        padding += longest - lengths[at]
        full = not made or len(made[-1]) >= ROWS_MAX or (len(made[-1]) + 1) * longest > TOKENS_PER_BATCH
        if full or (2 * lengths[at] < longest and padding > FREE_PADDING):
            made.append([])
            padding = 0
        made[-1].append(at)
    return made
