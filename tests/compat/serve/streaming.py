"""Answers in pieces: over HTTP, by handle, and of a whole batch."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import requests
from ray import serve
from starlette.requests import Request
from starlette.responses import StreamingResponse


@serve.deployment(max_ongoing_requests=20)
class Streamer:
    def numbers(self, limit: int):
        yield from range(limit)

    async def words(self, text: str):
        for word in text.split():
            yield word
            await asyncio.sleep(0)

    async def breaking(self):
        yield "first"
        raise ValueError("broken off")

    @serve.batch(max_batch_size=4, batch_wait_timeout_s=20)
    async def countdown(self, starts: list[int]):
        for step in range(max(starts) + 1):
            yield [f"{start - step} of {len(starts)};" if step <= start else StopIteration for start in starts]

    async def __call__(self, request: Request) -> StreamingResponse:
        pieces = self.countdown(int(request.query_params["start"]))
        return StreamingResponse(pieces, media_type="text/plain", status_code=202, headers={"x-streamed": "yes"})


app = Streamer.bind()


def ask(url: str, handle) -> dict:
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda start: requests.get(url, params={"start": start}, stream=True), (0, 1, 3, 2)))
    stream = handle.options(stream=True)
    broken = []
    try:
        broken.extend(stream.breaking.remote())
    except ValueError:
        broken.append("ValueError")

    async def inside() -> list:
        return [word async for word in stream.words.remote("one two three")]

    return {
        "web": [[one.status_code, one.headers["x-streamed"], one.headers["content-type"], one.text] for one in got],
        "numbers": list(stream.numbers.remote(4)),
        "none": list(stream.numbers.remote(0)),
        "words": asyncio.run(inside()),
        "broken": broken,
    }
