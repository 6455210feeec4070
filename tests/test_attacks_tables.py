"""Attacks on the readers of tables: files of a few kilobytes that would take gigabytes or minutes. Each is 400, and the
worker that read it goes on."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet
import pytest
import requests

from harness.server import ASK_SECONDS, Server
from test_client_files import peak

APP = """
import jitney
import pandas as pd


@jitney.model(workers=1)
def rows(table: pd.DataFrame) -> int:
    return len(table)
"""
MODELS = ["app.py:rows"]
GROWTH = 200_000_000
"""Bytes that the worker may take for one of them beyond what it had."""


def parquet(column: pa.Array) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"x": column}), buffer, compression="zstd")
    return buffer.getvalue()


def repeated(text: str, times: int) -> pa.Array:
    """A text that is written once and stands in every row."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([text]))


FILES: dict[str, Callable[[], bytes]] = {
    "a text for every row": lambda: parquet(repeated("x" * 100_000, 20_000)),
    "zeros": lambda: parquet(pa.array([0.0] * 20_000_000)),
    "half a file": lambda: parquet(pa.array(range(1000)))[:-9],
    "a footer that lies": lambda: parquet(pa.array(range(1000)))[:-8] + b"\xff\xff\xff\x7fPAR1",
    "columns of one name": lambda: b"a," * 9000 + b"a\n",
    "too many columns": lambda: b",".join(b"c%d" % n for n in range(20_000)) + b"\n",
    "a first row of an index": lambda: b"a\n" + b"1," * 20_000 + b"1\n",
    "an open quote": lambda: b'a,b\n"' + b"x\n" * 500_000,
    "cells here and there": lambda: json.dumps([{str(n): 1} for n in range(9000)]).encode(),
    "deep": lambda: b"[" * 100_000,
}


def post(server: Server, content: bytes) -> requests.Response:
    kind = "application/json" if content.startswith(b"[") else "application/octet-stream"
    return requests.post(server.url("/rows"), data=content, headers={"content-type": kind}, timeout=ASK_SECONDS)


@pytest.mark.parametrize("name", FILES)
def test_a_small_file_takes_neither_memory_nor_the_worker(served: Server, name: str) -> None:
    (pid,) = served.ready("rows").values()
    assert pid is not None
    before, content = peak(pid), FILES[name]()
    assert len(content) < 2_000_000
    answer = post(served, content)
    assert answer.status_code == 400, answer.text
    assert peak(pid) < before + GROWTH
    assert post(served, b"a,b\n1,2\n3,4\n").json() == 2
    assert list(served.ready("rows").values()) == [pid], "the same worker"
