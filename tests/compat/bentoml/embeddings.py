"""Vectors of texts, many callers at a time: batchable APIs with lists and arrays."""

from __future__ import annotations

import hashlib

import bentoml
import numpy as np
from pydantic import BaseModel

SIZE = 16


class Entry(BaseModel):
    text: str
    weight: float = 1.0


@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 200})
class SentenceEmbedding:
    def __init__(self) -> None:
        self.calls = 0

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=20000)
    def encode(self, sentences: list[str]) -> np.ndarray:
        self.calls += 1
        return np.stack([self.vector(one) for one in sentences])

    @bentoml.api(batchable=True, batch_dim=(0, 0), max_batch_size=64)
    def normalise(self, vectors: np.ndarray) -> np.ndarray:
        self.calls += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    @bentoml.api(batchable=True, batch_dim=1)
    def column_sums(self, table: np.ndarray) -> np.ndarray:
        return table.sum(axis=0, keepdims=True)

    @bentoml.api(batchable=True)
    def weigh(self, entries: list[Entry]) -> list[float]:
        return [len(one.text) * one.weight for one in entries]

    @bentoml.api
    def count(self) -> int:
        return self.calls

    def vector(self, text: str) -> np.ndarray:
        digest = hashlib.sha256(text.encode()).digest()[:SIZE]
        return np.frombuffer(digest, dtype=np.uint8).astype(float) / 255
