"""Which new texts are begun together, which are read in parts, and the table of whole numbers that tells a network
about them. Pure: lengths and times in, numbers out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from jitney.gpu.device import find_torch

PROMPT_SIZES = (1, 4, 16, 64)
"""Numbers of texts that graphs are captured for."""
TOKENS_MIN, TOKENS_USUAL, TOKENS_MAX = 128, 2048, 16384
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

    def left(self, tokens: int) -> int:
        """How many a long text may have where others took so many: always some."""
        return max(TOKENS_MIN, self.tokens - tokens)


class Prompted(Protocol):
    """A new text."""

    prompt: list[int]
    left: bool
    """Nobody waits for it any more."""


Text = TypeVar("Text", bound=Prompted)


class NewTexts(Generic[Text]):
    """New texts until they are begun, in the order in which they came; but those whose prompts are read in parts have
    a line of their own, where the others pass them."""

    def __init__(self) -> None:
        self.budget = PromptBudget()
        self._short: deque[Text] = deque()
        self._long: deque[Text] = deque()

    def __bool__(self) -> bool:
        return bool(self._short or self._long)

    def put(self, text: Text) -> None:
        """Adds the newest."""
        (self._short if len(text.prompt) <= self.budget.tokens else self._long).append(text)

    def together(self, most: int) -> list[Text]:
        """Those that are begun now: as many as there is time for, and at least one."""
        found: list[Text] = []
        _drop_left(self._short)
        while self._short and len(found) < min(most, PROMPT_SIZES[-1]):
            if found and padded([*found, self._short[0]]) > self.budget.tokens:
                break
            found.append(self._short.popleft())
            _drop_left(self._short)
        return found

    def long(self) -> Text | None:
        """The next that is read in parts."""
        _drop_left(self._long)
        return self._long.popleft() if self._long else None


def padded(texts: Sequence[Text]) -> int:
    """The tokens of texts that are begun together, with their padding."""
    return len(texts) * max((len(one.prompt) for one in texts), default=0)


def _drop_left(texts: deque[Text]) -> None:
    while texts and texts[0].left:
        texts.popleft()


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
