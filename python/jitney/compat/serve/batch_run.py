"""Runs one batch: calls the function with lists, and gives every caller its own part of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from jitney.compat.serve.batch_items import BatchArguments, BatchItem
from jitney.compat.serve.exceptions import RayServeException

STOPS = (StopIteration, StopAsyncIteration)


async def run_unary(function: Callable[..., Any], arguments: BatchArguments, batch: Sequence[BatchItem]) -> None:
    """A function that returns a list with one answer per call."""
    try:
        positional, named = arguments.together([item.bound for item in batch])
        answers = _checked(await function(*positional, **named), len(batch))
    except asyncio.CancelledError:
        _fail_all(batch, RayServeException("the batch was cancelled"))
        raise
    except Exception as error:
        _fail_all(batch, error)
        return
    for item, answer in zip(batch, answers):
        item.answer(answer)


async def run_stream(function: Callable[..., Any], arguments: BatchArguments, batch: Sequence[BatchItem]) -> None:
    """A generator of lists with one piece per call; a caller whose piece is `StopIteration` gets no more."""
    ended: set[int] = set()
    try:
        positional, named = arguments.together([item.bound for item in batch])
        generator = function(*positional, **named)
        try:
            async for pieces in generator:
                for at, (item, piece) in enumerate(zip(batch, _checked(pieces, len(batch)))):
                    if at in ended:
                        continue
                    if piece in STOPS if isinstance(piece, type) else isinstance(piece, STOPS):
                        ended.add(at)
                        item.end()
                    else:
                        item.answer(piece)
                if all(item.is_gone for item in batch):
                    break
        finally:
            await generator.aclose()
    except asyncio.CancelledError:
        _fail_all(batch, RayServeException("the batch was cancelled"))
        raise
    except Exception as error:
        _fail_all(batch, error)
        return
    for item in batch:
        item.end()


def _checked(answers: Any, count: int) -> Sequence[Any]:
    """Answers that can be dealt out, one for each call; else nobody gets another caller's."""
    if isinstance(answers, (str, bytes, Mapping, Set)) or not (
        hasattr(answers, "__len__") and hasattr(answers, "__iter__")
    ):
        raise TypeError(
            f"a function with @serve.batch returns a list with one answer per call, not {type(answers).__name__}"
        )
    if len(answers) != count:
        raise RayServeException(
            f"a function with @serve.batch returned {len(answers)} answers to {count} calls: "
            "the answer must have one element per call"
        )
    found: Sequence[Any] = answers
    return found


def _fail_all(batch: Sequence[BatchItem], error: BaseException) -> None:
    for item in batch:
        item.fail(error)
