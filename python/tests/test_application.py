"""Applications made of parts: the graph, what objects are made with, and what is written for the server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import jitney
from jitney.definition.application import Bound, Dependency, graph
from jitney.definition.construction import make
from jitney.definition.locate import locate
from jitney.packing.pack import pack


@jitney.endpoint
def hello(name: str) -> str:
    return name


class Tokenizer:
    def __init__(self, size: int = 3) -> None:
        self.size = size

    @jitney.batch(max_batch_size=8)
    def split(self, text: list[str]) -> list[list[str]]:
        return [one.split() for one in text]


class Scorer:
    tokens = jitney.depends(Tokenizer)

    @jitney.batch
    def score(self, number: list[float]) -> list[float]:
        return number


class Pipeline:
    split = jitney.depends(Tokenizer)

    def __init__(self, threshold: float = 0.5, scorer: Any = jitney.depends(Scorer), *more: Any, **rest: Any) -> None:
        self.seen = self.split
        self.threshold, self.scorer, self.more, self.rest = threshold, scorer, more, rest

    @jitney.endpoint
    async def predict(self, text: str) -> float:
        return 0.0


def names(target: Any) -> list[str]:
    return [part.name for part in graph(target).parts]


def made(target: Any) -> Any:
    root = graph(target).root
    return make(root.definition, lambda slot: f"<{slot}>")


def test_parts_come_before_those_that_call_them() -> None:
    application = graph(Pipeline)
    assert [part.name for part in application.parts] == ["Tokenizer", "Scorer", "Pipeline"]
    assert application.root.depends == {"split": "Tokenizer", "scorer": "Scorer"}
    assert application.part("Scorer").depends == {"tokens": "Tokenizer"}
    assert names(Tokenizer) == ["Tokenizer"]


def test_bound_arguments_are_parts_wherever_they_are() -> None:
    big = jitney.bind(Tokenizer, 9, name="Big")
    app = jitney.bind(Pipeline, 0.7, jitney.bind(Scorer), [big, {"a": (big, 1)}], key=jitney.depends("resnet"))
    assert names(app) == ["Tokenizer", "Scorer", "Big", "Pipeline"]
    one = made(app)
    assert one.threshold == 0.7 and one.scorer == "<scorer>"
    assert one.more == (["<more[0][0]>", {"a": ("<more[0][1]['a'][0]>", 1)}],)
    assert one.rest == {"key": "<rest['key']>"}
    assert one.split == "<split>" == one.seen
    external = graph(app).root.links[-1]
    assert (external.model, external.is_part) == ("resnet", False)


def test_an_attribute_of_the_class_can_be_bound_differently() -> None:
    app = jitney.bind(Pipeline, split=jitney.bind(Tokenizer, 9, name="Big"))
    assert graph(app).root.depends["split"] == "Big"
    assert made(app).split == "<split>"


def test_constructors_that_cannot_be_called_are_found_out_at_once() -> None:
    with pytest.raises(jitney.DefinitionError, match=r"Tokenizer cannot be made with these arguments: .*'length'"):
        graph(jitney.bind(Tokenizer, length=3))
    with pytest.raises(jitney.DefinitionError, match="only a class is made with arguments"):
        graph(jitney.bind(hello, 3))


def test_a_function_cannot_depend_on_others() -> None:
    @jitney.endpoint
    def call(text: str, part: Any = jitney.depends(Tokenizer)) -> str:
        return text

    with pytest.raises(jitney.DefinitionError, match="only a class can depend on others"):
        graph(call)


def test_two_parts_of_one_name_are_an_error_unless_they_are_the_same() -> None:
    same = jitney.bind(Pipeline, scorer=jitney.bind(Scorer), again=[jitney.bind(Scorer), jitney.bind(Tokenizer)])
    assert names(same) == ["Tokenizer", "Scorer", "Pipeline"]
    other = jitney.bind(Pipeline, again=jitney.bind(Tokenizer, 9))
    with pytest.raises(jitney.DefinitionError, match=r'called \'Tokenizer\'.*jitney.bind\(Tokenizer, name="..."\)'):
        graph(other)
    numbered = jitney.bind(Pipeline, again=Bound(Tokenizer, (9,), numbered=True))
    assert names(numbered) == ["Tokenizer", "Scorer", "Tokenizer_1", "Pipeline"]


def test_a_circle_is_refused_with_its_way() -> None:
    class First:
        @jitney.endpoint
        def call(self, x: int) -> int:
            return x

    class Second:
        first = jitney.depends(First)
        call = jitney.endpoint(First.call)

    First.second = jitney.depends(Second)  # type: ignore[attr-defined]
    with pytest.raises(jitney.DefinitionError, match="circle: First -> Second -> First"):
        graph(First)

    class Own:
        again = jitney.depends("Own")
        call = jitney.endpoint(First.call)

    with pytest.raises(jitney.DefinitionError, match="circle: Own -> Own"):
        graph(Own)


def test_outside_of_an_application_a_dependency_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"Pipeline.split is a part of an application.*jitney.testing.load"):
        _ = Pipeline(scorer=None).split  # The constructor looks at it already.
    assert isinstance(Pipeline.split, Dependency)
    with pytest.raises(RuntimeError, match=r"scorer is .*jitney serve"):
        make(jitney.define(Pipeline)).scorer.remote(1)


def test_options_of_a_bound_definition_win() -> None:
    bound = jitney.bind(Tokenizer).with_options(workers=3, max_batch_size=4, name="Other", concurrency=5)
    definition = jitney.define(bound)
    assert (definition.name, definition.options.workers) == ("Other", 3)
    assert definition.endpoint("split").max_batch_size == 4
    assert definition.endpoint("split").concurrency == 1  # It is not `async`.
    with pytest.raises(jitney.DefinitionError, match="did you mean workers"):
        bound.with_options(worker=3)


def test_layers_over_this_package_give_their_own_bound() -> None:
    class Service:
        def __jitney_application__(self) -> Bound:
            return Bound(Tokenizer, (5,), name="Layered", view=lambda handle: f"seen {handle}")

    class Caller:
        part = jitney.depends(Service())
        call = jitney.endpoint(Tokenizer.split)

    assert jitney.define(Service()).name == "Layered"
    assert names(Caller) == ["Layered", "Caller"]
    view = graph(Caller).root.links[0].view
    assert view is not None and view("handle") == "seen handle"


def test_every_part_is_packed_with_the_version_of_the_root(tmp_path: Path) -> None:
    app = jitney.bind(Pipeline, other=jitney.depends("resnet", version="2.0", encoding="json"))
    told = pack(graph(app), "shop:app", "/srv", tmp_path / "out", "7")
    assert (told["name"], told["version"]) == ("Pipeline", "7")
    assert [(one["name"], one["version"]) for one in told["parts"]] == [("Tokenizer", "7"), ("Scorer", "7")]
    assert [Path(one["directory"]) for one in told["parts"]] == [tmp_path / "out.part1", tmp_path / "out.part2"]

    def section(directory: Path) -> Any:
        return json.loads((directory / "model-config.yaml").read_text())["jitney"]

    assert section(tmp_path / "out") == {"object": "shop:app", "directory": "/srv"}
    assert section(tmp_path / "out.part2") == {"object": "shop:app", "directory": "/srv", "part": "Scorer"}
    manifest = json.loads((tmp_path / "out.part2" / "MAR-INF" / "MANIFEST.json").read_text())
    assert manifest["model"]["modelName"] == "Scorer" and manifest["model"]["modelVersion"] == "7"
    api = json.loads((tmp_path / "out" / "jitney-api.json").read_text())
    assert api["depends"] == [
        {"slot": "split", "model": "Tokenizer", "version": "7"},
        {"slot": "scorer", "model": "Scorer", "version": "7"},
        {"slot": "rest['other']", "model": "resnet", "version": "2.0"},
    ]
    assert "depends" not in json.loads((tmp_path / "out.part1" / "jitney-api.json").read_text())


def test_a_module_with_parts_needs_no_name_for_the_one_that_calls_them(tmp_path: Path) -> None:
    source = "import jitney\n@jitney.model\nclass A:\n  @jitney.endpoint\n  def call(self, x: int) -> int: return x\n"
    source += "@jitney.model\nclass B:\n  a = jitney.depends(A)\n  call = jitney.endpoint(A.call)\n"
    (tmp_path / "parts_of_one.py").write_text(source)
    assert locate("parts_of_one", str(tmp_path)).__name__ == "B"
    (tmp_path / "bound_parts.py").write_text(source + "app = jitney.bind(B)\n")
    assert isinstance(locate("bound_parts", str(tmp_path)), Bound)
    for name in ("parts_of_one", "bound_parts"):
        del sys.modules[name]
