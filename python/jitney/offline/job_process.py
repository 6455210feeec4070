"""A job of the `jitney` program as a child process: rows go in on a thread, lines of output come out."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from typing import IO

from jitney.call.errors import InferError


def run_job(command: list[str], lines: Iterator[bytes] | None, directory: str | None) -> Generator[bytes, None, None]:
    """The lines that a command prints. `lines` are written to its stdin; `directory` is removed in the end."""
    stdin = subprocess.DEVNULL if lines is None else subprocess.PIPE
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=_environment())
        feeder = _Feeder(process, lines)
        try:
            assert process.stdout is not None
            yield from process.stdout
            status = process.wait()
        finally:
            _end(process)
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
        if feeder.error is not None:
            raise feeder.error
        if status != 0:
            raise InferError(_error_text(stderr) or f"{command[0]} exited with {status}")


class _Feeder:
    """Writes the rows to the process, on a thread: the user's iterator may be slow."""

    def __init__(self, process: subprocess.Popen[bytes], lines: Iterator[bytes] | None) -> None:
        self.error: BaseException | None = None
        self._process = process
        if lines is not None:
            threading.Thread(target=self._feed, args=(lines,), daemon=True).start()

    def _feed(self, lines: Iterator[bytes]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            for line in lines:
                stdin.write(line)
                stdin.flush()  # The next row may take long.
            stdin.close()
        except BrokenPipeError:
            pass  # The process ended first; its stderr has the reason.
        except BaseException as error:
            self.error = error
            self._process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the job, also when the caller stops iterating."""
    if process.poll() is None:
        process.terminate()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _error_text(stderr: IO[bytes]) -> str:
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 65536))
    return stderr.read().decode(errors="replace").strip().removeprefix("error: ")


def _environment() -> dict[str, str]:
    """Workers import from where this process does."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path}
