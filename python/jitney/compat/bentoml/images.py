"""`bentoml.images.Image`: what a bundle's image would have in it. It can be written down, and has no effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class BentoImage:
    """An image that nobody builds: every step returns it again. `@bentoml.service(image=...)` warns of that."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.steps: list[tuple[str, tuple[Any, ...]]] = []
        """What was asked for, in order."""

    def __getattr__(self, name: str) -> Callable[..., BentoImage]:
        if name.startswith("_"):
            raise AttributeError(name)

        def step(*args: Any, **options: Any) -> BentoImage:
            self.steps.append((name, args))
            return self

        return step


Image = PythonImage = BentoImage
