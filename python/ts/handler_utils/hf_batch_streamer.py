"""Text of several generations at a time, as Hugging Face's `generate` makes its tokens.

One of transformers' own streamers per request decides when its text is ready; every step gives a list with
`{"text": ...}` for each request, which is what handlers pass on to their clients piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ts.torch_handler.settings import need

streamers: Any = need("transformers.generation.streamers", "ts.handler_utils.hf_batch_streamer")


class TextIteratorStreamerBatch(streamers.BaseStreamer):  # type: ignore[misc]  # A base that is known only when it is imported.
    """Give it to `generate(streamer=...)` in a thread, and iterate over it in another."""

    def __init__(
        self, tokenizer: Any, batch_size: int, skip_prompt: bool = False, timeout: float | None = None,
        **decode_kwargs: Any,
    ) -> None:  # fmt: skip
        self.batch_size = batch_size
        one = streamers.TextIteratorStreamer
        self.streamers = [one(tokenizer, skip_prompt, timeout, **decode_kwargs) for _ in range(batch_size)]
        self.streamer_iterators: list[Iterator[str]] = [iter(streamer) for streamer in self.streamers]

    def put(self, value: Any) -> None:
        """Takes the next token of every request, or the prompts at first."""
        if value.shape[0] != self.batch_size:
            raise ValueError(f"the streamer was made for {self.batch_size} requests, not for {value.shape[0]}")
        for place, streamer in enumerate(self.streamers):
            streamer.put(value[place : place + 1])

    def end(self) -> None:
        """Gives what was held back, and ends the iteration."""
        for streamer in self.streamers:
            streamer.end()

    def __iter__(self) -> TextIteratorStreamerBatch:
        return self

    def __next__(self) -> list[dict[str, str]]:
        # All of a batch get their tokens together, so the first that is at its end ends the batch; the others
        # are taken to theirs first, so that the streamer can be used for the next batch.
        texts = [next(iterator, None) for iterator in self.streamer_iterators]
        if any(text is None for text in texts):
            raise StopIteration
        return [{"text": text} for text in texts if text is not None]
