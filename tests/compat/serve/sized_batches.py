"""Batches that are limited by what their items cost, and two of them at a time."""

import asyncio
import time

import requests
from ray import serve
from starlette.requests import Request


@serve.deployment(max_ongoing_requests=64)
class Embedder:
    def __init__(self):
        self.batches: list[int] = []
        self.running = self.most = 0

    @serve.batch(
        max_batch_size=12,
        batch_wait_timeout_s=0.5,
        max_concurrent_batches=2,
        batch_size_fn=lambda texts: sum(len(text.split()) for text in texts),
    )
    async def embed(self, texts: list[str]) -> list[list[int]]:
        self.batches.append(sum(len(text.split()) for text in texts))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.05)
        self.running -= 1
        return [[len(word) for word in text.split()] for text in texts]

    async def __call__(self, request: Request) -> list[int]:
        return await self.embed((await request.body()).decode())

    async def one(self, text: str) -> list[int]:
        return await self.embed(text)

    def within(self) -> bool:
        return all(size <= 12 for size in self.batches) and self.most <= 2


app = Embedder.bind()


def ask(url: str, handle) -> dict:
    texts = ["word " * (1 + at % 6) for at in range(30)]
    began = time.monotonic()
    responses = [handle.one.remote(text) for text in texts]
    answers = [response.result() for response in responses]
    return {
        "answers": answers,
        "within": handle.within.remote().result(),
        "too large": requests.post(url, data="word " * 13).status_code,
        "afterwards": requests.post(url, data="still here").json(),
        "in time": time.monotonic() - began < 60,
    }
