"""Images and files in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import bentoml
import PIL.Image
from PIL.Image import Image

PNG = bentoml.validators.ContentType("image/png")


@bentoml.service
class Pictures:
    @bentoml.api
    def size(self, image: Image) -> dict:
        return {"width": image.width, "height": image.height}

    @bentoml.api
    def thumbnail(self, image: Image, ctx: bentoml.Context, side: int = 8) -> Annotated[Path, PNG]:
        if side < 1:
            raise bentoml.exceptions.InvalidArgument("side must be 1 or more")
        image = image.convert("RGB").resize((side, side), PIL.Image.Resampling.NEAREST)
        target = Path(ctx.temp_dir) / "thumbnail.png"
        image.save(target)
        return target

    @bentoml.api
    def invert(self, image: Image) -> Annotated[Image, PNG]:
        return image.convert("L").point(lambda value: 255 - value)

    @bentoml.api
    def lines(self, document: Path, ctx: bentoml.Context) -> Path:
        lines = document.read_text().splitlines()
        target = Path(ctx.temp_dir) / "numbered.txt"
        target.write_text("".join(f"{number}: {line}\n" for number, line in enumerate(lines, 1)))
        return target
