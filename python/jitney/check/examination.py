"""One endpoint, run with a few items alone, together and in other orders: what `jitney check` knows about it.

Batched arithmetic sums in another order; wrong rows differ by more."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jitney.call.errors import Error, NotFound, WrongLength, describe
from jitney.definition.definition import Endpoint
from jitney.definition.samples import samples
from jitney.execution.execution import Instance
from jitney.execution.grouping import Item
from jitney.execution.splitting import STREAMED
from jitney.http import arguments
from jitney.http.response import Response, encode
from jitney.values.containers import container_of

PERMUTATIONS = 3
GIVE = "give --sample '{...}' or examples=[...] in the decorator"


@dataclass
class Report:
    """What was found about one endpoint."""

    endpoint: str
    passed: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    ran: bool = False
    """Whether its function was called and returned."""


class Examination:
    """The tests of one endpoint."""

    def __init__(self, instance: Instance, endpoint: Endpoint, given: Sequence[dict[str, Any]]) -> None:
        self._instance = instance
        self._endpoint = endpoint
        self._samples = samples(endpoint, given)
        self._report = Report(endpoint.name)

    def report(self) -> Report:
        """Runs every test that applies."""
        report = self._report
        report.mistakes += self._endpoint.mistakes()
        if self._endpoint.raw:
            report.remarks.append("not run: it takes HTTP requests as they come; call it on a server")
            return report
        if not self._samples.tries:
            report.remarks.append(f"not run: no example could be made up; {GIVE}")
            return report
        for last, raw in enumerate(self._samples.tries, 1 - len(self._samples.tries)):
            items = self._items(raw)
            if items is None:
                return report
            alone = [self._run([item]) for item in items]
            outcomes = [outcome[0] for outcome in alone if outcome is not None]
            if last < 0 and any(isinstance(one, BaseException) for one in outcomes):
                continue  # The function may be right to reject a guess; there are others.
            self._judge(items, outcomes)
            return report
        return report

    def _judge(self, items: list[Item], alone: list[Any]) -> None:
        """Looks at what the items gave one by one, and compares it with what they give together."""
        report = self._report
        if len(alone) < len(items):
            return
        self._check_outputs(alone)
        if not report.ran:
            return
        if self._endpoint.batched:
            self._compare_with_batch(items, alone)
        elif not report.mistakes:
            what = "streams" if self._endpoint.streams else "answers"
            report.passed.append(f"{what} {len(items)} items one by one")

    def _items(self, raw: list[dict[str, Any]]) -> list[Item] | None:
        try:
            return [Item(arguments.read(self._endpoint, {"body": one})) for one in raw]
        except Exception as error:
            self._report.mistakes.append(f"an example is not accepted: {describe(error)}")
            return None

    def _run(self, items: Sequence[Item]) -> list[Any] | None:
        """The outcomes, or None after noting why there are none. That of a stream is the list of its pieces."""
        pieces: list[list[Any]] = [[] for _ in items]
        try:
            outcomes = self._instance.call(self._endpoint, items, lambda at, piece: pieces[at].append(piece))
        except WrongLength as error:
            self._note(f"{error} (each item must get exactly one output)")
        except Exception as error:
            self._note(f"a batch of {len(items)} raised {describe(error)}")
        else:
            if not self._endpoint.streams:
                return outcomes
            return [one if isinstance(one, BaseException) else got for one, got in zip(outcomes, pieces)]
        return None

    def _note(self, mistake: str) -> None:
        if mistake not in self._report.mistakes:
            self._report.mistakes.append(mistake)

    def _check_outputs(self, outcomes: Sequence[Any]) -> None:
        made_up, guessed, rejected = self._samples.made_up, self._samples.guessed, set()
        for outcome in outcomes:
            if isinstance(outcome, WrongLength):
                self._note(f"{outcome} (each item must get exactly one output)")
            elif isinstance(outcome, NotFound):
                rejected.add(f"not run: {outcome}")
            elif (made_up and isinstance(outcome, Error)) or (guessed and isinstance(outcome, Exception)):
                rejected.add(f"it rejects a made-up item ({describe(outcome)}); {GIVE}")
            elif isinstance(outcome, BaseException):
                hint = f" (a made-up item: {GIVE} if it makes no sense)" if made_up else ""
                self._note(f"an example item alone raised {describe(outcome)}{hint}")
            else:
                self._report.ran = True
                for piece in outcome if self._endpoint.streams else [outcome]:
                    self._encodes(piece)
        self._report.remarks += sorted(rejected)[:1]

    def _encodes(self, outcome: Any) -> None:
        if outcome is STREAMED:
            return
        if isinstance(outcome, Response):
            if inspect.isgenerator(outcome.body) or inspect.isasyncgen(outcome.body):
                return
            outcome = outcome.body
        try:
            encode(outcome)
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


RELATIVE, ABSOLUTE = 1e-3, 1e-5


def same(one: Any, other: Any) -> bool:
    """Whether both are the same answer."""
    if container_of(one) is not None or container_of(other) is not None:
        return _same_arrays(one, other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return _same_numbers(one, other)
    if isinstance(one, Response) and isinstance(other, Response):
        return one.status == other.status and same(one.body, other.body)
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
