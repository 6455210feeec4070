"""Requests to warm a model up with: a file of the archive, or a picture."""

from __future__ import annotations

import glob
import io
import json
import os
from typing import Any

from ts.torch_handler.settings import need

SAMPLE_FILES = "jitney_sample.*"
PICTURE_SIZE = (500, 400)
NOISE = 64


def sample_file(model_dir: str) -> Any:
    """What a request would bring whose body is the archive's `jitney_sample.*`; None if there is no such file."""
    found = sorted(glob.glob(os.path.join(glob.escape(model_dir), SAMPLE_FILES)))
    if not found:
        return None
    with open(found[0], "rb") as file:
        content = file.read()
    ending = os.path.splitext(found[0])[1].lower()
    if ending == ".json":
        return json.loads(content)
    return content.decode("utf-8") if ending == ".txt" else content


def picture() -> bytes:
    """A JPEG of noise, about as hard to decode as a photo."""
    image = need("PIL.Image", "an image handler")
    grey = image.effect_noise(PICTURE_SIZE, NOISE)
    buffer = io.BytesIO()
    image.merge("RGB", (grey, grey, grey)).save(buffer, "JPEG")
    return buffer.getvalue()
