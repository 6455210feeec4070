"""The snippets of docs/guides/onnx.md, run as they stand; only the address is this test's own."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from harness.package import ROOT
from harness.server import ASK_SECONDS, Server

PAGE = (ROOT / "docs" / "guides" / "onnx.md").read_text()
SNIPPET = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(kind: str) -> list[str]:
    """The blocks of the page, in order."""
    return [text for word, text in SNIPPET.findall(PAGE) if word == kind]


def test_the_commands_of_the_page_do_what_it_says(binary: Path, tmp_path: Path) -> None:
    (script,) = [text for text in snippets("python") if text.startswith("# make.py")]
    (tmp_path / "make.py").write_text(script)
    subprocess.run([sys.executable, "make.py"], cwd=tmp_path, check=True, timeout=ASK_SECONDS)
    server = Server(binary, tmp_path / "server", ["serve", "scale.onnx"], cwd=tmp_path)
    try:
        server.started()
        lines = [line for text in snippets("bash") for line in text.splitlines() if line.startswith("curl")]
        assert len(lines) == 4
        for line in lines:
            command, _, said = line.partition("    # ")
            command = command.replace("http://127.0.0.1:8080", server.urls["inference"])
            done = subprocess.run([*shlex.split(command), "-s"], capture_output=True, check=True, timeout=ASK_SECONDS)
            answer = json.loads(done.stdout)
            if "/v2/" in command:
                answer = answer["outputs"][0]["data"]
            assert answer == json.loads(said), line
    finally:
        server.end()
