"""Definitions that no worker can import by name: how they are written, and read again by another process."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jitney
from jitney.handle import launch
from jitney.machine.process import is_interactive
from jitney.packing import by_value

ROOT = Path(__file__).parents[1]


def importable(x: int) -> int:
    return x


def maker(factor: int) -> Any:
    @jitney.batch(max_batch_size=3)
    def times(x: list[int]) -> list[int]:
        return [factor * one for one in x]

    return times


def read_elsewhere(source: by_value.Source, code: str) -> str:
    """What another Python prints that finds the definition as a worker does."""
    script = (
        f"from jitney.definition.locate import locate\nfound = locate({source.spec!r}, {source.directory!r})\n{code}"
    )
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return ran.stdout + ran.stderr


def test_a_function_of_a_module_is_imported_and_one_that_was_made_is_not():
    assert by_value.importable(importable) == (f"{__name__}:importable", str(Path(__file__).parent))
    assert by_value.importable(maker(2)) is None
    assert by_value.importable(lambda x: x) is None
    assert by_value.importable(SimpleNamespace()) is None


def test_a_name_that_now_means_something_else_is_not_imported(monkeypatch):
    kept = importable
    monkeypatch.setitem(globals(), "importable", maker(2))
    assert by_value.importable(kept) is None


def test_a_function_that_was_made_is_read_again_with_its_options_and_variables(tmp_path):
    source = by_value.write(maker(7), str(tmp_path))
    code = "import jitney; one = jitney.define(found); print(one.name, one.max_batch_size, found([1, 2]))"
    assert read_elsewhere(source, code).strip() == "times 3 [7, 14]"


def test_hints_that_are_texts_keep_their_meaning(tmp_path):
    space: dict[str, Any] = {"__name__": "__main__", "jitney": jitney, "Words": list[str]}
    exec("from __future__ import annotations\n\ndef shout(word: Words) -> Words:\n    return word", space)
    source = by_value.write(space["shout"], str(tmp_path))
    assert read_elsewhere(source, "print(found.__annotations__['word'])").strip() == "list[str]"
    assert space["shout"].__annotations__["word"] == "Words"


def test_a_lambda_is_served_under_the_name_that_it_is_given(tmp_path):
    double = lambda x: 2 * x  # noqa: E731
    with pytest.raises(jitney.DefinitionError, match=r"a lambda has no name .* jitney\.run"):
        jitney.run(double)
    assert jitney.define(double, name="double").name == "double"
    source = by_value.write(double, str(tmp_path), name="double")
    assert read_elsewhere(source, "import jitney; print(jitney.define(found).name, found(4))").strip() == "double 8"


def test_another_version_of_python_says_why_it_cannot_read_it(tmp_path):
    source = by_value.write(maker(7), str(tmp_path))
    module = Path(source.spec.partition(":")[0])
    module.write_text(module.read_text().replace(f"WRITTEN_BY = {sys.version_info[:2]}", "WRITTEN_BY = (3, 7)"))
    assert "it was written by Python 3.7 and cannot be read by" in read_elsewhere(source, "")


def test_what_cannot_be_pickled_is_named(tmp_path):
    with pytest.raises(jitney.DefinitionError, match="locked cannot be written for the workers: "):
        by_value.write(maker_of(threading.Lock()), str(tmp_path))


def maker_of(lock: Any) -> Any:
    def locked(x: int) -> int:
        with lock:
            return x

    return locked


@pytest.mark.parametrize(
    ("device", "flags"),
    [
        ("cpu", ["--device-type", "cpu"]),
        ("cuda", ["--device-type", "gpu"]),
        ("cuda:1", ["--device-type", "gpu", "--device-ids", "1"]),
        ([0, 2], ["--device-type", "gpu", "--device-ids", "0,2"]),
    ],
)
def test_devices_become_flags(device, flags):
    assert launch.worker_flags(None, device, None) == flags
    with pytest.raises(ValueError, match="device must be"):
        launch.worker_flags(None, "tpu", None)


def test_cells_are_quiet_unless_they_ask(monkeypatch):
    assert launch.log_flags(None, True) == []
    assert launch.log_flags("Warning", False) == ["--log-level", "warn,jitney::worker_output=off"]
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    assert is_interactive()
    assert launch.log_flags(None, True) == ["--log-level", "warn"]
    assert launch.log_flags("debug", True) == ["--log-level", "debug"]


def test_completion_lists_the_public_names_and_nothing_else():
    assert dir(jitney) == sorted(jitney.__all__)
    assert all(hasattr(jitney, name) for name in dir(jitney))
    handle = jitney.connect("http://127.0.0.1:1").model("m")
    assert dir(handle) == ["configure", "options", "remote", "stream", "submit"]
    known = jitney.Handle(handle._connections, "m", endpoints={"price": "price(item)"})
    assert dir(known) == ["configure", "options", "price", "remote", "stream", "submit"]
    with pytest.raises(AttributeError, match="m has no endpoint 'prize'; it has: price"):
        _ = known.prize
