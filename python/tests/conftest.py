"""Workers for tests: in a thread over a socket pair, or as the real process."""

from __future__ import annotations

import os
import socket
import sys
import textwrap
import threading

import pytest
import wire

from jitney.worker.loop import serve


class ThreadWorker(wire.Server):
    """A worker loop in a thread; `result` is its exit status, or the exception that ended it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self.result: object = None
        self._thread = threading.Thread(target=self._run, args=(theirs,))
        self._thread.start()

    def _run(self, sock: socket.socket) -> None:
        with sock:
            try:
                self.result = serve(sock, "token")
            except BaseException as error:
                self.result = error

    def end(self) -> object:
        """Hangs up and waits; returns the result."""
        self.sock.close()
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.result


KEPT = ("ts.", "jitney.", "torch", "PIL", "numpy", "onnxruntime", "captum", "sympy", "triton")
"""Modules that stay: libraries that cannot be imported twice into one process."""


@pytest.fixture(autouse=True)
def same_process_state():
    """Loading a model changes directory, import path and modules; every test gets them back."""
    cwd, path, modules = os.getcwd(), list(sys.path), set(sys.modules)
    yield
    os.chdir(cwd)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(KEPT):
            del sys.modules[name]


@pytest.fixture
def model(tmp_path):
    """Writes a handler file into a model directory and returns the directory."""

    def write(source: str, name: str = "handler.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def worker(model, monkeypatch):
    """Starts a loaded worker from handler source."""
    monkeypatch.setattr("jitney.torchserve.metrics._past_logging", True)
    workers = []

    def start(source: str, handler: str = "handler.py", **fields):
        one = ThreadWorker()
        workers.append(one)
        one.load(model(source), handler, **fields)
        one.read_control(wire.LOADED)
        return one

    yield start
    for one in workers:
        one.end()


@pytest.fixture
def raw_worker(monkeypatch):
    """Starts a worker without a model."""
    monkeypatch.setattr("jitney.torchserve.metrics._past_logging", True)
    workers = []

    def start():
        workers.append(ThreadWorker())
        return workers[-1]

    yield start
    for one in workers:
        one.end()
