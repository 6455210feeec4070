"""`chain` and `fan_out`: definitions that only pass on what others give.

The server runs them itself, by what the packed model says of them (`wiring`), so that no process stands between the
parts. The class that is made here is what a unit test runs, and says what such a model takes and gives.
"""

from __future__ import annotations

import inspect
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.application import Bound, Dependency, bound_of
from jitney.definition.decorators import endpoint, model
from jitney.definition.definition import Endpoint

PART, CHAIN, FAN_OUT, NAMED = "part", "chain", "fan_out", "named"
REQUESTS, WORKERS = 255, 4
"""Requests that one worker of such a model has under way, and how many workers it has: they are tasks of the server."""

Wiring = dict[str, Any]
"""One of the four words, with the number of a part, or what is wired."""


def chain(*stages: Any, name: str | None = None) -> Bound:
    """Definitions one after another: each is called with what the one before it gave, the first one with the request's
    arguments. A stage may be a chain or a fan-out itself."""
    return _bind(CHAIN, [(None, one) for one in stages], name)


def fan_out(*branches: Any, name: str | None = None, **named: Any) -> Bound:
    """Definitions side by side, all with the same arguments. The answer is the list of theirs; of branches with names,
    as in `fan_out(tags=Tagger, topics=Topics)`, it is a dictionary."""
    if branches and named:
        raise DefinitionError("jitney.fan_out: either all branches have names, or none has")
    if named:
        return _bind(NAMED, list(named.items()), name)
    return _bind(FAN_OUT, [(None, one) for one in branches], name)


def wiring_of(target: Any) -> Wiring | None:
    """How a definition wires its parts, if it does nothing else."""
    wiring: Wiring | None = getattr(target, "wiring", None) if isinstance(target, type) else None
    return wiring if isinstance(target, type) and issubclass(target, Wired) else None


class Wired:
    """The base of the classes that `chain` and `fan_out` make."""

    wiring: Wiring
    slots: tuple[str, ...]
    """The attributes that hold the parts, by their numbers."""

    async def _run(self, wiring: Wiring, *given: Any, **named: Any) -> Any:
        ((word, inner),) = wiring.items()
        if word == PART:
            return await getattr(self, self.slots[inner]).remote(*given, **named)
        if word == CHAIN:
            value = await self._run(inner[0], *given, **named)
            for stage in inner[1:]:
                value = await self._run(stage, value)
            return value
        import asyncio

        branches = [one for _, one in inner] if word == NAMED else inner
        values = await asyncio.gather(*(self._run(one, *given, **named) for one in branches))
        return dict(zip((name for name, _ in inner), values)) if word == NAMED else list(values)


class _Parts:
    """The parts of a wiring, in the order in which it names them."""

    def __init__(self) -> None:
        self.bound: list[Bound] = []

    def wire(self, stage: Any, is_first: bool) -> Wiring:
        """A stage: the wiring of an inner chain or fan-out that has no name, or a part."""
        if isinstance(stage, Dependency):
            stage = stage.target
        if isinstance(stage, str):
            raise DefinitionError(
                f"{stage!r}: chains and fan-outs are made of definitions; for a model by its name write a class with "
                "jitney.depends"
            )
        bound = bound_of(stage)
        inner = wiring_of(bound.target)
        if inner is not None and bound.name is None:
            return self._moved(inner, [one.target for one in _dependencies(bound.target)])
        _check(bound, is_first)
        return self._part(bound)

    def _part(self, bound: Bound) -> Wiring:
        self.bound.append(bound)
        return {PART: len(self.bound) - 1}

    def _moved(self, wiring: Wiring, parts: list[Bound]) -> Wiring:
        """The same with numbers of this wiring's parts."""
        ((word, inner),) = wiring.items()
        if word == PART:
            return self._part(parts[inner])
        if word == NAMED:
            return {word: [(name, self._moved(one, parts)) for name, one in inner]}
        return {word: [self._moved(one, parts) for one in inner]}


def _bind(word: str, stages: list[tuple[str | None, Any]], name: str | None) -> Bound:
    if not stages:
        raise DefinitionError(f"jitney.{CHAIN if word == CHAIN else FAN_OUT} needs a definition to call")
    parts = _Parts()
    wired = [(key, parts.wire(one, word != CHAIN or not at)) for at, (key, one) in enumerate(stages)]
    wiring: Wiring = {word: wired if word == NAMED else [one for _, one in wired]}
    slots = [f"part{number}" for number in range(len(parts.bound))]
    members = dict(zip(slots, map(Dependency, parts.bound)))
    makers = {"__call__": _endpoint(wiring, parts.bound), "wiring": wiring, "slots": tuple(slots)}
    title = "-".join(dict.fromkeys(one.definition.name for one in parts.bound))
    doc = f"{'One after another' if word == CHAIN else 'Side by side'}: {title.replace('-', ', ')}."
    made = type(title, (Wired,), {**members, **makers, "__doc__": doc})
    return Bound(model(workers=WORKERS)(made), name=name)


def _endpoint(wiring: Wiring, parts: list[Bound]) -> Any:
    """A coroutine with the parameters of the first part, and the answer of the last one."""
    first, last = _sole(parts[_end(wiring, 0)]), _end(wiring, -1)

    async def call(self: Wired, **named: Any) -> Any:
        return await self._run(wiring, **named)

    params = [one for one in first.params if not one.is_request]
    kinds = inspect.Parameter
    written = [kinds(one.name, kinds.KEYWORD_ONLY, default=one.default, annotation=one.hint) for one in params]
    call.__annotations__ = {one.name: one.hint for one in params}
    if last is not None:
        call.__annotations__["return"] = _sole(parts[last]).shape.output
    call.__signature__ = inspect.Signature([kinds("self", kinds.POSITIONAL_OR_KEYWORD), *written])  # type: ignore[attr-defined]
    call.__doc__ = first.doc
    return endpoint(concurrency=REQUESTS)(call)


def _end(wiring: Wiring, at: int) -> Any:
    """The part at the beginning of a wiring, or at its end: none where there are several."""
    ((word, inner),) = wiring.items()
    if word == PART:
        return inner
    if word == CHAIN or at == 0:
        return _end(inner[at][1] if word == NAMED else inner[at], at)
    return None


def _sole(bound: Bound) -> Endpoint:
    found = bound.definition.default
    assert found is not None
    return found


def _check(bound: Bound, is_first: bool) -> None:
    """Whether a definition can be a part: it is called without the name of an endpoint, and gives one answer."""
    definition = bound.definition
    found = definition.default
    if found is None:
        names = ", ".join(one.name for one in definition.endpoints)
        raise DefinitionError(
            f"{definition.name} has several endpoints ({names}), and a chain or fan-out calls the one that is named "
            "predict; for another one write a class with jitney.depends"
        )
    if found.raw or found.streams:
        what = "takes raw requests" if found.raw else "streams"
        raise DefinitionError(f"{definition.name} {what}, which cannot be passed on: write a class with jitney.depends")
    required = [one.name for one in found.params if one.required]
    if not is_first and len(required) > 1:
        named = f"{len(required)} arguments ({', '.join(required)})"
        raise DefinitionError(f"{definition.name} needs {named}, and the stage before it gives one")


def _dependencies(target: type) -> list[Dependency]:
    return [vars(target)[slot] for slot in target.slots]  # type: ignore[attr-defined]
