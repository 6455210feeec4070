"""ONNX Runtime from a package index: fetched by hand, or where a model needs it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pty
import subprocess
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import requests

from harness import onnx

RUNTIME = Path(pytest.importorskip("onnxruntime").__file__).parent / "capi"
LIBRARY = max(RUNTIME.glob("libonnxruntime.so*"))
VERSION = LIBRARY.name.removeprefix("libonnxruntime.so.")
WHEEL = f"onnxruntime-{VERSION}-cp311-cp311-manylinux_2_28_{os.uname().machine}.whl"


class Index(BaseHTTPRequestHandler):
    """A package index with one wheel, in which is the library of the tests' own environment."""

    wheel = b""

    def do_GET(self) -> None:
        """The page, or the wheel."""
        sums = {"sha256": hashlib.sha256(self.wheel).hexdigest()}
        page = {"files": [{"filename": WHEEL, "url": f"/{WHEEL}", "hashes": sums, "yanked": False}]}
        body = self.wheel if self.path == f"/{WHEEL}" else json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    """Where the index is."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(LIBRARY, f"onnxruntime/capi/{LIBRARY.name}")
    Index.wheel = packed.getvalue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()


@pytest.fixture
def home(index: str, tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has neither Python nor ONNX Runtime."""
    return {"PATH": "", "VIRTUAL_ENV": "", "HOME": str(tmp_path / "home"), "PIP_INDEX_URL": index}


def test_other_users_may_read_what_is_installed(binary: Path, tmp_path: Path, home: dict[str, str]) -> None:
    subprocess.run([binary, "onnx", "install", "--to", tmp_path / "lib"], env=home, check=True)
    assert (tmp_path / "lib" / LIBRARY.name).stat().st_mode & 0o777 == 0o644


def test_a_model_of_scikit_learns_kind_is_served_at_the_first_try(start, tmp_path: Path, home: dict[str, str]) -> None:
    server = start("serve", onnx.binarizer(tmp_path / "step.onnx"), "--yes", env=home)
    answer = requests.post(server.url("/predictions/step"), json=[[-1, 2]], timeout=120)
    assert answer.json() == [[0.0, 1.0]], answer.text


@pytest.mark.parametrize("said", ["y", "n"])
def test_somebody_at_a_terminal_is_asked(binary: Path, tmp_path: Path, home: dict[str, str], said: str) -> None:
    model = onnx.binarizer(tmp_path / "step.onnx")
    terminal, side = pty.openpty()
    flags = (
        "--port",
        "0",
        "--management-port",
        "0",
        "--metrics-port",
        "0",
        "--grpc-port",
        "0",
        "--grpc-management-port",
        "0",
    )
    with subprocess.Popen([binary, "serve", model, *flags], env=home, stdin=side, stdout=side, stderr=side) as process:
        shown = read_until(terminal, "Fetch it? [y/N] ")
        assert "step.onnx needs ONNX Runtime" in shown
        os.write(terminal, f"{said}\n".encode())
        read_until(
            terminal, f"ONNX Runtime {VERSION} is installed" if said == "y" else "the built-in engine cannot run it"
        )
        process.terminate()
        Thread(target=drain, args=(terminal,), daemon=True).start()
    os.close(side)


def read_until(terminal: int, words: str) -> str:
    """What is on the terminal once these words are."""
    shown = ""
    while words not in shown:
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


def drain(terminal: int) -> None:
    """Reads what nobody looks at, so that the server can write it."""
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass
