"""The worker's side of its decoding helpers (`decoder`): processes, because Python's threads share one interpreter.

A helper has one image at a time. If no helper is idle, no plan fits the image, or the helper does not support it or
exits, the calling thread decodes the image itself: nothing is lost, and every answer is the same as without helpers. A
helper that exited or hangs is replaced, up to a limit; without any left the worker decodes everything.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import ts
from ts.torch_handler import decoder
from ts.torch_handler.decoder import REPLY, REQUEST, receive

PATIENCE_SECONDS = 30.0
EXIT_SECONDS = 1.0
REPLACEMENTS_MAX = 16


class Pixels(NamedTuple):
    """An RGB image of a helper, with the members of a PIL image that `images` uses."""

    size: tuple[int, int]
    content: bytearray
    mode: str = "RGB"

    def tobytes(self) -> bytearray:
        """Three bytes for every pixel, row by row."""
        return self.content


class Helper:
    """One helper process and the socket to it."""

    def __init__(self) -> None:
        self.sock, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", decoder.__name__, str(theirs.fileno())]
            home = Path(ts.__file__).parent.parent  # `-m` looks for modules in the working directory first.
            self.process = subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self.sock.settimeout(PATIENCE_SECONDS)

    def ask(self, plan: bytes, content: Any) -> Pixels | None:
        """The pixels of an image, or None if the helper does not support it; raises when it has exited or hangs."""
        self.sock.sendall(REQUEST.pack(len(plan), len(content)) + plan)
        self.sock.sendall(content)
        worked, width, height = REPLY.unpack(receive(self.sock, REPLY.size))
        return Pixels((width, height), receive(self.sock, width * height * 3)) if worked else None

    def end(self) -> None:
        """Closes the socket, waits a moment, then kills it; leaves no zombie."""
        self.sock.close()
        try:
            self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Decoders:
    """A fixed number of helpers, for any thread."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._replacements = REPLACEMENTS_MAX
        self._closed = False
        self._owner = os.getpid()
        self._helpers = {Helper() for _ in range(count)}
        self._idle: queue.SimpleQueue[Helper] = queue.SimpleQueue()
        for helper in self._helpers:
            self._idle.put(helper)
        if count:
            atexit.register(self.close)

    def __len__(self) -> int:
        return len(self._helpers)

    def decode(self, plan: bytes | None, content: Any) -> Pixels | None:
        """The pixels of an image, or None if the caller has to read it itself."""
        if plan is None:
            return None
        try:
            helper = self._idle.get_nowait()
        except queue.Empty:
            return None
        try:
            pixels = helper.ask(plan, content)
        except (OSError, EOFError):
            self._replace(helper)
            return None
        self._idle.put(helper)
        return pixels

    def _replace(self, helper: Helper) -> None:
        """Ends a helper and starts another while the limit allows."""
        with self._lock:
            self._helpers.discard(helper)
            self._replacements -= 1
            again = self._replacements >= 0 and not self._closed
        print(f"a decoding helper exited or hangs; {'another one is started' if again else 'it is not replaced'}")
        helper.process.kill()
        helper.end()
        if again:
            with contextlib.suppress(OSError):
                fresh = Helper()
                with self._lock:
                    self._helpers.add(fresh)
                self._idle.put(fresh)

    def close(self) -> None:
        """Ends the helpers; a process that was forked off leaves those of its parent alone."""
        atexit.unregister(self.close)
        with self._lock:
            helpers, self._helpers, self._closed = self._helpers, set(), True
        if os.getpid() == self._owner:
            for helper in helpers:
                with contextlib.suppress(OSError):
                    helper.sock.shutdown(socket.SHUT_RDWR)
            for helper in helpers:
                helper.end()
