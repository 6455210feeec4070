"""`jitney check` finds the mistakes that only show in company, and is content with what is right."""

import dataclasses
import enum
import itertools
import json
from pathlib import Path
from typing import Annotated, Literal

import numpy
import pandas
import pytest
from numpy.typing import NDArray

import jitney
import jitney.testing
from jitney import __main__ as command
from jitney.check.check import check, examine
from jitney.definition import application
from jitney.definition.samples import value_of
from jitney.packing import openapi


def mistakes(function, given=()):
    (report,) = examine(jitney.define(function), given)
    return report.mistakes


@jitney.batch
def right(x: list[int]) -> list[int]:
    return [one + 1 for one in x]


@jitney.batch
def too_short(x: list[int]) -> list[int]:
    return x[:-1] or x


@jitney.batch
def sorts(x: list[int]) -> list[int]:
    return sorted(x, reverse=True)


@jitney.batch
def mean(x: list[float]) -> list[float]:
    return [one - sum(x) / len(x) for one in x]


@jitney.batch
def scalar_hint(x: int) -> int:
    return x


@jitney.batch
def scalar_answer(x: list[int]) -> float:
    return [one + 0.5 for one in x]


@jitney.batch
def unsendable(x: list[int]) -> list[object]:
    return [object() for _ in x]


@jitney.batch
def not_a_list(x: list[int]) -> list[int]:
    return len(x)


_turn = itertools.count()


@jitney.batch
def by_turn(x: list[int]) -> list[int]:
    return [next(_turn) for _ in x]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (too_short, "returned 4 outputs for 5 items"),
        (sorts, "depends on the other items"),
        (mean, "depends on the other items"),
        (scalar_hint, "write list[int]"),
        (scalar_answer, "must return one output per item: write list[float]"),
        (unsendable, "cannot be sent"),
        (not_a_list, "returned int"),
        (by_turn, "another order"),
    ],
)
def test_each_mistake_is_named(function, words):
    assert words in " ".join(mistakes(function))


def test_what_is_right_passes():
    assert mistakes(right) == []
    (report,) = examine(jitney.define(right))
    assert report.passed == ["5 items give 5 outputs", "outputs follow their items, alone and in any order"]


def test_examples_are_taken_where_they_are_given():
    @jitney.batch(examples=[{"row": {"a": 1}}, {"row": {"a": 2}}])
    def unknown(row):
        return [one["a"] for one in row]

    @jitney.batch
    def nobody_knows(row):
        return row

    assert mistakes(unknown) == []
    (report,) = examine(jitney.define(nobody_knows))
    assert "--sample" in report.remarks[0]
    assert mistakes(nobody_knows, [{"row": 1}, {"row": 2}]) == []


def test_an_example_is_for_the_endpoints_whose_parameters_it_has():
    class Kit:
        @jitney.batch
        def double(self, number: list[int]) -> list[int]:
            return [2 * one for one in number]

        @jitney.endpoint
        def hello(self, name: str) -> str:
            return name

    assert all(not report.mistakes for report in examine(jitney.define(Kit), [{"number": 7}]))
    strange = examine(jitney.define(Kit), [{"nmuber": 7}])
    assert all("not accepted" in report.mistakes[0] for report in strange)


def test_an_endpoint_that_needs_no_argument_is_run_without_one():
    @jitney.endpoint
    def count(words: int = 3) -> int:
        return words

    assert mistakes(count) == []
    with jitney.testing.load(count) as model:
        assert [model.post(body).body for body in ({}, {"words": 4}, 5, b"")] == [b"3", b"4", b"5", b"3"]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: float
    tags: list[str]
    kind: Literal["a", "b"] = "a"


class Everything:
    """One endpoint of each kind."""

    @jitney.batch(inputs={"x": jitney.Tensor("FP32", [-1, 3])})
    def declared(self, x: numpy.ndarray) -> numpy.ndarray:
        assert x.shape[1] == 3
        return x.sum(axis=1)

    @jitney.batch
    def hinted(self, x: Annotated[numpy.ndarray, jitney.Tensor("INT64", [-1, 2, 2])]) -> numpy.ndarray:
        assert x.dtype == numpy.int64 and x.shape[1:] == (2, 2)
        return x

    @jitney.batch
    def guessed(self, image: NDArray[numpy.float32]) -> numpy.ndarray:
        assert image.shape[1:] == (3, 32, 32)
        return image.mean(axis=(1, 2, 3))

    @jitney.batch
    def points(self, point: list[Point], colour: list[Colour]) -> list[float]:
        return [one.x for one in point]

    @jitney.endpoint
    async def slow(self, name: str | None, at: tuple[int, str]) -> str:
        return f"{name} {at}"

    @jitney.endpoint
    def letters(self, text: str):
        yield from text

    @jitney.batch
    async def side_by_side(self, count: list[int]):
        for step in range(3):
            yield [step if step < many else jitney.END for many in count]


def test_every_kind_of_endpoint_is_run_with_items_that_its_hints_tell():
    reports = {report.endpoint: report for report in examine(jitney.define(Everything))}
    assert [one.mistakes for one in reports.values()] == [[]] * 7
    assert all(one.ran for one in reports.values())
    assert reports["declared"].passed[1] == "outputs follow their items, alone and in any order"
    assert reports["slow"].passed == ["answers 5 items one by one"]
    assert reports["letters"].passed == ["streams 5 items one by one"]
    assert reports["side_by_side"].passed[0] == "5 items give 5 outputs"


def test_arrays_of_a_shape_that_nobody_guesses_are_no_mistake():
    @jitney.batch
    def odd(x: numpy.ndarray) -> numpy.ndarray:
        return x.reshape(-1, 17, 3)

    @jitney.batch
    def frames(rows: pandas.DataFrame) -> pandas.DataFrame:
        return rows

    (report,) = examine(jitney.define(odd))
    assert not report.mistakes and not report.ran and "--sample" in report.remarks[0]
    (report,) = examine(jitney.define(frames))
    assert "no example could be made up" in report.remarks[0]


def test_requests_as_they_come_and_arguments_of_any_name_are_not_run():
    class Web:
        @jitney.endpoint(raw=True)
        def http(self, request):
            return request.body

        @jitney.batch
        def anything(self, **columns: numpy.ndarray) -> numpy.ndarray:
            return sum(columns.values())

        @jitney.batch
        def created(self, x: list[int]) -> list[jitney.Response]:
            return [jitney.Response(str(one), status=201) for one in x]

    http, anything, created = examine(jitney.define(Web))
    assert "HTTP requests as they come" in http.remarks[0] and "made up" in anything.remarks[0]
    assert len(created.passed) == 2 and not created.mistakes


def test_models_of_pydantic_have_their_fields_within_bounds():
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        item: str = pydantic.Field(max_length=3)
        share: float = pydantic.Field(gt=0, lt=1)
        place: Point
        note: str | None = None
        code: str = pydantic.Field(examples=["x-1"])

    for seed in range(5):
        Order.model_validate(value_of(Order, seed))
    assert value_of(Order, 0)["code"] == "x-1"


class Chain:
    """Calls a part, and a model of the server that nothing serves here."""

    other = jitney.depends(right)
    elsewhere = jitney.depends("resnet", encoding="json")

    @jitney.endpoint
    async def near(self, x: int) -> int:
        return await self.other.remote(x)

    @jitney.endpoint
    async def far(self, x: int) -> int:
        return await self.elsewhere.remote(x)


def test_parts_call_each_other_in_the_same_process():
    other, root = check(application.graph(Chain))
    assert (other.model, other.endpoints[0].ran) == ("right", True)
    near, far = root.endpoints
    assert (near.ran, near.mistakes, far.ran, far.mistakes) == (True, [], False, [])
    assert "not run: resnet is no part of this application" in far.remarks[0]


APP = """
import jitney

def bare(x: int) -> int:
    print("called")
    return x

@jitney.batch
def unknown(x):
    return x

@jitney.batch
def scalar(x: int) -> list[int]:
    return x
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "checked.py").write_text(APP)
    (tmp_path / "typo.py").write_text("import jitney\n\n@jitney.model(max_batchsize=3)\nclass Typo: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    return str(tmp_path)


def test_the_command_tells_by_text_json_and_status(app, capsys):
    def run(*words: str) -> tuple[int, str, str]:
        status = command.main(["check", *words, "--directory", app])
        out, err = capsys.readouterr()
        return status, out, err

    status, out, err = run("checked.py:bare")
    assert status == 0 and "bare: it has no decorator of jitney" in out and err == "called\n" * 5
    status, out, _ = run("checked.py:unknown")
    assert status == 1 and "Nothing could be run" in out
    status, out, _ = run("checked.py:unknown", "--json", "--sample", '{"x": 1}', "--endpoint", "call")
    document = json.loads(out)
    assert (status, document["ok"], document["models"][0]["endpoints"][0]["ran"]) == (0, True, True)
    status, _, err = run("checked.py:unknown", "--endpoint", "nope")
    assert status == 64 and "unknown has no endpoint 'nope'; it has: call" in err


def test_what_reading_finds_is_a_warning_of_the_server_too(app, capsys, tmp_path):
    assert command.main(["pack", "checked.py:scalar", "--directory", app, "--out", str(tmp_path / "out")]) == 0
    assert "warning: scalar: call: parameter 'x' is annotated int, but arrives as a list" in capsys.readouterr().err


def test_an_unknown_option_is_one_sentence(app, capsys, tmp_path):
    assert command.main(["pack", "typo.py", "--directory", app, "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == (
        "error: typo.py: @jitney.model has no option 'max_batchsize'; did you mean max_batch_size? (typo.py, line 3)\n"
    )


def test_the_example_of_the_api_page_has_arrays_unless_they_are_large():
    paths = json.dumps(openapi.describe(jitney.define(Everything))["paths"])
    assert '"example": {"x": [[0.0, 0.1, 0.2]]}' in paths

    @jitney.batch(inputs={"x": jitney.Tensor("FP32", [-1, 3, 224, 224])})
    def large(x: numpy.ndarray) -> numpy.ndarray:
        return x

    assert "example" not in json.dumps(openapi.describe(jitney.define(large))["paths"])
