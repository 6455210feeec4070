"""A text model whose calls are batched: eight questions that come together are one batch."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import requests
from ray import serve
from starlette.requests import Request


@serve.deployment(max_ongoing_requests=32)
class TextModel:
    def __init__(self, suffix: str):
        self.suffix = suffix
        self.batches: list[int] = []

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=20)
    async def complete(self, prompts: list[str], *, loud: list[bool]) -> list[str]:
        self.batches.append(len(prompts))
        await asyncio.sleep(0.01)
        texts = [f"{prompt} {self.suffix}" for prompt in prompts]
        return [text.upper() if shout else text for text, shout in zip(texts, loud)]

    async def __call__(self, request: Request) -> str:
        return await self.complete(request.query_params["text"], loud="loud" in request.query_params)

    async def say(self, text: str, loud: bool = False) -> str:
        return await self.complete(loud=loud, prompts=text)

    def sizes(self) -> list[int]:
        return self.batches

    async def reconfigure(self, config: dict):
        self.complete.set_max_batch_size(config.get("size", 8))


app = TextModel.bind("and so on.")


def ask(url: str, handle) -> dict:
    names = [f"Nr {number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        web = list(pool.map(lambda name: requests.get(url, params={"text": name}).text, names))
    responses = [handle.say.remote(name, loud=at % 2 == 0) for at, name in enumerate(names)]
    python = [response.result(timeout_s=60) for response in responses]
    refused = requests.get(url)
    return {
        "web": web,
        "python": python,
        "sizes": handle.sizes.remote().result(),
        "without the parameter": [refused.status_code, refused.text],
    }
