"""Streaming text: every word is sent as soon as it is made, and each caller of a batch gets its own."""

from __future__ import annotations

from collections.abc import Iterator

import jitney

STORY = ["Once", "upon", "a", "time", "there", "were", "{}", "and", "everyone", "got", "a", "seat"]
WHOLE = len(STORY)


@jitney.batch(max_batch_size=8)
def tell(topic: list[str], words: list[int] = WHOLE) -> Iterator[list[str]]:
    """Tells a short story, word by word. The default is for callers that do not give a number."""
    for position, word in enumerate(STORY[: max(words)]):
        yield [word.format(one) + " " if position < most else jitney.END for one, most in zip(topic, words)]
