"""From tokens to pieces of text. A piece is held back while it may be half a letter, or the beginning of a text that
ends the writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HALF = "\ufffd"
"""What a tokenizer writes for bytes that are no letter yet."""


class TextPieces:
    """The text of one writing."""

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stops = [one for one in stops if one]
        self._ids: list[int] = []
        self._from = 0
        """Tokens before this are decoded only to see what stands between two words."""
        self._done = 0
        """Tokens before this are in the text."""
        self._held = ""
        self.stopped = False
        """A stop was found: what follows is not wanted."""

    def add(self, tokens: Sequence[int]) -> str:
        """The text that more tokens make certain."""
        self._ids += tokens
        before = self._decode(self._ids[self._from : self._done])
        now = self._decode(self._ids[self._from :])
        if now.endswith(HALF) or len(now) <= len(before):
            return ""
        self._from, self._done = self._done, len(self._ids)
        return self._checked(now[len(before) :])

    def end(self) -> str:
        """What is left when no token follows."""
        rest = self._decode(self._ids[self._from :])[len(self._decode(self._ids[self._from : self._done])) :]
        found = self._checked(rest)
        held, self._held = self._held, ""
        return found if self.stopped else found + held

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def _checked(self, more: str) -> str:
        """What may be told of the text with this behind it."""
        if self.stopped:
            return ""
        text = self._held + more
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def overlap(text: str, stop: str) -> int:
    """How many letters at the end of a text are the beginning of a stop."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
