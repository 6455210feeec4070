"""A class with endpoints of two kinds: planned batches run one after another, calls beside them at any time."""

from __future__ import annotations

import json

import pytest
import wire

import jitney
from jitney.packing.pack import settings

SOURCE = """
import asyncio
import jitney

class Model:
    async def setup(self):
        self.gate = asyncio.Event()
        self.at = 0

    @jitney.endpoint(concurrency=2)
    async def waits(self, x: int) -> int:
        await self.gate.wait()
        return x

    @jitney.batch(max_batch_size=4)
    async def planned(self, x: list[int]) -> list[int]:
        assert self.at == 0
        self.at += 1
        for _ in range(5):
            await asyncio.sleep(0)
        self.at -= 1
        return [len(x)] * len(x)

    @jitney.batch
    def opens(self, x: list[int]) -> list[int]:
        self.gate.set()
        return x
"""


@pytest.fixture
def mixed(worker, model, tmp_path):
    model(SOURCE, "mixed_app.py")
    config = {"jitney": {"object": "mixed_app:Model", "directory": str(tmp_path)}}
    return worker("", "mixed_app:Model", model_yaml_config=config)


def batch(number: int, endpoint: str, *values: int) -> bytes:
    items = [wire.item([("body", "application/json", b"%d" % one)], [("url_path", endpoint)]) for one in values]
    return wire.batch(items, number)


def test_calls_of_async_endpoints_take_no_turn(mixed):
    mixed.send(batch(1, "waits", 7))
    kind, _, number, payload = mixed.read()
    assert (kind, number, json.loads(payload)) == (wire.TIMES, 1, {"beside": True})
    mixed.send(batch(2, "planned", 1, 2) + batch(3, "planned", 3))
    answers = [mixed.read() for _ in range(2)]
    assert [(kind, number) for kind, _, number, _ in answers] == [(wire.REPLY, 2), (wire.REPLY, 3)]
    assert [item["body"] for item in wire.decode_reply(answers[0][3], 2)] == [b"2", b"2"]
    mixed.send(batch(4, "waits", 8) + batch(5, "waits", 9))
    assert mixed.read()[:3] == (wire.TIMES, 0, 4), "two at a time"
    mixed.send(batch(6, "opens", 0))
    rest = {(kind, number) for kind, _, number, _ in (mixed.read() for _ in range(5))}
    assert rest == {(wire.REPLY, 6), (wire.REPLY, 1), (wire.REPLY, 4), (wire.TIMES, 5), (wire.REPLY, 5)}


def test_one_async_endpoint_does_not_turn_planning_off():
    class Mixed:
        @jitney.endpoint
        async def alone(self, x: int) -> int:
            return x

        @jitney.batch
        def many(self, x: list[int]) -> list[int]:
            return x

    class Async:
        @jitney.endpoint
        async def alone(self, x: int) -> int:
            return x

    def slots(target: type) -> int | None:
        return settings(jitney.define(target), "m:T", "/")["batching"].get("max_concurrent_batches")

    assert (slots(Mixed), slots(Async)) == (None, 100)
    assert jitney.define(Mixed).is_mixed
