"""A service whose answers take a while: one API is a task."""

import time
from pathlib import Path

import bentoml


@bentoml.service(threads=4)
class Renderer:
    @bentoml.task
    def render(self, prompt: str, wait_for: str = "") -> dict[str, str]:
        while wait_for and not Path(wait_for).exists():
            time.sleep(0.01)
        if prompt == "bad":
            raise bentoml.exceptions.InvalidArgument("not this one")
        return {"picture": prompt.upper()}

    @bentoml.api
    def shout(self, text: str) -> str:
        return text.upper()
