"""The snippets of docs/guides/clients.md, run as they stand against the server that the page describes.

Only the addresses are this test's own. Those for the kserve package run where it is installed: `make test-kserve`.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import onnx
from harness.server import Server
from test_docs import RUN_SECONDS, snippets

PROGRAMS = [text for text in snippets("clients.md", "python") if not text.startswith("# app.py")]
COMMANDS = [
    line
    for text in snippets("clients.md", "bash")
    for line in text.splitlines()
    if "curl" in line and "jitney" not in line
]
EVENTS = "['data: 0', 'data: ', 'data: 1', 'data: ', 'event: end', 'data: ']\n"
EXPECTED = [
    "HELLO\n{'predictions': ['A', 'B']}\nTrue\n",
    "True\n['HELLO']\n",
    "[[4.0, 6.0]]\n",
    "[[4.0, 6.0]]\n",
    "[[2.0, 4.0]]\n",
    "[2.0, 0.5]\n['add', 'count', 'embed', 'shout']\n",
    EVENTS,
]


@pytest.fixture(scope="module")
def served(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("clients")
    app, *_ = (text for text in snippets("clients.md", "python") if text.startswith("# app.py"))
    (home / "app.py").write_text(app)
    (home / "greeting.txt").write_text("hello")
    values = [onnx.value(name, onnx.FLOAT, ["n", 2]) for name in "abc"]
    onnx.write(home / "add.onnx", [onnx.node("Add", ["a", "b"], "c")], values[:2], values[2:])
    (serve,) = (
        line for text in snippets("clients.md", "bash") for line in text.splitlines() if line.startswith("jitney")
    )
    server = Server(binary, home / "server", serve.partition("#")[0].split()[1:], cwd=home)
    yield server.started()
    server.end()


def here(server: Server, text: str) -> str:
    """The same with the addresses of the server under test."""
    text = text.replace("127.0.0.1:8080", server.urls["inference"].removeprefix("http://"))
    grpc = re.search(r"^gRPC inference +(\S+)$", server.stdout, re.MULTILINE)[1]
    return text.replace("127.0.0.1:7070", grpc)


@pytest.mark.parametrize(("program", "expected"), list(zip(PROGRAMS, EXPECTED, strict=True)))
def test_a_program_of_the_page_prints_what_it_should(
    served: Server, tmp_path: Path, program: str, expected: str
) -> None:
    for package in re.findall(r"^(?:from|import) (\w+)", program, re.MULTILINE):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed here")
    file = tmp_path / "program.py"
    file.write_text(here(served, program))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr


def test_the_commands_of_the_page_do_what_it_says(served: Server) -> None:
    said = []
    for line in COMMANDS:
        command = here(served, line).replace("curl ", "curl --silent --show-error --max-time 120 ", 1)
        done = subprocess.run(
            ["bash", "-c", command], cwd=served.cwd, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        said.append(done.stdout)
    events = "data: 0\ndata: \n\ndata: 1\ndata: \n\nevent: end\ndata: \n\n"
    assert said == ["HELLO"] * 4 + [events, '{"predictions":[[4.0,6.0]]}'] + ["HELLO"] * 3
