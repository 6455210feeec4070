"""Entry scripts of Azure ML: how a request becomes the arguments of `run()`, and which scripts are rejected."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from azureml_inference_server_http.script import EntryScript, Rejected
from jitney.http.request import HttpRequest

BY_NAME = """
def init(): pass
def run(a, b=2): return [a, b]
"""
JSON = {"content-type": "application/json"}


def script(folder: Path, source: str) -> EntryScript:
    """The script with this source."""
    (folder / "score.py").write_text(source)
    return EntryScript({"AML_APP_ROOT": str(folder), "AZUREML_ENTRY_SCRIPT": "score.py"})


@pytest.fixture
def with_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function has a schema of the package inference-schema."""
    util = types.ModuleType("inference_schema.schema_util")
    util.is_schema_decorated = lambda run: True
    monkeypatch.setitem(sys.modules, util.__name__, util)


def test_a_bare_run_gets_text(tmp_path: Path) -> None:
    echo = script(tmp_path, "def init(): pass\ndef run(data): return data\n")
    assert echo.run(HttpRequest("POST", "/score", body="grün".encode())) == "grün"
    assert echo.run(HttpRequest("GET", "/score", query_string="a=1&b=x&b=[2]")) == '{"a": 1, "b": ["x", [2]]}'
    with pytest.raises(Rejected) as rejected:
        echo.run(HttpRequest("PUT", "/score"))
    assert rejected.value.status == 405


@pytest.mark.usefixtures("with_schema")
def test_values_with_a_schema_come_by_name(tmp_path: Path) -> None:
    pair = script(tmp_path, BY_NAME)
    assert pair.run(HttpRequest("POST", "/score", body=b'{"a": [1]}', headers=JSON)) == [[1], 2]
    assert pair.run(HttpRequest("GET", "/score", query_string="a=1&b=3")) == [1, 3]
    for body, headers, status in [
        (b"{}", JSON, 400),
        (b"[1]", JSON, 400),
        (b"", JSON, 400),
        (b"{", JSON, 400),
        (b'{"a": 1}', {"content-type": "text/plain"}, 415),
    ]:
        with pytest.raises(Rejected) as rejected:
            pair.run(HttpRequest("POST", "/score", body=body, headers=headers))
        assert rejected.value.status == status, body


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def init(): pass\n", "has no function run"),
        ("def run(data): pass\n", "has no function init"),
        ("def init(): pass\ndef run(*data): pass\n", "must take its input by name"),
        ("def init(): pass\ndef run(request_headers): pass\n", "must take its input by name"),
    ],
)
def test_a_script_that_cannot_be_run_is_said(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        script(tmp_path, source)


def test_a_script_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="AZUREML_ENTRY_SCRIPT"):
        EntryScript({"AML_APP_ROOT": str(tmp_path), "AZUREML_ENTRY_SCRIPT": "none.py"})
