"""Example items for `jitney check`: given, from the decorator, or made up from type hints."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from jitney.definition import Endpoint
from jitney.http.convert import UNIONS

COUNT = 5
"""Enough for permutations to matter."""


def samples(endpoint: Endpoint, given: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]] | None:
    """At least a few items' arguments, or None if the type hints do not tell what an item is."""
    known = [dict(one) for one in (given or endpoint.options.examples or ())]
    if known:
        return (known * COUNT)[: max(COUNT, len(known))]
    try:
        return [_item(endpoint, seed) for seed in range(COUNT)]
    except LookupError:
        return None


def _item(endpoint: Endpoint, seed: int) -> dict[str, Any]:
    wanted = [param for param in endpoint.params if param.required]
    return {param.name: _value(param.hint, seed) for param in wanted}


def _value(hint: Any, seed: int) -> Any:
    plain = {int: seed, float: seed + 0.5, str: f"example {seed}", bool: seed % 2 == 0, dict: {"example": seed}}
    if hint in plain:
        return plain[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS or origin is typing.Annotated:
        return _value(args[0], seed)
    if origin is typing.Literal:
        return args[seed % len(args)]
    if origin is list and args:
        return [_value(args[0], seed), _value(args[0], seed + 1)]
    if origin is dict and args:
        return {"example": _value(args[1], seed)}
    raise LookupError(hint)
