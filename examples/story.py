"""Streaming text: every word leaves as soon as it exists, and callers in a batch get their own."""

from __future__ import annotations

from collections.abc import Iterator

import jitney

STORY = ["Once", "upon", "a", "time", "there", "were", "{}", "and", "everyone", "got", "a", "seat"]
WHOLE = len(STORY)


@jitney.batch(max_batch_size=8)
def tell(topic: list[str], words: list[int] = WHOLE) -> Iterator[list[str]]:
    """Tells a short story, word by word. The default is what one caller gets who does not say."""
    for place, word in enumerate(STORY[: max(words)]):
        yield [word.format(one) + " " if place < most else jitney.END for one, most in zip(topic, words)]
