"""Which new texts are begun together, and the table of whole numbers that tells a network about them. Pure: lengths
and times in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitney.gpu.device import find_torch

PROMPT_SIZES = (1, 4, 16, 64)
"""Numbers of texts that graphs are captured for."""
TOKENS_MIN, TOKENS_USUAL, TOKENS_MAX = 512, 2048, 16384
LONG_SECONDS = 0.05
"""Those who are being answered wait no longer for new texts, if that can be helped."""


class PromptBudget:
    """How many tokens of new texts are run between two steps: more where the model is quick with them."""

    def __init__(self) -> None:
        self.tokens = TOKENS_USUAL

    def learn(self, tokens: int, seconds: float) -> None:
        """So many tokens, with their padding, took so long."""
        if seconds > LONG_SECONDS:
            self.tokens = max(TOKENS_MIN, self.tokens // 2)
        elif seconds < LONG_SECONDS / 2 and 2 * tokens >= self.tokens:
            self.tokens = min(TOKENS_MAX, 2 * self.tokens)


def prompt_table(rows: Sequence[list[int]], shape: tuple[int, int], first: int, spare: int) -> Any:
    """A row for each text: its tokens at the end, the columns of the cache that they are written to, the slot, and how
    many tokens are empty. Those are written behind the text, where its next tokens will be. Rows that are too many
    have the spare slot."""
    torch = find_torch()
    count, length = shape
    table = torch.zeros(count, 2 * length + 2, dtype=torch.int64)
    empty = torch.full((count,), length - 1)
    for at, row in enumerate(rows):
        table[at, length - len(row) : length] = torch.tensor(row)
        empty[at] = length - len(row)
    table[:, length : 2 * length] = (torch.arange(length)[None, :] - empty[:, None]) % length
    table[:, -2] = spare
    table[: len(rows), -2] = torch.arange(first, first + len(rows))
    table[:, -1] = empty
    return table


def split_table(table: Any, length: int) -> tuple[Any, Any, Any, Any]:
    """Tokens, columns, slots and how many tokens are empty."""
    return table[:, :length], table[:, length : 2 * length], table[:, -2], table[:, -1]
