"""Chains and fan-outs: what they are made of, what the server is told, and what cannot be wired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import jitney
import jitney.testing
from jitney.definition.application import graph
from jitney.definition.locate import locate
from jitney.packing.pack import pack


class Split:
    @jitney.batch(max_batch_size=8)
    def split(self, text: list[str], by: list[str] = " ") -> list[list[str]]:
        return [one.split(separator) for one, separator in zip(text, by)]


@jitney.endpoint
def count(words: list[str]) -> int:
    return len(words)


@jitney.endpoint
async def first(words: list[str]) -> str:
    return words[0]


def wiring(bound: Any) -> Any:
    return bound.target.wiring


def test_wirings_inside_others_become_one() -> None:
    inner = jitney.fan_out(number=count, word=jitney.chain(first))
    assert wiring(jitney.chain(Split, inner)) == {
        "chain": [{"part": 0}, {"named": [("number", {"part": 1}), ("word", {"chain": [{"part": 2}]})]}]
    }
    named = jitney.chain(Split, jitney.fan_out(count, first, name="Both"))
    assert [part.name for part in graph(named).parts] == ["Split", "count", "first", "Both", "Split-Both"]


def test_a_chain_takes_what_its_first_part_takes_and_runs_in_a_unit_test() -> None:
    both = jitney.chain(Split, jitney.fan_out(count, first))
    with jitney.testing.load(both) as model:
        assert model.call(text="a b c") == [3, "a"]
        assert model.call(text="a-b", by="-") == [2, "a"]
        with pytest.raises(jitney.BadInput, match="there is no parameter 'word'"):
            model.call(word="a")
    with jitney.testing.load(jitney.fan_out(number=count, word=first)) as model:
        assert model.call(words=["x", "y"]) == {"number": 2, "word": "x"}


def test_the_server_is_told_the_wiring_and_the_name_of_the_variable(tmp_path: Path) -> None:
    (tmp_path / "wired_app.py").write_text(
        "import jitney\n@jitney.endpoint\ndef one(x: int) -> int:\n    return x\nPipeline = jitney.chain(one, one)\n"
    )
    application = graph(locate("wired_app.py:Pipeline", str(tmp_path)))
    assert pack(application, "wired_app.py:Pipeline", str(tmp_path), tmp_path / "out")["name"] == "Pipeline"
    told = json.loads((tmp_path / "out" / "jitney-api.json").read_text())
    assert told["wiring"] == {"chain": [{"part": 0}, {"part": 1}]}
    assert [one["model"] for one in told["depends"]] == ["one", "one"]
    assert told["endpoints"] == ["call"]


class Several:
    @jitney.endpoint
    def a(self, x: int) -> int:
        return x

    @jitney.endpoint
    def b(self, x: int) -> int:
        return x


@jitney.endpoint
def streams(x: str) -> Any:
    yield from x


@jitney.endpoint
def two(x: int, y: int) -> int:
    return x + y


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jitney.chain(), "jitney.chain needs a definition"),
        (lambda: jitney.fan_out(), "jitney.fan_out needs a definition"),
        (lambda: jitney.fan_out(count, word=first), "either all branches have names, or none has"),
        (lambda: jitney.chain(Several), r"Several has several endpoints \(a, b\)"),
        (lambda: jitney.chain(Split, streams), "streams streams, which cannot be passed on"),
        (lambda: jitney.chain(Split, two), r"two needs 2 arguments \(x, y\), and the stage before it gives one"),
        (lambda: jitney.chain(Split, "resnet"), "'resnet': chains and fan-outs are made of definitions"),
        (lambda: jitney.chain(3), "3 cannot be served"),
    ],
)
def test_what_cannot_be_wired_is_said_at_once(make: Any, words: str) -> None:
    with pytest.raises(jitney.DefinitionError, match=words):
        make()
