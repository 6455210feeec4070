"""An application of three parts: a review is split into sentences, each sentence is scored, the scores are summed up.

jitney serve reviews:Reviews
curl http://127.0.0.1:8080/Reviews/sum_up --json '{"text": "The room was lovely. The breakfast was late."}'

Each part has workers, batches and a queue of its own: the sentences of all reviews share the batches of `Mood`.
"""

from __future__ import annotations

import asyncio
import re

import jitney

GOOD, BAD = {"good", "great", "lovely", "sunny"}, {"bad", "late", "rainy", "broken"}


class Sentences:
    """Splits texts."""

    @jitney.batch(max_batch_size=64)
    def split(self, text: list[str]) -> list[list[str]]:
        """The sentences of a text."""
        return [[one.strip() for one in re.split(r"[.!?]+", text) if one.strip()] for text in text]


@jitney.model(workers=2)
class Mood:
    """Scores sentences. A larger model would be on a GPU, and the other parts not."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    @jitney.batch(max_batch_size=32)
    def score(self, sentence: list[str]) -> list[float]:
        """How good a sentence sounds."""
        words = (set(one.lower().split()) for one in sentence)
        return [self.weight * (len(one & GOOD) - len(one & BAD)) for one in words]


class Reviews:
    """What a review says, all in all."""

    sentences = jitney.depends(Sentences)

    def __init__(self, mood: jitney.Handle = jitney.depends(Mood)) -> None:
        self.mood = mood

    @jitney.endpoint
    async def sum_up(self, text: str) -> dict[str, object]:
        """The scores of all sentences, and their sum."""
        sentences = await self.sentences.split.remote(text)
        scores = await asyncio.gather(*(self.mood.score.remote(one) for one in sentences))
        return {"sentences": dict(zip(sentences, scores)), "sum": sum(scores)}

    @jitney.endpoint
    async def follow(self, text: str):
        """The scores one by one, as they are known."""
        for sentence in await self.sentences.split.remote(text):
            yield f"{await self.mood.score.remote(sentence):+g} {sentence}\n"


strict = jitney.bind(Reviews, mood=jitney.bind(Mood, weight=2.0).with_options(workers=1))
