"""`jitney check`: runs a definition without a server and looks for batching mistakes.

A model that is right for one item may be wrong for a batch: too few outputs, outputs that follow
the position instead of the item, outputs that depend on the other items. Each mistake is looked for
with example items: those given, those of the decorator, or ones made up from the type hints.
"""

from __future__ import annotations

import math
import random
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jitney.containers import container_of
from jitney.definition import Definition, Endpoint
from jitney.errors import WrongLength, describe
from jitney.execution import Instance
from jitney.grouping import Item
from jitney.http import answers, arguments
from jitney.http.convert import UNIONS

PERMUTATIONS = 3
SAMPLES = 5
"""Enough for permutations to matter."""
RELATIVE, ABSOLUTE = 1e-3, 1e-5
"""Batched arithmetic sums in another order; a wrong row differs by far more."""
SCALARS = (int, float, str, bool, bytes, dict)


@dataclass
class Report:
    """What was found about one endpoint."""

    endpoint: str
    passed: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def check(definition: Definition, given: Sequence[dict[str, Any]] = ()) -> int:
    """Prints a report; 1 if there are mistakes."""
    for remark in definition.remarks():
        print(f"{definition.name}: {remark}")
    reports = examine(definition, given)
    for report in reports:
        print(f"{definition.name}/{report.endpoint}")
        for mark, lines in (("ok", report.passed), ("note", report.remarks), ("WRONG", report.mistakes)):
            for line in lines:
                print(f"  {mark:<6}{line}")
    sys.stdout.flush()
    return 1 if any(report.mistakes for report in reports) else 0


def examine(definition: Definition, given: Sequence[dict[str, Any]] = ()) -> list[Report]:
    """One report per endpoint."""
    instance = Instance(definition)
    try:
        return [
            _Examination(instance, one, _meant_for(one, definition, given)).report() for one in definition.endpoints
        ]
    finally:
        instance.close()


def _meant_for(endpoint: Endpoint, definition: Definition, given: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The examples with an endpoint's parameters; one that fits no endpoint is given to all, which then report it."""

    def fits(one: Endpoint, sample: dict[str, Any]) -> bool:
        return one.shape.takes_any or sample.keys() <= {param.name for param in one.params}

    known = definition.endpoints
    if len(known) == 1:
        return list(given)
    return [sample for sample in given if fits(endpoint, sample) or not any(fits(one, sample) for one in known)]


class _Examination:
    def __init__(self, instance: Instance, endpoint: Endpoint, given: Sequence[dict[str, Any]]) -> None:
        self._instance = instance
        self._endpoint = endpoint
        self._given = given
        self._report = Report(endpoint.name)

    def report(self) -> Report:
        """Runs every test that applies."""
        endpoint, report = self._endpoint, self._report
        self._check_hints()
        items = self._items()
        if items is None or endpoint.streams:
            return report
        alone = [self._run([item]) for item in items]
        alone_outcomes = [outcome[0] for outcome in alone if outcome is not None]
        if len(alone_outcomes) < len(items):
            return report
        self._check_outputs(alone_outcomes)
        if endpoint.batched:
            self._compare_with_batch(items, alone_outcomes)
        return report

    def _items(self) -> list[Item] | None:
        raw = samples(self._endpoint, self._given)
        if raw is None:
            self._report.remarks.append(
                "not run: no example could be made up; give --sample '{...}' or examples=[...] in the decorator"
            )
            return None
        try:
            return [Item(arguments.read(self._endpoint, {"body": one})) for one in raw]
        except Exception as error:
            self._report.mistakes.append(f"an example is not accepted: {describe(error)}")
            return None

    def _check_hints(self) -> None:
        for param in self._endpoint.params:
            if self._endpoint.batched and not param.is_list and param.hint in SCALARS:
                kind = param.hint.__name__
                self._report.mistakes.append(
                    f"parameter {param.name!r} is annotated {kind}, but arrives as a list: write list[{kind}]"
                )

    def _run(self, items: Sequence[Item]) -> list[Any] | None:
        """The outcomes, or None after noting why there are none."""
        try:
            return self._instance.call(self._endpoint, items)
        except WrongLength as error:
            self._note(f"{error} (each item must get exactly one output)")
        except Exception as error:
            self._note(f"a batch of {len(items)} raised {describe(error)}")
        return None

    def _note(self, mistake: str) -> None:
        if mistake not in self._report.mistakes:
            self._report.mistakes.append(mistake)

    def _check_outputs(self, outcomes: Sequence[Any]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, WrongLength):
                self._note(f"{outcome} (each item must get exactly one output)")
            elif isinstance(outcome, BaseException):
                self._note(f"an example item alone raised {describe(outcome)}")
            else:
                self._encodes(outcome)

    def _encodes(self, outcome: Any) -> None:
        try:
            answers.encode(outcome)
        except Exception as error:
            self._note(f"an output of type {type(outcome).__name__} cannot be sent: {error}")

    def _compare_with_batch(self, items: list[Item], alone: list[Any]) -> None:
        together = self._run(items)
        if together is None or self._report.mistakes:
            return
        self._report.passed.append(f"{len(items)} items give {len(items)} outputs")
        changed = [at for at, (one, other) in enumerate(zip(alone, together)) if not same(one, other)]
        if changed:
            self._note(
                f"items {_listed(changed)} get another output in a batch than alone: it depends on the other items"
            )
        dice = random.Random(0)
        for _ in range(PERMUTATIONS):
            order = dice.sample(range(len(items)), len(items))
            permuted = self._run([items[at] for at in order])
            if permuted is None:
                return
            moved = [at for position, at in enumerate(order) if not same(together[at], permuted[position])]
            if moved:
                self._note(f"items {_listed(moved)} get another output when the batch is in another order")
                return
        if not changed:
            self._report.passed.append("outputs follow their items, alone and in any order")


def _listed(positions: Sequence[int]) -> str:
    return ", ".join(map(str, positions[:5])) + (" ..." if len(positions) > 5 else "")


def samples(endpoint: Endpoint, given: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]] | None:
    """At least a few items' arguments, or None if the type hints do not tell what an item is."""
    known = [dict(one) for one in (given or endpoint.options.examples or endpoint.options.warm_up or ())]
    if known:
        return (known * SAMPLES)[: max(SAMPLES, len(known))]
    try:
        return [_item(endpoint, seed) for seed in range(SAMPLES)]
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


def same(one: Any, other: Any) -> bool:
    """Whether both are the same answer."""
    if container_of(one) is not None or container_of(other) is not None:
        return _same_arrays(one, other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return _same_numbers(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, BaseException) and isinstance(other, BaseException):
        return type(one) is type(other) and str(one) == str(other)
    return bool(one == other)


def _same_numbers(one: float, other: float) -> bool:
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _same_arrays(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or tuple(one.shape) != tuple(other.shape):
        return False
    return same(_plain(one), _plain(other))


def _plain(value: Any) -> Any:
    return value.to_numpy().tolist() if hasattr(value, "to_numpy") else value.tolist()
