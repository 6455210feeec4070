"""Bodies, queries and files to arguments, outputs to bodies, hints to OpenAPI."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import io
import json
import re
from typing import Any, Literal

import pytest
import wire

import jitney
from jitney.definition.definition import define
from jitney.execution.grouping import Item
from jitney.http import arguments
from jitney.http.arguments import read
from jitney.packing import openapi
from jitney.packing.pack import api
from jitney.testing import load
from jitney.values.rows import RepeatedRow
from jitney.worker.requests import reader_for
from jitney.worker.writer import encode_failed

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


def echo_as(hint: Any):
    def echo(value):
        return {"type": type(value).__name__, "value": value if not isinstance(value, enum.Enum) else value.name}

    echo.__annotations__ = {"value": hint}
    return echo


@pytest.mark.parametrize(
    ("hint", "body", "expected"),
    [
        (int, 3, 3),
        (int, "3", 3),
        (int, bytearray(b"3"), 3),
        (float, 3, 3.0),
        (bool, True, True),
        (bool, bytearray(b"no"), False),
        (str, "abc", "abc"),
        (str, bytearray("grün".encode()), "grün"),
        (list, [1, "a"], [1, "a"]),
        (list[int], ["1", 2], [1, 2]),
        (list[int], [3, 4], [3, 4]),
        (list[float], [1.5, 2], [1.5, 2.0]),
        (tuple[int, str], [1, "a"], [1, "a"]),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (int | None, None, None),
        (int | None, 4, 4),
        (Literal["a", "b"], "b", "b"),
        (Color, "blue", "BLUE"),
        (Point, {"x": 1}, {"x": 1.0, "y": 0.0}),
        (Any, {"deep": [1]}, {"deep": [1]}),
    ],
)
def test_values_become_what_the_hint_says(hint, body, expected):
    with load(echo_as(hint)) as model:
        is_text = isinstance(body, bytearray)
        answer = model.post(b"", value=body.decode()) if is_text else model.post({"value": body})
    assert (answer.status, json.loads(answer.body)["value"]) == (200, expected)


@pytest.mark.parametrize(
    ("hint", "body", "words"),
    [
        (int, "x", "cannot be read as int"),
        (int, 1.5, "expected a whole number"),
        (int, True, "expected a whole number"),
        (float, [], "expected a number, got a list"),
        (bool, 1, "expected true or false"),
        (str, 1, "expected text"),
        (list[int], [1, "x"], "cannot be read"),
        (list[int], [1, True], "expected a whole number"),
        (dict, [1], "expected an object"),
        (Literal["a", "b"], "c", "expected one of 'a', 'b'"),
        (Color, "green", "expected one of 'red', 'blue'"),
        (Point, {"z": 1}, "no field 'z'"),
        (bytes, 3, "octet-stream"),
    ],
)
def test_values_that_do_not_fit_are_rejected_with_the_reason(hint, body, words):
    with load(echo_as(hint)) as model:
        answer = model.post({"value": body})
    assert answer.status == 400
    assert "'value'" in answer.body.decode()
    assert words in answer.body.decode()


def add(a: int, b: int = 10) -> int:
    return a + b


@pytest.mark.parametrize(
    ("body", "query", "status", "answer"),
    [
        ({"a": 1, "b": 2}, {}, 200, "3"),
        ({"a": 1}, {}, 200, "11"),
        (bytearray(), {"a": "1", "b": "5"}, 200, "6"),
        ({"b": 1}, {"a": "4"}, 200, "5"),
        (7, {}, 200, "17"),
        ({"a": 1, "c": 2}, {}, 400, "there is no parameter 'c'"),
        ({}, {}, 400, "parameter 'a' is missing"),
        ([1, 2], {}, 400, "expected a whole number, got a list"),
    ],
)
def test_bodies_and_queries_are_arguments_by_name(body, query, status, answer):
    with load(add) as model:
        got = model.post(body, **query)
    assert got.status == status
    assert answer in got.body.decode()


def test_the_one_parameter_may_be_an_object_itself():
    def keys(row: dict) -> list:
        return sorted(row)

    with load(keys) as model:
        assert model.post({"a": 1, "b": 2}).body == b'["a","b"]'
        assert model.post({"row": {"z": 1}}).body == b'["z"]'


def test_an_object_of_arguments_needs_no_content_type():
    def add(a: int, b: int = 1) -> int:
        return a + b

    def size(text: str) -> int:
        return len(text)

    with load(add) as model:
        assert model.post(bytearray(b'{"a": 2, "b": 3}')).body == b"5"
    with load(size) as model:
        assert model.post(bytearray(b'{"text": "abc"}')).body == b"3"
        assert model.post(bytearray(b'{"a": 1}')).body == b"8", "an object of other names is a text"
        assert model.post(bytearray(b"{broken")).body == b"7"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"text": "a"', "invalid JSON at line 1, column 13: Expecting ',' delimiter"),
        (b'{\n "text": a}', "invalid JSON at line 2, column 10: Expecting value"),
        (b"", "invalid JSON at line 1, column 1: the body is empty"),
        (b'"\xff"', "invalid JSON: it is not UTF-8"),
    ],
)
@pytest.mark.parametrize("hint", [str, bytes, dict, int])
@pytest.mark.parametrize("name", ["text", "body"])
def test_what_claims_to_be_json_and_is_not_is_refused(hint: Any, name: str, body: bytes, said: str):
    def take(value):
        return "taken"

    take.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)])
    take.__annotations__ = {name: hint}
    reader = arguments.ArgumentReader(define(take).endpoints[0])
    with pytest.raises(jitney.BadInput, match=re.escape(said)):
        reader.read({"body": reader_for("application/json")(body)})


def test_an_empty_json_body_is_no_argument_where_none_is_needed():
    def hello(name: str = "you") -> str:
        return f"hello {name}"

    assert (
        arguments.ArgumentReader(define(hello).endpoints[0]).read({"body": reader_for("application/json")(b"")}) == {}
    )


def test_pydantic_names_the_fields_in_one_line():
    pydantic = pytest.importorskip("pydantic")

    class Flower(pydantic.BaseModel):
        width: float
        height: float

    def grow(flower) -> float:
        return flower.width * flower.height

    grow.__annotations__["flower"] = Flower  # This file's hints are text, which cannot name a local class.
    with load(grow) as model:
        assert model.call(flower={"width": 2, "height": 3}) == 6, "converted as the server does"
        answer = model.post({"flower": {"width": "wide"}})
        assert answer.status == 400 and "\n" not in answer.text
        assert "width: Input should be a valid number" in answer.text and "height: Field required" in answer.text
        assert model.post({"flower": {"width": 2, "height": 3}}).json() == 6
    with pytest.raises(jitney.BadInput) as failed:
        arguments.read(define(grow).endpoints[0], {"flower": {"width": "wide"}, "deep": 1})
    assert [field for field, _ in failed.value.errors] == ["flower.width", "flower.height", "deep"]
    assert not any("http" in why for _, why in failed.value.errors)


def test_an_answer_has_the_status_and_the_headers_that_its_endpoint_chose():
    def chosen(request: jitney.Request) -> str:
        request.status = 201
        request.response_headers["X-Mine"] = "yes"
        return "made"

    def response() -> jitney.Response:
        return jitney.Response({"a": 1}, 202, {"X-Mine": "too"})

    def words(text: str):
        yield from text.split()

    chosen.__annotations__["request"] = jitney.Request  # This file's hints are text.
    with load(chosen) as model:
        answer = model.post()
        assert (answer.status, answer.headers["x-mine"], answer.text) == (201, "yes", "made")
    with load(response) as model:
        answer = model.post()
        assert (answer.status, answer.headers["x-mine"], answer.json()) == (202, "too", {"a": 1})
    with load(words) as model:
        assert model.post({"text": "a b"}).text == "ab"
        failed = model.post({"txt": "a"})
        assert (failed.status, failed.json()["errors"][0]["field"]) == (400, "text")


def test_of_many_wrong_fields_the_sentence_names_some_and_the_list_more():
    def add(values: list[int]) -> int:
        return sum(values)

    with pytest.raises(jitney.BadInput, match=r"; and 190 more$") as failed:
        arguments.read(define(add).endpoints[0], {"values": ["x"] * 200})
    meta = encode_failed(7, 400, failed.value.errors)
    fields = wire.decode_reply_meta(meta)["headers"]
    assert len(fields) == 100 and fields[99][0] == "values.99"
    name = "\ud800" + "n" * 70_000
    (field,) = wire.decode_reply_meta(encode_failed(7, 400, [(name, "why")]))["headers"]
    assert field == ["?" + "n" * 511, "why"]


@pytest.mark.parametrize(
    ("output", "content_type", "body"),
    [
        ("text", "text/plain; charset=utf-8", b"text"),
        (b"\x00\x01", "application/octet-stream", b"\x00\x01"),
        ({"a": [1, None]}, "application/json", b'{"a":[1,null]}'),
        (3, "application/json", b"3"),
        (None, "application/json", b"null"),
        (Point(1, 2), "application/json", b'{"x":1,"y":2}'),
        ({3, 1}, "application/json", b"[1,3]"),
        (Color.RED, "application/json", b'"red"'),
        (float("nan"), "application/json", b"null"),
        ({"a": [float("inf"), 1.5], "é": "NaN"}, "application/json", '{"a":[null,1.5],"é":"NaN"}'.encode()),
        (np.array([[1, np.nan]], "float32"), "application/json", b"[[1.0,null]]"),
    ],
)
def test_answers_take_the_form_of_their_type(output, content_type, body):
    def give() -> Any:
        return output

    with load(give) as model:
        answer = model.post()
    assert (answer.status, answer.content_type, answer.body) == (200, content_type, body)


def test_arrays_travel_as_json_and_as_npy():
    @jitney.batch
    def double(x: np.ndarray) -> np.ndarray:
        return x * 2

    buffer = io.BytesIO()
    np.save(buffer, np.array([[1.5, 2.0]], "float32"))
    with load(double) as model:
        assert model.post({"x": [[1, 2]]}).body == b"[[2,4]]"
        assert model.post([[1, 2]]).body == b"[[2,4]]"
        answer = model.post(bytearray(buffer.getvalue()), accept="application/x-npy")
        ragged = model.post([[1], [1, 2]])
        pickled = model.post(bytearray(b"\x80\x04."))
    back = np.load(io.BytesIO(answer.body))
    assert (answer.content_type, back.dtype.name, back.tolist()) == ("application/x-npy", "float32", [[3.0, 4.0]])
    assert (ragged.status, pickled.status) == (400, 400)


def test_a_dictionary_of_arrays_comes_as_npz():
    @jitney.batch
    def masked(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return (ids * mask).sum(axis=1)

    buffer = io.BytesIO()
    np.savez(buffer, ids=np.array([[1, 2]]), mask=np.array([[1, 0]]))
    with load(masked) as model:
        assert model.post(bytearray(buffer.getvalue())).body == b"[1]"
        assert model.post({"ids": [[1, 2]], "mask": [[0, 1]]}).body == b"[2]"


def test_frames_come_as_records_columns_and_csv():
    @jitney.batch
    def total(frame: pd.DataFrame) -> list:
        return (frame["a"] + frame["b"]).tolist()

    with load(total) as model:
        assert model.post([{"a": 1, "b": 2}, {"a": 3, "b": 4}]).body == b"[3,7]"
        assert model.post({"frame": {"a": [1], "b": [2]}}).body == b"[3]"
        assert model.post("a,b\n1,2\n").body == b"[3]"


def test_the_api_is_described_by_the_hints():
    @jitney.model(name="shop")
    class Shop:
        @jitney.batch
        def price(self, item: list[str], count: list[int] = 1, request: list[jitney.Request] = ()) -> list[float]:
            """What it costs.

            More words."""
            return [1.0 for _ in item]

        @jitney.endpoint
        def photo(self, data: bytes) -> bytes:
            return data

    paths = openapi.describe(jitney.define(Shop))["paths"]
    assert list(paths) == ["/shop/price", "/shop/photo"]
    price = paths["/shop/price"]["post"]
    schema = price["requestBody"]["content"]["application/json"]["schema"]
    assert price["summary"] == "What it costs."
    assert schema["properties"] == {"item": {"type": "string"}, "count": {"type": "integer", "default": 1}}
    assert schema["required"] == ["item"]
    assert price["responses"]["200"]["content"] == {"application/json": {"schema": {"type": "number"}}}
    photo = paths["/shop/photo"]["post"]
    assert "multipart/form-data" in photo["requestBody"]["content"]
    assert list(photo["responses"]["200"]["content"]) == ["application/octet-stream"]


def one(x: int): ...


def one_with_default(x: list[float] = ()): ...


def raw(data: bytes): ...


def whole(body: dict): ...


def two(x: int, name: str = "n"): ...


def three(x: int, y: list[int], z: Any): ...


def anything(x: int, **rest): ...


def asking(x: int, request: jitney.Request): ...


def none(): ...


ROWS = [
    {"body": body}
    for body in (
        1, True, 1.5, None, "", "7", "text", [1], ["2", 3], [], {}, {"x": 1}, {"x": "1"}, {"x": [1]}, {"y": 1},
        {"x": 1, "name": "a"}, {"x": 1, "name": 2}, {"x": 1, "y": [1], "z": None}, {"x": 1, "other": 2},
        bytearray(b""), bytearray(b"5"), bytearray(b"\xff"), bytearray(b"PK\x03\x04"),
    )
]  # fmt: skip
ROWS += [{}, {"x": "1"}, {"x": bytearray(b"1"), "body": {"name": "a"}}, {"x": "1", "body": ""}, {"no": "1"}]


@pytest.mark.parametrize(
    "function", [one, one_with_default, raw, whole, two, three, anything, asking, none], ids=lambda it: it.__name__
)
def test_a_reader_made_once_reads_every_row_as_one_made_for_it(function):
    endpoint = define(function).endpoints[0]
    reader = arguments.ArgumentReader(endpoint)

    def result(read, *row):
        try:
            return read(*row)
        except Exception as error:
            return repr(error)

    for row in ROWS:
        assert result(reader.read, dict(row)) == result(arguments.read, endpoint, dict(row)), row


def test_several_files_of_one_name_are_a_list():
    row = RepeatedRow()
    for content in (b"a", b"b"):
        row.add("f", bytearray(content))

    @jitney.endpoint
    def files(f: list[bytes]): ...

    @jitney.endpoint
    def last(f: bytes): ...

    assert read(jitney.define(files).endpoints[0], row) == {"f": [b"a", b"b"]}
    assert read(jitney.define(last).endpoints[0], row) == {"f": b"b"}
    one = jitney.define(files).endpoints[0]
    assert read(one, {"f": bytearray(b"{one}")}) == {"f": [b"{one}"]}
    assert read(one, {"f": bytearray(b"[not json")}) == {"f": [b"[not json"]}
    assert read(one, {"body": ["x", "y"]}) == {"f": [b"x", b"y"]}


def test_arrays_of_any_name_are_joined_or_refused_at_the_start():
    @jitney.batch
    def hinted(**batch: np.ndarray):
        assert all(isinstance(one, np.ndarray) for one in batch.values())
        return batch["a"] + batch["b"]

    @jitney.batch(inputs={"a": jitney.Tensor("FP32", [-1]), "b": jitney.Tensor("FP32", [-1])})
    def declared(**batch):
        return hinted(**batch)

    items = [{"a": [1.0], "b": [2.0]}, {"a": [3.0, 4.0], "b": [5.0, 6.0]}]
    for function in (hinted, declared):
        with load(function) as model:
            made = [Item(read(model.definition.endpoints[0], {"body": one})) for one in items]
            answers = model._run(model.definition.endpoints[0], made)
            assert [list(one) for one in answers] == [[3.0], [8.0, 10.0]]
            assert model.sizes == [3]
    told = api(jitney.define(declared))
    assert [one["name"] for one in told["sizes"]["call"]["params"] if one["rows"]] == ["a", "b"]
    with pytest.raises(jitney.BadInput, match="no parameter 'c'"):
        read(jitney.define(declared).endpoints[0], {"body": {"a": [1], "b": [2], "c": [3]}})

    @jitney.batch
    def bare(**batch): ...

    with pytest.raises(jitney.DefinitionError, match="declare them with inputs"):
        jitney.define(bare)
