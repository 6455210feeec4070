"""`module:object` in all its spellings, and the model directory that is made of it."""

from __future__ import annotations

import json

import pytest

import jitney
from jitney.__main__ import main
from jitney.definition.definition import define
from jitney.definition.locate import locate
from jitney.packing import pack

SOURCE = """
import jitney

@jitney.batch(max_batch_size=8, max_latency_ms=50, policy="adaptive", workers=2, queue=7)
def served_one(x: list[int]) -> list[int]:
    return x

class Space:
    @staticmethod
    def inner(x):
        return x
"""


@pytest.fixture
def app(tmp_path):
    (tmp_path / "located_app.py").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize(
    "spec", ["located_app:served_one", "located_app.py:served_one", "located_app.py", "located_app"]
)
def test_an_object_is_found(app, spec):
    assert locate(spec, str(app)).__name__ == "served_one"


def test_an_object_inside_another_is_found(app):
    assert locate("located_app:Space.inner", str(app))(3) == 3


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("located_app:nothing", "its definitions: served_one"),
        ("located_app:serve_one", r"has no 'serve_one' \(did you mean served_one\?\)"),
        ("no_such_module:x", "no module 'no_such_module'"),
        ("no_such_file.py:x", "no file no_such_file.py"),
    ],
)
def test_a_missing_object_is_reported_with_those_that_exist(app, spec, words):
    with pytest.raises(jitney.DefinitionError, match=words):
        locate(spec, str(app))


def test_packing_writes_what_the_server_reads(app, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["pack", "located_app:served_one", "--directory", str(app), "--out", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["name"], printed["version"]) == ("served_one", "1.0")
    assert printed["sources"] == [str(app / "located_app.py")]
    settings = json.loads((out / "model-config.yaml").read_text())
    assert settings["batching"] == {"max_batch_size": 8, "max_latency_ms": 50, "policy": "adaptive"}
    assert (settings["minWorkers"], settings["jobQueueSize"]) == (2, 7)
    assert json.loads((out / "jitney-api.json").read_text())["endpoints"] == ["call"]


def test_a_cost_reaches_the_server_as_tokens_or_as_a_length(tmp_path):
    def costs(*options):
        endpoints = [jitney.batch(max_batch_size=64, **one)(lambda self, x: x) for one in options]
        namespace = {f"e{at}": endpoint for at, endpoint in enumerate(endpoints)}
        model = jitney.model(name="m")(type("M", (), namespace))
        return pack.settings(define(model), "m:m", str(tmp_path))["batching"].get("cost")

    long, short = {"cost": len, "padded": True}, {"cost": len}
    assert costs({}, {}) is None
    assert costs(short, {}) == "tokens"
    assert costs(long, {}) == "length"
    assert costs(long, short) == "tokens", "one unit for all, which the worker then takes apart"


def test_code_that_does_not_import_is_an_error_with_its_traceback(tmp_path, capsys):
    (tmp_path / "broken_app.py").write_text("1/0\n")
    assert main(["check", "broken_app:x", "--directory", str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert "ZeroDivisionError" in printed
    assert "while it was imported" in printed


def test_code_that_cannot_be_parsed_is_shown_with_its_caret_and_nothing_before(tmp_path, capsys):
    (tmp_path / "unclosed_app.py").write_text("def f(:\n")
    assert main(["check", "unclosed_app:x", "--directory", str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert printed.lstrip().startswith('File "') and "unclosed_app.py" in printed.splitlines()[0]
    assert "^" in printed and "SyntaxError" in printed and "Traceback" not in printed
