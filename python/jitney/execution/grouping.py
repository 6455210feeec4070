"""Which items of a batch go into one call of the user's function.

The server forms batches by items, time and what it sees of an item; what that contains is known only here. Items whose
arrays do not fit together, whose buckets differ or whose cost is too much for one call are run
in calls of their own, in the order of arrival. An item that fits nowhere fails alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jitney.call.errors import BadInput, TooCostly
from jitney.call.request import Request
from jitney.definition.definition import Endpoint
from jitney.definition.expressions import Expression
from jitney.definition.hints import MISSING
from jitney.values.containers import container_of


@dataclass
class Item:
    """One call's arguments, by name."""

    arguments: dict[str, Any]
    request: Request = field(default_factory=Request)
    is_part: bool = False
    """Its request brings other items too, so that the server has not measured it by itself."""


@dataclass
class Invocation:
    """One call of the function."""

    positions: list[int]
    """The positions of its items in the batch."""
    arguments: dict[str, Any]
    sizes: list[int] | None = None
    """Rows per item where arrays were joined."""
    whole: bool = True
    """False if it has only a part of a single item's rows."""


class _Measured(NamedTuple):
    """An item with what decides which items it may be called with."""

    position: int
    arguments: dict[str, Any]
    key: Hashable
    rows: int | None
    cost: float


class _Load(NamedTuple):
    """The cost of a call so far."""

    items: int = 0
    longest: float = 0
    total: float = 0

    def plus(self, one: _Measured) -> _Load:
        """With the items of one more request."""
        return _Load(self.items + (one.rows or 1), max(self.longest, one.cost), self.total + one.cost)

    def weight(self, padded: bool | None) -> float:
        """What is limited: the sum, or all items if they were as long as the longest."""
        return self.items * self.longest if padded else self.total


@dataclass
class Plan:
    """The calls to make, and the items that failed already."""

    invocations: list[Invocation] = field(default_factory=list)
    failed: dict[int, BaseException] = field(default_factory=dict)


def plan(endpoint: Endpoint, items: Sequence[Item]) -> Plan:
    """Arranges a batch into calls."""
    if endpoint.batched and endpoint.takes_lists and len(items) <= endpoint.max_batch_size:
        arguments = _columns(endpoint, items)
        if arguments is not None and (endpoint.is_plain or _fits(endpoint, items)):
            return Plan([Invocation(list(range(len(items))), arguments)])
    made = Plan()
    groups: dict[Hashable, list[list[_Measured]]] = {}
    loads: dict[Hashable, _Load] = {}
    for at, item in enumerate(items):
        try:
            if not endpoint.batched:
                made.invocations.append(Invocation([at], complete(endpoint, item)))
                continue
            one = _measure(endpoint, at, item)
        except Exception as error:
            made.failed[at] = error
            continue
        calls = groups.setdefault(one.key, [])
        load = loads.get(one.key, _Load()).plus(one)
        if not calls or _is_too_much(endpoint, load):
            calls.append([])
            load = _Load().plus(one)
        calls[-1].append(one)
        loads[one.key] = load
    for call in sorted((call for calls in groups.values() for call in calls), key=lambda call: call[0].position):
        made.invocations += _invocations(endpoint, call)
    return made


def _columns(endpoint: Endpoint, items: Sequence[Item]) -> dict[str, list[Any]] | None:
    """The arguments of a call with all items; None if one of them must be looked at by itself."""
    names = {param.name for param in endpoint.params}
    if not all(names.issuperset(item.arguments) for item in items):
        return None
    columns: dict[str, list[Any]] = {}
    for param in endpoint.params:
        name, default = param.name, param.default
        if param.is_request:
            columns[name] = [item.request for item in items]
            continue
        if default is MISSING and not all(name in item.arguments for item in items):
            return None
        columns[name] = [item.arguments.get(name, default) for item in items]
    return columns


def _fits(endpoint: Endpoint, items: Sequence[Item]) -> bool:
    """Whether all items together cost no more than one call may; False if one of them must be looked at by itself."""
    cost_of = endpoint.options.cost_of
    if cost_of is None:
        return False
    try:
        costs = [_cost(endpoint, cost_of(item.arguments)) for item in items]
    except Exception:  # Its own item fails of it, which is found out one by one.
        return False
    return not _is_too_much(endpoint, _Load(len(costs), max(costs, default=0), sum(costs)))


def _is_too_much(endpoint: Endpoint, load: _Load) -> bool:
    """Whether a call may not be so large."""
    sizes = endpoint.shapes.sizes
    return (bool(sizes) and load.items > sizes[-1]) or load.weight(endpoint.options.padded) > endpoint.max_batch_size


def _measure(endpoint: Endpoint, position: int, item: Item) -> _Measured:
    arguments = complete(endpoint, item)
    if endpoint.is_plain:
        return _Measured(position, arguments, None, None, 1)
    options, dim = endpoint.options, endpoint.options.dims[0]
    rows: int | None = None
    key: list[Hashable] = []
    for name, value in arguments.items():
        container = container_of(value)
        key.append(name)
        if container is None or name in endpoint.lists:
            key.append(None)
            continue
        rows = _same_rows(name, _rows(name, value, dim), rows)
        key.append(container.signature(value, dim))
    own = {param.name: item.arguments[param.name] for param in endpoint.params if param.name in item.arguments}
    own = item.arguments if endpoint.shape.takes_any else own
    bucket_of = options.bucket_of or (_of(options.bucket) if item.is_part else None)
    cost_of = options.cost_of or (_of(options.cost) if item.is_part else None)
    if bucket_of is not None:
        key.append(_hashable(bucket_of(own)))
    cost = float(rows or 1) if cost_of is None else _cost(endpoint, cost_of(own))
    return _Measured(position, arguments, tuple(key), rows, cost)


def _of(measure: Any) -> Any:
    return measure.of if isinstance(measure, Expression) else None


def complete(endpoint: Endpoint, item: Item) -> dict[str, Any]:
    """An item's arguments in the order of the parameters, whatever order the caller gave them in."""
    given = item.arguments
    found: dict[str, Any] = {}
    for param in endpoint.params:
        if param.is_request:
            found[param.name] = item.request
        elif param.name in given:
            found[param.name] = given[param.name]
        elif param.default is not MISSING:
            found[param.name] = param.default
        else:
            raise BadInput.missing(one.name for one in endpoint.params if one.required and one.name not in given)
    if found.keys() >= given.keys():
        return found
    for name in given.keys() - found.keys():
        if not endpoint.shape.takes_any:
            raise BadInput(f"there is no parameter {name!r}", errors=[(name, "there is no such parameter")])
        found[name] = given[name]
    return found


def _rows(name: str, value: Any, dim: int) -> int:
    container = container_of(value)
    try:
        return container.rows(value, dim) if container else 1
    except ValueError as error:
        raise BadInput(f"parameter {name!r}: {error}") from None


def _same_rows(name: str, rows: int, before: int | None) -> int:
    if before is not None and rows != before:
        raise BadInput(f"parameter {name!r} has {rows} rows and another has {before}; they must agree")
    return rows


def _cost(endpoint: Endpoint, cost: Any) -> float:
    if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not cost >= 0:
        raise TypeError(f"cost must return a number, 0 or more, not {cost!r}")
    if cost > endpoint.max_batch_size:
        raise TooCostly(f"this item costs {cost:g} and a whole batch may cost {endpoint.max_batch_size}")
    return float(cost)


def _hashable(bucket: Any) -> Hashable:
    return bucket if isinstance(bucket, Hashable) and _has_hash(bucket) else repr(bucket)


def _has_hash(bucket: Hashable) -> bool:
    try:
        hash(bucket)
    except TypeError:  # A tuple of lists, for example.
        return False
    return True


def _invocations(endpoint: Endpoint, call: Sequence[_Measured]) -> list[Invocation]:
    """The call of a group; several if a lone item has more rows than one call takes."""
    invocation = _join(endpoint, call)
    rows = call[0].rows
    if len(call) > 1 or rows is None or rows <= endpoint.max_batch_size or endpoint.options.cost is not None:
        return [invocation]
    most = endpoint.max_batch_size
    return [_piece(endpoint, call[0], start, min(start + most, rows)) for start in range(0, rows, most)]


def _join(endpoint: Endpoint, call: Sequence[_Measured]) -> Invocation:
    dim = endpoint.options.dims[0]
    joined: dict[str, Any] = {}
    for name, first in call[0].arguments.items():
        values = [one.arguments[name] for one in call]
        container = None if name in endpoint.lists else container_of(first)
        joined[name] = values if container is None else container.join(values, dim)
    sizes = None if call[0].rows is None else [one.rows or 0 for one in call]
    return Invocation([one.position for one in call], joined, sizes)


def _piece(endpoint: Endpoint, one: _Measured, start: int, end: int) -> Invocation:
    dim = endpoint.options.dims[0]
    cut: dict[str, Any] = {}
    for name, value in one.arguments.items():
        container = None if name in endpoint.lists else container_of(value)
        cut[name] = [value] if container is None else container.cut(value, start, end, dim)
    return Invocation([one.position], cut, [end - start], whole=False)
