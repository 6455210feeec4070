"""What type checkers know of handles and definitions. Nothing here is run: `make lint` lets mypy check it.

An expected error is a comment that mypy would complain about if there were no error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from typing_extensions import assert_type

import jitney
from jitney.handle import AsyncCall, Call


@jitney.batch
def plain(text: list[str]) -> list[int]:
    return [len(one) for one in text]


@jitney.batch(max_batch_size=4)
def optioned(text: list[str], times: list[int] = jitney.default(1)) -> list[str]:  # noqa: B008
    return [one * many for one, many in zip(text, times)]


@jitney.batch(max_batch_size=4)
async def later(text: list[str]) -> list[bytes]:
    return [one.encode() for one in text]


@jitney.batch
def sequence(text: list[str]) -> Sequence[bool]:
    return tuple(map(bool, text))


@jitney.endpoint
def area(width: float, height: float = 1.0) -> float:
    return width * height


@jitney.endpoint(queue=3)
async def slow_area(width: float) -> float:
    return width


@jitney.endpoint
def letters(text: str) -> Iterator[str]:
    yield from text


@jitney.endpoint
async def slow_letters(text: str) -> AsyncIterator[str]:
    for one in text:
        yield one


@jitney.model(workers=2)
class Shop:
    """Methods stay methods."""

    @jitney.batch(max_batch_size=8)
    def price(self, item: list[str]) -> list[float]:
        return [float(len(one)) for one in item]

    @jitney.endpoint
    def hello(self, name: str) -> str:
        return name


class Dearer(Shop):
    @jitney.batch
    def price(self, item: list[str]) -> list[float]:
        return [2 * one for one in super().price(item)]


def decorated_functions_are_called_as_they_are_written() -> None:
    assert_type(plain(["a"]), list[int])
    assert_type(optioned(["a"]), list[str])
    assert_type(Shop().price(["tea"]), list[float])
    assert_type(Dearer().hello("Ann"), str)
    plain("a")  # type: ignore[arg-type]


def answers_have_the_type_of_one_item() -> None:
    assert_type(jitney.run(plain).remote("a").result(), int)
    assert_type(jitney.run(plain)("a"), int)
    assert_type(jitney.run(optioned, workers=2).remote("a", times=2), AsyncCall[str] | Call[str])
    assert_type(jitney.run(later).remote("a").result(), bytes)
    assert_type(jitney.run(sequence).remote("a").result(), bool)
    assert_type(jitney.run(area).remote(2.0, height=3.0).result(), float)
    assert_type(jitney.run(slow_area).remote(2.0).result(), float)
    assert_type(jitney.run(letters).remote("abc").result(), list[str])
    assert_type(jitney.run(slow_letters).remote("abc").result(), list[str])
    assert_type(jitney.run(area).options(timeout=1.0).remote(2.0).result(), float)
    assert_type(jitney.run(area).options(method_name="other").remote().result(), Any)
    assert_type(jitney.run(Shop).price.remote("tea").result(), Any)
    assert_type(jitney.run(jitney.bind(Shop)).price.remote("tea").result(), Any)


async def calls_are_awaited(handle: jitney.Handle[[str], int], untyped: jitney.Handle) -> None:
    assert_type(await later(["a"]), list[bytes])
    assert_type(await handle.remote("a"), int)
    assert_type(await untyped.anything.remote(1, two=3), Any)


def wrong_arguments_are_found(handle: jitney.Handle[[str], int]) -> None:
    jitney.run(area).remote("wide")  # type: ignore[arg-type]
    handle.remote(1)  # type: ignore[arg-type]
    jitney.run(area, worker=2)  # type: ignore[call-overload]
    jitney.batch(max_batchsize=3)  # type: ignore[call-overload]
    jitney.endpoint(queue="3")  # type: ignore[call-overload]
