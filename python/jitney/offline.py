"""`jitney.infer`: a model over many rows, without a server, as an iterator.

    for output in jitney.infer("app:adder", ({"number": n} for n in range(1_000_000))):
        ...

The work is done by the `jitney` program beside this package: the same engine, batches and workers
as behind `jitney infer`. Rows are sent as fast as the program takes them, and a bounded number
of them is under way: neither input nor output has to fit into memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from jitney.errors import BadInput, Error
from jitney.http.answers import JSON, encode
from jitney.program import find_program

Rows = str | os.PathLike[str] | Iterable[Any]


class InferError(Exception):
    """The job itself ended: the model did not load, or the input cannot be read."""


def infer(
    model: Any,
    rows: Rows,
    *,
    endpoint: str | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    in_flight: int | None = None,
    numbers: bool = False,
    program: str | os.PathLike[str] | None = None,
) -> Iterator[Any]:
    """Yields one output per row, in order; for a row that failed, its `jitney.Error`.

    Args:
        model: what `jitney serve` takes, as text or path, the address of a served model, or a
            decorated function or class that can be imported.
        rows: a file or folder as `jitney infer` takes it, or an iterable of JSON values: a
            dictionary is one item's arguments by name.
        endpoint: of a model that has several.
        workers: processes, or threads of ONNX models.
        batch_size: most rows in a batch.
        in_flight: rows under way at a time.
        numbers: cells of a CSV file that are numbers become numbers.
        program: the `jitney` program, if not the one beside this Python or on the path.
    """
    source, fed = (os.fspath(rows), None) if isinstance(rows, (str, os.PathLike)) else ("-", map(_line, rows))
    flags = {"endpoint": endpoint, "workers": workers, "batch-size": batch_size, "in-flight": in_flight}
    lines = infer_lines(model, source, fed, program=program, numbers=numbers or None, **flags)
    return (_outcome(json.loads(line)) for line in lines)


def infer_lines(
    model: Any,
    source: str,
    lines: Iterator[bytes] | None,
    *,
    program: str | os.PathLike[str] | None = None,
    **flags: Any,
) -> Iterator[bytes]:
    """The output lines of `jitney infer MODEL SOURCE`; `lines`, if given, are written to its stdin meanwhile."""
    command = [find_program(program), "infer", _name(model), source, "-o", "-", "--python", sys.executable]
    for flag, value in flags.items():
        command += [] if value is None else [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    return _run(command, lines)


def _run(command: list[str], lines: Iterator[bytes] | None) -> Iterator[bytes]:
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


def _line(row: Any) -> bytes:
    """One row as a line of JSON; text becomes a JSON string, unlike in answers."""
    if isinstance(row, str):
        return json.dumps(row).encode() + b"\n"
    kind, body = encode(row)
    if kind != JSON:
        raise BadInput(f"a row must be a JSON value, not {type(row).__name__}")
    return bytes(body) + b"\n"


def _outcome(line: dict[str, Any]) -> Any:
    if "error" not in line:
        return line["output"]
    status = line["status"]
    kind = BadInput if status == BadInput.status else Error
    return kind(line["error"], status if 400 <= status <= 599 else None)


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


def _name(model: Any) -> str:
    """A model as the program understands it."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    name, module = getattr(model, "__qualname__", ""), getattr(model, "__module__", "")
    if not name or "<locals>" in name:
        raise ValueError(f"{model!r} cannot be imported by a worker: define it at the top of a module")
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None:
            raise ValueError(f"{name} is defined in a console, where no worker can import it; put it into a file")
        module = Path(file).stem  # Its directory is on the path that workers get.
    return f"{module}:{name}"
