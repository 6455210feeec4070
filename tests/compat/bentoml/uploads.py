"""Texts beside files, files inside models, and parameters that a pydantic model spells out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import bentoml
from pydantic import BaseModel, Field


class Portrait(BaseModel):
    image: Path
    threshold: float


class Prompt(BaseModel):
    prompt: str = Field(description="What to write about")
    temperature: float = Field(default=0.5, ge=0)


@bentoml.service
class Portraits:
    @bentoml.api(batchable=True)
    def predict(self, inputs: list[Portrait]) -> list[Path]:
        return [one.image for one in inputs]


@bentoml.service
class Uploads:
    portraits = bentoml.depends(Portraits)

    @bentoml.on_deployment
    def announce() -> None:
        print("the hook of the deployment has run")

    @bentoml.api
    def describe(
        self, document: Path, title: str, note: str | None = None, kind: Literal["a", "b"] = "a", pages: int = 1
    ) -> dict:
        return {"title": title, "note": note, "kind": kind, "pages": pages, "bytes": len(document.read_bytes())}

    @bentoml.api
    async def pass_on(self, image: Path, threshold: float) -> Path:
        found = await self.portraits.to_async.predict([Portrait(image=image, threshold=threshold)])
        return found[0]

    @bentoml.api
    def measure(self, portrait: Portrait) -> int:
        return len(portrait.image.read_bytes())

    @bentoml.api(input_spec=Portrait)
    def weigh(self, **params: Any) -> dict:
        return {"bytes": len(params["image"].read_bytes()), "threshold": params["threshold"]}

    @bentoml.api(input_spec=Prompt)
    def write(self, **params: Any) -> dict:
        return params
