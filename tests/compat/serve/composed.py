"""Deployments that call each other: a summariser and a translator, with rules instead of models."""

import asyncio

import requests
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request

WORDS = {"the": "la", "cat": "chat", "sleeps": "dort", "on": "sur", "mat": "natte", "dog": "chien", "barks": "aboie"}


@serve.deployment
class Summarizer:
    def __init__(self, words: int):
        self.words = words

    def summarize(self, text: str) -> str:
        return " ".join(text.split()[: self.words])


@serve.deployment(num_replicas=2)
class Translator:
    def translate(self, text: str) -> str:
        if "!" in text:
            raise ValueError("too loud")
        return " ".join(WORDS.get(word, word) for word in text.split())

    def __call__(self, text: str, *more: str, mark: str = ".") -> str:
        return self.translate(" ".join((text, *more))) + mark


@serve.deployment
class Reader:
    def __init__(self, parts: dict, greeting: str = ""):
        self.summarizer: DeploymentHandle = parts["summarizer"]
        self.translators: list[DeploymentHandle] = parts["translators"]
        self.greeting = greeting

    async def __call__(self, request: Request) -> dict:
        return await self.read(await request.json())

    async def read(self, texts: list[str]) -> dict:
        first, second = self.translators
        short = [self.summarizer.summarize.remote(text) for text in texts]
        translated = await asyncio.gather(*(first.translate.remote(one) for one in short))
        loop = "the"
        for _ in range(3):
            loop = await second.remote(loop, "cat", mark="")
        return {"greeting": self.greeting, "texts": translated, "loop": loop}

    async def failing(self) -> str:
        try:
            return await self.translators[0].translate.remote("dog!")
        except ValueError as error:
            return f"{'too loud' in str(error)}"

    def plain(self, text: str) -> str:
        return self.translators[0].translate.remote(text).result()


parts = {
    "summarizer": Summarizer.bind(4),
    "translators": [Translator.bind(), Translator.options(name="Second", num_replicas=1).bind()],
}
app = Reader.bind(parts, greeting="Bonjour")


def ask(url: str, handle) -> dict:
    texts = ["the cat sleeps on the mat all day", "the dog barks"]
    return {
        "web": requests.post(url, json=texts).json(),
        "python": handle.read.remote(texts).result(),
        "failing": handle.failing.remote().result(),
        "plain": handle.plain.remote("the dog").result(),
        "kind": requests.post(url, json=texts).headers["content-type"],
    }
