"""`pip install .` from a clean clone into an empty environment, and what a new user does next.

The environment has neither numpy nor torch, and cargo is not on its path. Building needs cargo and takes minutes;
what was built before is used again where CARGO_TARGET_DIR (or this checkout's target/) still has it. JITNEY_WHEEL names
one that is ready, as `make test-install` does with that of `make dist`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.archives import Store
from harness.server import Server

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
BUILD_SECONDS = 3600
RUN_SECONDS = 120
WHEEL_BYTES_MAX = 40 << 20

pytestmark = pytest.mark.heavy

PROGRAM = """
import sys
import jitney

@jitney.batch(max_batch_size=4)
def double(number: list[int]) -> list[int]:
    return [2 * one for one in number]

if __name__ == "__main__":
    with jitney.run(double) as handle:
        print([call.result(60) for call in [handle.remote(number) for number in range(5)]])
        handle.configure(max_batch_size=2)
    print(sorted({"numpy", "torch", "pandas"} & set(sys.modules)))
"""


class Installed:
    """An environment that has the wheel and nothing else."""

    def __init__(self, home: Path, wheel: Path) -> None:
        self.home = home
        self.wheel = wheel
        self.bin = home / "venv" / "bin"

    def run(self, *command: str | Path, cwd: Path | None = None, code: int = 0) -> str:
        """Runs a program of the environment as a user's shell would."""
        done = subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=cwd or self.home,
            env={"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    home = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    pip = [home / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    given = os.environ.get("JITNEY_WHEEL")
    wheel = Path(given) if given else build(home, pip, ".")
    subprocess.run([*pip, "install", wheel], check=True, timeout=RUN_SECONDS)
    return Installed(home, wheel)


def build(home: Path, pip: list[str | Path], directory: str) -> Path:
    """The wheel of a directory of a clean clone, of which nothing is left to be needed."""
    clone, wheels = home / "clone", home / "wheels"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    building = [*pip, "wheel", "--no-deps", "--wheel-dir", wheels, clone / directory]
    subprocess.run(building, env={**os.environ, "CARGO_TARGET_DIR": str(target)}, check=True, timeout=BUILD_SECONDS)
    shutil.rmtree(clone)
    (wheel,) = wheels.glob("jitney-*.whl")
    return wheel


def test_the_wheel_holds_binary_runtime_and_package_and_needs_nothing(installed):
    names = zipfile.ZipFile(installed.wheel).namelist()
    wanted = ("jitney/py.typed", "jitney/worker/loop.py", "ts/context.py", "model_archiver/__init__.py")
    assert set(wanted) <= set(names)
    assert any(re.fullmatch(r"jitney-.*\.data/scripts/jitney", name) for name in names)
    assert not [name for name in names if "/tests/" in name]
    assert installed.wheel.stat().st_size < WHEEL_BYTES_MAX
    packages = json.loads(installed.run("python", "-m", "pip", "list", "--format", "json"))
    assert {one["name"] for one in packages} <= {"jitney", "pip", "setuptools"}


def test_the_directory_python_builds_the_same_wheel(installed, tmp_path):
    pip = [installed.bin / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    other = build(tmp_path, pip, "python")
    # The tag says with how old a glibc it works, which depends on who built it.
    content = [sorted(zipfile.ZipFile(wheel).namelist()) for wheel in (installed.wheel, other)]
    assert content[0] == content[1]


def test_a_released_wheel_runs_on_old_systems(installed):
    if "JITNEY_WHEEL" in os.environ:
        assert "manylinux_2_17_x86_64" in installed.wheel.name
    command = ["objdump", "--dynamic-syms", installed.bin / "jitney"]
    symbols = subprocess.run(command, check=True, capture_output=True, text=True, timeout=RUN_SECONDS).stdout
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", symbols)}
    assert versions and ("JITNEY_WHEEL" not in os.environ or max(versions) <= (2, 17))


def test_program_and_package_have_the_same_version(installed):
    said = installed.run("jitney", "--version").split()[-1]
    assert installed.run("python", "-c", "import jitney; print(jitney.__version__)").strip() == said


def test_a_definition_is_served_to_handles_of_its_own_program(installed, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    said = installed.run("python", "program.py", cwd=tmp_path)
    assert said.splitlines() == ["[0, 2, 4, 6, 8]", "[]"]


def test_examples_are_served_checked_and_run_offline(installed, tmp_path):
    for name in ("adder.py", "sentiment.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    assert "WRONG" not in installed.run("jitney", "check", "adder:adder", cwd=tmp_path)
    (tmp_path / "in.csv").write_text("text\nA lovely day\nLate again\n")
    installed.run("jitney", "infer", "sentiment:mood", "in.csv", "-o", "out.csv", cwd=tmp_path)
    assert (tmp_path / "out.csv").read_text().split() == ["row,output", "0,good", "1,bad"]
    env = {"PATH": f"{installed.bin}:/usr/bin:/bin"}
    server = Server(installed.bin / "jitney", tmp_path / "server", ["serve", "adder.py:adder"], cwd=tmp_path, env=env)
    try:
        assert server.started().predict("adder", {"number": 41}).json() == 42
    finally:
        server.end()


def test_an_archive_is_served(installed, tmp_path):
    archive = Store(tmp_path / "store").mar("echo")
    env = {"PATH": f"{installed.bin}:/usr/bin:/bin"}
    server = Server(installed.bin / "jitney", tmp_path / "server", ["serve", archive], env=env)
    try:
        assert server.started().predict("echo", b"hello").content == b"hello"
    finally:
        server.end()


def test_torchserves_handlers_and_command_names_are_there(installed, tmp_path):
    (tmp_path / "handler.py").write_text(
        "from ts.context import Context\n\n"
        "def handle(data, context):\n    return [type(context).__name__ for _ in data] if data else None\n"
    )
    source = shutil.copytree(ROOT / "python" / "torchserve-compat", tmp_path / "compat")
    installed.run("python", "-m", "pip", "install", "--quiet", str(source))
    archive = ["--model-name", "kind", "--version", "1", "--handler", "handler.py", "--export-path", "."]
    installed.run("torch-model-archiver", *archive, cwd=tmp_path)
    (tmp_path / "in.jsonl").write_text("1\n")
    installed.run("jitney", "infer", "kind.mar", "in.jsonl", "-o", "out.jsonl", cwd=tmp_path)
    assert "Context" in json.loads((tmp_path / "out.jsonl").read_text())["output"]
    assert "--start" in installed.run("torchserve", "--help")
