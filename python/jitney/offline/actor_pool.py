"""Actors of Ray that run calls until each has been answered once, whichever of them are lost meanwhile.

An actor gets calls only when it is ready, so none waits for one that has no place in the cluster. What was under way
on a lost actor is called again on others, and a new actor waits for a place. Ray Data has pools, too; theirs keep the
calls of a lost actor until it is back, which is never where its node was the last with room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from jitney.call.errors import InferError

CALLS_EACH = 2
"""Calls under way on an actor: one runs, the next one reads its rows."""
LOSSES_EACH = 4
"""Actors that may be lost in the place of each, before another call is answered."""
LOOK_SECONDS = 1.0

Call = TypeVar("Call")


class ActorPool:
    """The actors, each with a method `ready`; `make` starts one."""

    def __init__(self, make: Callable[[], Any], size: int) -> None:
        self._make, self._size, self._losses = make, size, 0
        self._actors: set[Any] = set()
        self._room: deque[Any] = deque()
        self._under_way: dict[Any, tuple[Any, Any]] = {}
        """By references of Ray's: the actor, and what it was called with; None where it becomes ready."""
        for _ in range(size):
            self._start()

    @property
    def ready(self) -> int:
        """The actors that have a place."""
        return len(self._actors)

    def start(self) -> Iterator[None]:
        """Waits until the first actor is ready; it gives the caller a turn every second."""
        while not self._actors:
            for _ in self._answers():
                pass
            yield

    def run(self, calls: list[Call], begin: Callable[[Any, Call], Any]) -> Iterator[tuple[Call, Any] | None]:
        """What each call answers, as answers come; None every second, for callers that look at the clock."""
        waiting, missing = deque(calls), len(calls)
        while missing:
            while waiting and self._room:
                actor, call = self._room.popleft(), waiting.popleft()
                self._under_way[begin(actor, call)] = actor, call
            yield None
            for call, answered, value in self._answers():
                if answered:
                    missing, self._losses = missing - 1, 0
                    yield call, value
                else:
                    waiting.appendleft(call)

    def _answers(self) -> Iterator[tuple[Any, bool, Any]]:
        """Of calls that have ended: the call, whether it was answered, and what the answer is."""
        import ray

        done, _ = ray.wait(list(self._under_way), timeout=LOOK_SECONDS)
        for reference in done:
            actor, call = self._under_way.pop(reference)
            answered, value = self._answer(reference, actor, call)
            if call is not None:
                yield call, answered, value

    def _start(self) -> None:
        actor = self._make()
        self._under_way[actor.ready.remote()] = actor, None

    def _answer(self, reference: Any, actor: Any, call: Any) -> tuple[bool, Any]:
        """Whether an actor has answered, and what. In the place of one that is lost another is started."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            value = ray.get(reference)
        except RayTaskError as error:
            raise InferError(str(error.cause or error)) from None
        except RayError as error:
            if call is None or actor in self._actors:  # Of a lost actor several calls are told.
                self._replace(actor, error)
            return False, None
        if call is None:
            self._actors.add(actor)
            self._room.extend([actor] * CALLS_EACH)
        elif actor in self._actors:
            self._room.append(actor)
        return True, value

    def _replace(self, actor: Any, error: Exception) -> None:
        self._actors.discard(actor)
        self._room = deque(one for one in self._room if one is not actor)
        self._losses += 1
        if self._losses > LOSSES_EACH * self._size:
            raise InferError(
                f"{self._losses} actors were lost one after the other, and none has run its part; the last: {error}"
            )
        self._start()
