"""The server of `jitney.run`: a child process that ends with this one, however that ends.

It holds the other end of a pipe. Its log goes where this program's messages go; in a notebook, where the
output of a child may get lost, it is read here and printed into the cell.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO

ADDRESS = re.compile(r"^(Inference|Management) +(\S+)$")
READY = "Try: "
END_SECONDS = 30.0


class ServerProcess:
    """A server that was started, and the private directory that it reads, if there is one."""

    def __init__(self, command: Sequence[str], cwd: str, directory: str, *, of_cells: bool) -> None:
        """Starts it. Where cells run, an interrupt ends a cell and not the server, and its log is printed here."""
        self._directory = directory
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if of_cells else None,
            text=True,
            errors="replace",
            start_new_session=of_cells,
        )
        self._reader = _in_background(_show, self._process.stderr) if of_cells else None
        try:
            self.addresses = self._wait_for_addresses()
        except BaseException:
            self.close()
            raise

    def _wait_for_addresses(self) -> dict[str, str]:
        assert self._process.stdout is not None
        addresses = _addresses(self._process.stdout)
        if "Inference" not in addresses:
            status = self._process.wait()
            raise RuntimeError(f"the server did not start (status {status}); see its output above")
        _in_background(_discard, self._process.stdout)
        return addresses

    def close(self) -> None:
        """Ends the server after it has answered what it has accepted."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with contextlib.suppress(OSError):
                stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join(END_SECONDS)
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)


def _in_background(work: Callable[[IO[str]], None], lines: IO[str] | None) -> threading.Thread:
    thread = threading.Thread(target=work, args=(lines,), name="jitney-output", daemon=True)
    thread.start()
    return thread


def _addresses(lines: IO[str]) -> dict[str, str]:
    """The server's addresses, once it is ready."""
    found: dict[str, str] = {}
    for line in lines:
        match = ADDRESS.match(line.rstrip())
        if match:
            found[match[1]] = match[2]
        if line.startswith(READY):
            return found
    return {}


def _show(lines: IO[str]) -> None:
    for line in lines:
        with contextlib.suppress(Exception):  # The program may have closed its own stderr.
            sys.stderr.write(line)


def _discard(lines: IO[str]) -> None:
    for _ in lines:
        pass
