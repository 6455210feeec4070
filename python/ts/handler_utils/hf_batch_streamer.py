"""Text of several generations at a time, as Hugging Face's `generate` makes its tokens.

The interface is that of transformers' streamers (`put`, `end`, iteration); every step gives a list with the new
text of each request. A character that needs more tokens is held back until it is whole.
"""

from __future__ import annotations

import queue
from typing import Any

UNFINISHED = "\ufffd"


class TextIteratorStreamerBatch:
    """Give it to `generate(streamer=...)` in a thread, and iterate over it in another."""

    def __init__(
        self, tokenizer: Any, skip_prompt: bool = False, timeout: float | None = None, batch_size: int = 1,
        **decode_kwargs: Any,
    ) -> None:  # fmt: skip
        self.tokenizer = tokenizer
        self.skip_prompt = skip_prompt
        self.timeout = timeout
        self.batch_size = batch_size
        self.decode_kwargs = decode_kwargs
        self.text_queue: queue.Queue[list[str] | None] = queue.Queue()
        self.next_tokens_are_prompt = True
        self._tokens: list[list[int]] = [[] for _ in range(batch_size)]
        self._told = [0] * batch_size

    def put(self, value: Any) -> None:
        """Takes the next token of every request, or the prompts at first."""
        rows = value.tolist()
        if len(rows) != self.batch_size:
            raise ValueError(f"the streamer was made for {self.batch_size} requests, not for {len(rows)}")
        if self.next_tokens_are_prompt:
            self.next_tokens_are_prompt = False
            if self.skip_prompt:
                return
        new = [self._take(place, row if isinstance(row, list) else [row]) for place, row in enumerate(rows)]
        self.on_finalized_text(new)

    def _take(self, place: int, tokens: list[int]) -> str:
        self._tokens[place] += tokens
        text = self.tokenizer.decode(self._tokens[place], **self.decode_kwargs)
        if text.endswith(UNFINISHED):
            return ""
        new = text[self._told[place] :]
        self._told[place] = len(text)
        return str(new)

    def end(self) -> None:
        """Gives what was held back, and ends the iteration."""
        rest = [
            self.tokenizer.decode(tokens, **self.decode_kwargs)[told:] for tokens, told in zip(self._tokens, self._told)
        ]
        self._tokens, self._told = [[] for _ in range(self.batch_size)], [0] * self.batch_size
        self.next_tokens_are_prompt = True
        self.on_finalized_text(rest, stream_end=True)

    def on_finalized_text(self, texts: list[str], stream_end: bool = False) -> None:
        """Passes new text on."""
        self.text_queue.put(texts)
        if stream_end:
            self.text_queue.put(None)

    def __iter__(self) -> TextIteratorStreamerBatch:
        return self

    def __next__(self) -> list[str]:
        texts = self.text_queue.get(timeout=self.timeout)
        if texts is None:
            raise StopIteration
        return texts
