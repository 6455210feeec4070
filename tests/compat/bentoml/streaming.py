"""Answers in pieces, and checks of what comes in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Annotated

import bentoml
from annotated_types import Ge, Le
from pydantic import Field


@bentoml.service(traffic={"timeout": 60})
class Writer:
    @bentoml.api
    async def generate(
        self, prompt: str = "once upon a time", max_tokens: Annotated[int, Ge(1), Le(64)] = 8
    ) -> AsyncGenerator[str, None]:
        words = prompt.split()
        for at in range(max_tokens):
            yield f"{words[at % len(words)]} "

    @bentoml.api
    def count(
        self, limit: int = Field(default=3, ge=1, le=10, description="How far to count")
    ) -> Generator[str, None, None]:
        for number in range(limit):
            yield f"{number}\n"
