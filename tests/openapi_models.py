"""Ten definitions, one of each kind that `/openapi.json` has to describe."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pydantic

import jitney


@jitney.batch(max_batch_size=8)
def shout(text: list[str]) -> list[str]:
    """Makes it loud."""
    return [one.upper() for one in text]


class Pairs:
    """Arrays that belong together."""

    @jitney.batch(max_batch_size=8, inputs={"ids": jitney.Tensor("INT64", [-1, 3])})
    def total(self, ids: np.ndarray) -> np.ndarray:
        return np.atleast_2d(ids).sum(axis=1)


class Size(pydantic.BaseModel):
    """Of a box."""

    width: float = pydantic.Field(gt=0, le=1000)
    height: float = pydantic.Field(gt=0, le=1000)


class Box(pydantic.BaseModel):
    """A box in boxes."""

    name: str = ""
    size: Size
    inside: list[Box] = []
    colour: Literal["red", "blue"] = "red"


class Boxes:
    """Models of pydantic, one in the other."""

    @jitney.endpoint
    def area(self, box: Box, scale: int | None = None) -> float:
        """How large it is."""
        return box.size.width * box.size.height * (scale or 1)

    @jitney.endpoint
    def grown(self, box: Box) -> Box:
        return box


@dataclass
class Tree:
    """A dataclass that holds itself."""

    value: int
    children: list[Tree] = field(default_factory=list)


@jitney.endpoint
def count(tree: Tree) -> int:
    """Counts its nodes."""
    return 1 + sum(map(count, tree.children))


class Colour(enum.Enum):
    """What there is."""

    RED = "red"
    BLUE = "blue"


@jitney.endpoint
def choose(
    colour: Colour, size: Literal["s", "m", "l"] = "m", many: int | None = None, at: tuple[int, str] = (0, "")
) -> dict[str, str]:
    """One of several."""
    return {"colour": colour.value, "size": size}


class Streams:
    """Answers in pieces."""

    @jitney.endpoint
    def words(self, text: str) -> Iterator[str]:
        yield from text.split()

    @jitney.endpoint
    def rows(self, most: Literal[1, 2, 3] = 2) -> Iterator[dict[str, int]]:
        for at in range(most):
            yield {"row": at}


class Files:
    """Bytes with other fields."""

    @jitney.endpoint
    def length(self, file: bytes, name: str = "") -> int:
        return len(file)

    @jitney.endpoint
    def same(self, file: bytes) -> bytes:
        return file


class Routes:
    """Paths of its own."""

    @jitney.endpoint(route="POST /talk/answers")
    def answers(self, messages: list[dict[str, str]], temperature: float = 1.0) -> dict[str, Any]:
        return {"choices": messages}

    @jitney.endpoint(route="GET /talk/names")
    def names(self, prefix: str = "") -> list[str]:
        return [prefix]


class Other:
    """Has a class of the same name as another model."""

    @dataclass
    class Box:
        """Another box."""

        corners: list[tuple[float, float]]

    @jitney.endpoint
    def corners(self, box: Other.Box) -> int:
        return len(box.corners)


@jitney.endpoint
def anything(**fields: Any) -> Any:
    """Says nothing of what it takes."""
    return fields


MODELS = ["shout", "Pairs", "Boxes", "count", "choose", "Streams", "Files", "Routes", "Other", "anything"]
