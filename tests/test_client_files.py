"""Files of clients that are small on the wire and large, or a program, once they are opened: 400, and the worker stays
as it was."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.server import ASK_SECONDS, Server

APP = """
import jitney
import numpy as np
from PIL import Image


@jitney.model(workers=1)
class Reader:
    @jitney.endpoint
    def total(self, x: np.ndarray) -> float:
        return float(x.sum())

    @jitney.endpoint
    def text(self, words: list[str]) -> int:
        return len(words)

    @jitney.endpoint
    def size(self, photo: Image.Image) -> list[int]:
        return list(photo.size)
"""
MODELS = ["app.py:Reader"]
PEAK = 200_000_000
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{} loop\n"


def post(server: Server, endpoint: str, content: bytes) -> requests.Response:
    url = f"{server.urls['inference']}/Reader/{endpoint}"
    return requests.post(url, data=content, headers={"content-type": "application/octet-stream"}, timeout=ASK_SECONDS)


def bomb(size: int) -> bytes:
    """Zeros in an npz file."""
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},)}}\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return buffer.getvalue()


def peak(pid: int) -> int:
    """The most memory that a process ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize("endpoint", ["total", "text"])
def test_an_archive_of_zeros_takes_no_memory(served: Server, endpoint: str) -> None:
    (pid,) = served.ready("Reader").values()
    assert pid is not None
    answer = post(served, endpoint, bomb(600 << 20))
    assert answer.status_code == 400, answer.text
    assert peak(pid) < PEAK
    assert "it expands to" in answer.text or endpoint == "text"


def test_postscript_is_no_image_and_starts_nothing(
    start: Callable[..., Server], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {started}\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = post(start("serve", *MODELS, cwd=home), "size", EPS)
    assert (answer.status_code, started.exists()) == (400, False)
    assert "send one of JPEG, PNG, WEBP, GIF, BMP, TIFF (image_formats)" in answer.text
