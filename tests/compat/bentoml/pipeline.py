"""Services that call each other: one after the other, in parallel, and in a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import bentoml
import numpy as np
from pydantic import BaseModel


class Verdict(BaseModel):
    label: str
    score: float


@bentoml.service
class Tokenizer:
    @bentoml.api(batchable=True)
    def tokenize(self, texts: list[str]) -> list[list[str]]:
        return [text.lower().split() for text in texts]


@bentoml.service(workers=2)
class Scorer:
    def __init__(self) -> None:
        self.good = {"good", "great", "fine"}

    @bentoml.api
    def score(self, tokens: list[str]) -> float:
        return sum(token in self.good for token in tokens) / max(len(tokens), 1)

    @bentoml.api(batchable=True)
    def lengths(self, table: np.ndarray) -> np.ndarray:
        return np.linalg.norm(table, axis=1)


@bentoml.service
class Judge:
    scorer = bentoml.depends(Scorer)

    @bentoml.api
    async def judge(self, tokens: list[str]) -> Verdict:
        score = await self.scorer.to_async.score(tokens)
        return Verdict(label="positive" if score > 0.2 else "neutral", score=score)

    @bentoml.api
    async def spell(self, tokens: list[str]) -> AsyncGenerator[str, None]:
        for token in tokens:
            yield f"{token};"


@bentoml.service(traffic={"timeout": 20})
class Pipeline:
    tokenizer = bentoml.depends(Tokenizer)
    scorer = bentoml.depends(Scorer)
    judge = bentoml.depends(Judge)

    @bentoml.api
    async def classify(self, text: str) -> Verdict:
        (tokens,) = await self.tokenizer.to_async.tokenize([text])
        return await self.judge.judge(tokens)

    @bentoml.api
    async def compare(self, texts: list[str]) -> list[float]:
        tokens = await self.tokenizer.to_async.tokenize(texts)
        return await asyncio.gather(*(self.scorer.to_async.score(one) for one in tokens))

    @bentoml.api
    def norms(self, table: np.ndarray) -> list[float]:
        return self.scorer.lengths(table).tolist()

    @bentoml.api
    async def stream(self, text: str) -> AsyncGenerator[str, None]:
        (tokens,) = await self.tokenizer.to_async.tokenize([text])
        async for piece in self.judge.spell(tokens):
            yield piece.upper()
