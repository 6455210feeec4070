"""Answers as JSON: the bytes are those of the standard library, whichever way they are written."""

from __future__ import annotations

import json
import math
import random

import pytest

from jitney.torchserve.bodies import DEPTH_MAX, Unusual, encode_output, plain_json

NESTED: list = []
for _ in range(DEPTH_MAX + 1):
    NESTED = [NESTED]


class Text(str):
    pass


class Number(float):
    pass


PLAIN = [
    {"tabby": 0.4096637964248657, "tiger cat": 1e-7, "lynx": 1e22, "x": -0.0, "int": 5, "none": None},
    {}, [], (), {"a": {}, "b": [], "c": [[]]}, [1, 2.5, True, False, None, "text"], (1, (2, 3)),
    {"a": {"b": [{"c": [1, [2, {"d": 'quotes "\\ \n\t\x00 ü 😀 \ud800'}]]}]}}, "ü\u2028", 10**40, 0.1, True, None,
    {"ü \" \\": "\x7f"}, [[0.1, 0.2], [0.3, 5e-324, 1.7976931348623157e308]],
]  # fmt: skip
UNUSUAL = [
    math.nan, {"a": math.inf}, [-math.inf], {1: 2}, {None: 1}, {True: 1}, {1.5: 1}, [Text("a")], [Number(1.5)], NESTED,
    {Text("a"): 1},
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_are_written_as_the_library_writes_them(value):
    assert plain_json(value) == json.dumps(value, indent=2)


@pytest.mark.parametrize("value", UNUSUAL, ids=repr)
def test_all_others_are_left_to_the_library(value):
    with pytest.raises(Unusual):
        plain_json(value)
    assert encode_output(value) == json.dumps(value, indent=2).encode()


def test_values_at_random_are_written_as_the_library_writes_them():
    draw = random.Random(7)

    def value(depth: int):
        kinds = ["float", "int", "text", "none", "bool", "list", "dict"] if depth else ["float", "int", "text"]
        match draw.choice(kinds):
            case "float":
                return draw.choice([draw.random(), draw.uniform(-1e30, 1e30), 1.0, 0.0])
            case "int":
                return draw.randrange(-(10**20), 10**20)
            case "text":
                return "".join(map(chr, draw.choices([*range(0x20, 0x7F), 0, 10, 34, 92, 0xE9, 0x1F600], k=5)))
            case "none":
                return None
            case "bool":
                return draw.random() < 0.5
            case "list":
                return [value(depth - 1) for _ in range(draw.randrange(4))]
            case _:
                return {f"key {at}": value(depth - 1) for at in range(draw.randrange(4))}

    for _ in range(500):
        one = value(5)
        assert plain_json(one) == json.dumps(one, indent=2)


def test_a_list_that_holds_itself_has_no_bytes():
    endless: list = []
    endless.append(endless)
    with pytest.raises(Unusual):
        plain_json(endless)
