"""Which rows of tokens are run together. The server batches by what it sees of a text, its characters; how many tokens
it has is known only here. Pure: lengths in, groups out."""

from __future__ import annotations

from collections.abc import Sequence

from jitney.gpu.shapes import ANY_SHAPE, AllowedShapes, next_size

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


def groups(lengths: Sequence[int], shapes: AllowedShapes = ANY_SHAPE) -> list[list[int]]:
    """Positions of rows that are run together, those of like length; the longest group first."""
    made = groups_by_length(lengths)
    return joined(made, lengths, shapes) if shapes.sizes else made


def groups_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """The same where any number of rows may run."""
    made: list[list[int]] = []
    padding = 0
    for at in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        longest = lengths[made[-1][0]] if made else 0
        padding += longest - lengths[at]
        full = not made or not fits(len(made[-1]) + 1, longest)
        if full or (2 * lengths[at] < longest and padding > FREE_PADDING):
            made.append([])
            padding = 0
        made[-1].append(at)
    return made


def joined(made: Sequence[list[int]], lengths: Sequence[int], shapes: AllowedShapes) -> list[list[int]]:
    """Groups put together where one run costs no more than two: a group runs at the next allowed number of rows, which
    may have room for those of the next group."""
    found: list[list[int]] = []
    for group in made:
        both = [*found[-1], *group] if found else []
        if both and fits(len(both), lengths[both[0]]):
            together, *apart = (run_tokens(one, lengths, shapes) for one in (both, found[-1], group))
            if together <= FREE_PADDING + sum(apart):
                found[-1] = both
                continue
        found.append(group)
    return found


def fits(rows: int, longest: int) -> bool:
    """Whether so many rows may run together."""
    return rows <= ROWS_MAX and rows * longest <= TOKENS_PER_BATCH


def run_tokens(group: Sequence[int], lengths: Sequence[int], shapes: AllowedShapes) -> int:
    """The tokens of a run, with those that only fill it up."""
    rows = next_size(shapes.sizes, len(group)) or len(group)
    return rows * shapes.length_for(lengths[group[0]])
