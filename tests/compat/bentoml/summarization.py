"""A text in, a shorter text out, as in BentoML's first tutorial; a rule instead of a language model."""

from __future__ import annotations

import re
from collections import Counter

import bentoml

EXAMPLE_INPUT = (
    "Breaking news. A cat was seen on a roof in the old town. The cat of the old town refused to leave the roof. "
    "Fire fighters offered fish."
)
WORD = re.compile(r"\w+")


@bentoml.service(
    resources={"cpu": "2"},
    traffic={"timeout": 30},
)
class Summarization:
    def __init__(self) -> None:
        self.stop_words = {"a", "the", "of", "in", "on", "to", "was"}
        self.started = False

    @bentoml.on_startup
    def start(self):
        self.started = True

    @bentoml.on_shutdown
    async def stop(self):
        self.started = False

    @bentoml.api
    def summarize(self, text: str = EXAMPLE_INPUT) -> str:
        counts = Counter(self.words(text))
        sentences = [one.strip() for one in re.split(r"(?<=\.)\s+", text) if one.strip()]
        return max(sentences, key=lambda one: sum(counts[word] for word in self.words(one)))

    @bentoml.api(route="/v1/keywords", name="keywords")
    async def find_keywords(self, text: str, limit: int = 3) -> list[str]:
        counts = Counter(self.words(text))
        return sorted(counts, key=lambda word: (-counts[word], word))[:limit]

    @bentoml.api
    def status(self, ctx: bentoml.Context) -> dict:
        ctx.response.status_code = 202
        ctx.response.headers["X-Asked-By"] = ctx.request.headers.get("x-name", "nobody")
        return {"started": self.started}

    def words(self, text: str) -> list[str]:
        return [word for word in WORD.findall(text.lower()) if word not in self.stop_words]
