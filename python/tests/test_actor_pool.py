"""The pool of actors, with a Ray that is made up here: every call is answered once, whichever actors are lost."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jitney.call.errors import InferError
from jitney.offline.actor_pool import CALLS_EACH, LOSSES_EACH, ActorPool


class RayError(Exception):
    pass


class RayTaskError(RayError):
    cause = ValueError("no weights")


class Reference:
    """What a call returns: an answer, or an error."""

    def __init__(self, actor: Actor, value: Any) -> None:
        self.actor, self.value = actor, value


class Actor:
    def __init__(self) -> None:
        self.lost = self.placed = False
        self.ready = SimpleNamespace(remote=lambda: Reference(self, "ready"))

    def run(self, value: Any) -> Reference:
        assert self.placed, "no call waits for an actor without a place"
        return Reference(self, value)


class MadeUpRay:
    """Answers in any order, and loses an actor now and then; at most `places` actors have one."""

    def __init__(self, seed: int, places: int, loss: float) -> None:
        self.random, self.places, self.loss = random.Random(seed), places, loss
        self.actors: list[Actor] = []

    def make(self) -> Actor:
        self.actors.append(Actor())
        return self.actors[-1]

    def wait(self, references: list[Reference], timeout: float) -> tuple[list[Reference], list[Reference]]:
        living = [actor for actor in self.actors if actor.placed and not actor.lost]
        if living and self.random.random() < self.loss:
            self.random.choice(living).lost = True
            self.places -= self.places > 1
        for actor in self.actors:
            if not actor.placed and sum(one.placed and not one.lost for one in self.actors) < self.places:
                actor.placed = True
        able = [one for one in references if one.actor.placed]
        for actor in {one.actor for one in able}:
            assert sum(one.actor is actor for one in able) <= CALLS_EACH
        done = [self.random.choice(able)] if able else []
        return done, [one for one in references if one not in done]

    def get(self, reference: Reference) -> Any:
        if reference.actor.lost:
            raise RayError("the actor died")
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(**options: Any) -> MadeUpRay:
        ray = MadeUpRay(**options)
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(wait=ray.wait, get=ray.get))
        errors = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        monkeypatch.setitem(sys.modules, "ray.exceptions", errors)
        return ray

    return use


@pytest.mark.parametrize("seed", range(50))
def test_every_call_is_answered_once(made_up: Any, seed: int) -> None:
    ray = made_up(seed=seed, places=3, loss=0.05)
    pool = ActorPool(ray.make, 4)
    for _ in pool.start():
        pass
    assert pool.ready
    answers = [one for one in pool.run(list(range(100)), lambda actor, call: actor.run(2 * call)) if one is not None]
    assert sorted(answers) == [(call, 2 * call) for call in range(100)]
    assert list(pool.run([], lambda actor, call: actor.run(call))) == []


def test_a_mistake_of_the_model_ends_the_run(made_up: Any) -> None:
    ray = made_up(seed=1, places=2, loss=0.0)
    pool = ActorPool(ray.make, 2)
    with pytest.raises(InferError, match="no weights"):
        list(pool.run([1], lambda actor, _: actor.run(RayTaskError())))


def test_actors_that_are_lost_again_and_again_end_the_run(made_up: Any) -> None:
    ray = made_up(seed=1, places=2, loss=1.0)
    pool = ActorPool(ray.make, 2)
    with pytest.raises(InferError, match="none has run its part; the last: the actor died"):
        list(pool.run([1], lambda actor, call: actor.run(call)))
    assert len(ray.actors) <= 2 + LOSSES_EACH * 2
