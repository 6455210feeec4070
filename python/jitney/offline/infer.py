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
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import IO, Any

from jitney.call.errors import BadInput, Error, InferError
from jitney.definition.definition import Definition
from jitney.http.response import encode_json
from jitney.machine.process import find_program
from jitney.offline.progress_bar import ProgressBar
from jitney.offline.row_source import check_columns, read_rows, takes_tables
from jitney.packing import by_value

OUTPUT, ERROR = "output", "error"
EVERY_ROW_FAILED = "every row failed"
"""The end of what the program says of a job without any output."""


class Outputs(Iterator[Any]):
    """The outputs of a job, in the order of its rows. A failed row's output is its `jitney.Error`.

    The job ends when all outputs were read, or with `close`. A table has the outputs that are dictionaries by their
    keys, any others in the column `output`; if rows failed, their messages are in the column `error`.
    """

    def __init__(self, outputs: Generator[Any, None, None], index: Any = None) -> None:
        self._outputs = outputs
        self._index = index
        self._begun = False

    def __next__(self) -> Any:
        self._begun = True
        return next(self._outputs)

    def close(self) -> None:
        """Ends the job."""
        self._outputs.close()

    def to_pandas(self) -> Any:
        """All outputs as a pandas DataFrame, with the index of the frame or series that the rows came from."""
        self._check_unread()
        pandas = _library("pandas")
        records = _records(list(self))
        return pandas.DataFrame.from_records(records, index=self._index if records else None)

    def to_arrow(self) -> Any:
        """All outputs as an Arrow table."""
        self._check_unread()
        return _library("pyarrow").Table.from_pylist(_records(list(self)))

    def _check_unread(self) -> None:
        if self._begun:
            raise InferError("some outputs were read already, and a table has all of them; call jitney.infer again")

    def __repr__(self) -> str:
        return "<jitney.infer: outputs to iterate over, or .to_pandas(), .to_arrow()>"


def _records(outputs: list[Any]) -> list[dict[str, Any]]:
    """Rows of a table, all with the same columns."""
    outputs = [one[0] if _is_row_of_frame(one) else one for one in outputs]
    good = [one for one in outputs if not isinstance(one, BaseException)]
    by_key = bool(good) and all(isinstance(one, dict) for one in good)
    keys = list(dict.fromkeys(key for one in good for key in one)) if by_key else [OUTPUT]
    failed = len(good) < len(outputs)

    def record(one: Any) -> dict[str, Any]:
        bad = isinstance(one, BaseException)
        found = {} if bad else one if by_key else {OUTPUT: one}
        cells = {key: found.get(key) for key in keys}
        return {**cells, ERROR: str(one) if bad else None} if failed else cells

    return [record(one) for one in outputs]


def _is_row_of_frame(output: Any) -> bool:
    """Whether a function that returns frames gave it: a list with one record."""
    return isinstance(output, list) and len(output) == 1 and isinstance(output[0], dict)


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"this needs {name}: {sys.executable} -m pip install {name}") from None


__all__ = ["InferError", "Outputs", "infer", "infer_lines"]

Rows = str | os.PathLike[str] | Iterable[Any]


def infer(
    model: Any,
    rows: Rows,
    *,
    endpoint: str | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    in_flight: int | None = None,
    numbers: bool = False,
    progress: bool | None = None,
    program: str | os.PathLike[str] | None = None,
) -> Outputs:
    """Yields one output per row, in order; for a row that failed, its `jitney.Error`.

    All outputs at once are `list(...)`, or a table: `.to_pandas()`, `.to_arrow()`.

    Args:
        model: what `jitney serve` takes, as text or path, the address of a served model, what
            `jitney.run` returned, or a decorated function or class. One that cannot be imported (of a
            notebook's cell) needs `pip install 'jitney[notebook]'`.
        rows: a file or folder as `jitney infer` takes it; a pandas or polars DataFrame or an Arrow
            table, whose columns are the arguments by name; or an iterable of JSON values: a
            dictionary is one item's arguments by name.
        endpoint: of a model that has several.
        workers: processes, or threads of ONNX models.
        batch_size: most rows in a batch.
        in_flight: rows under way at a time.
        numbers: cells of a CSV file that are numbers become numbers.
        progress: a bar that tells how far it is; by default on a terminal and in a notebook.
        program: the `jitney` program, if not the one beside this Python or on the path.
    """
    source = read_rows(rows)
    if source.columns is not None and not _is_named(model):
        check_columns(source.columns, model, endpoint)
    fed = None if source.rows is None else map(_line, source.rows)
    flags = {"endpoint": endpoint, "workers": workers, "batch-size": batch_size, "in-flight": in_flight}
    lines = infer_lines(model, source.path or "-", fed, program=program, numbers=numbers or None, **flags)
    of_tables = not _is_named(model) and takes_tables(model, endpoint)
    return Outputs(_outcomes(lines, ProgressBar(source.count, progress), of_tables), source.index)


def _outcomes(lines: Generator[bytes, None, None], bar: ProgressBar, of_tables: bool) -> Generator[Any, None, None]:
    """The outcomes; a function that takes tables answers a row with a list of one, of which the one is the output."""
    with contextlib.closing(lines), bar:
        for line in lines:
            outcome = _outcome(json.loads(line))
            outcome = outcome[0] if of_tables and isinstance(outcome, list) and len(outcome) == 1 else outcome
            bar.count(isinstance(outcome, Error))
            yield outcome


def infer_lines(
    model: Any,
    source: str,
    lines: Iterator[bytes] | None,
    *,
    program: str | os.PathLike[str] | None = None,
    **flags: Any,
) -> Generator[bytes, None, None]:
    """The output lines of `jitney infer MODEL SOURCE`; `lines`, if given, are written to its stdin meanwhile."""
    name, directory = _name(model)
    command = [find_program(program), "infer", name, source, "-o", "-", "--python", sys.executable]
    for flag, value in flags.items():
        command += [] if value is None else [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    return run_job(command, lines, directory)


def _line(row: Any) -> bytes:
    """One row as a line of JSON; text becomes a JSON string, unlike in answers."""
    if isinstance(row, (bytes, bytearray, memoryview)):
        raise BadInput(f"a row must be a JSON value, not {type(row).__name__}")
    return encode_json(row) + b"\n"


def _outcome(line: dict[str, Any]) -> Any:
    if "error" not in line:
        return line["output"]
    status = line["status"]
    kind = BadInput if status == BadInput.status else Error
    return kind(line["error"], status if 400 <= status <= 599 else None)


def _name(model: Any) -> tuple[str, str | None]:
    """A model as the program understands it, and the directory that was made for it, if there is one."""
    if _is_named(model):
        return model.__jitney_url__() if hasattr(model, "__jitney_url__") else os.fspath(model), None
    if hasattr(model, "remote"):
        raise InferError(
            "a job is run by what jitney.run returned or by a model's address, not by a handle; see endpoint="
        )
    model = (model.bound or model.target) if isinstance(model, Definition) else model
    source = by_value.importable(model)
    if source is not None:
        is_file = source.spec.partition(":")[0].endswith(".py")  # Modules are on the path that workers get.
        return os.path.join(source.directory, source.spec) if is_file else source.spec, None
    directory = tempfile.mkdtemp(prefix="jitney-infer-")
    try:
        return by_value.write(model, directory).spec, directory
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _is_named(model: Any) -> bool:
    """Whether a model is a text, or what `jitney.run` returned; others are definitions."""
    return isinstance(model, (str, os.PathLike)) or hasattr(model, "__jitney_url__")


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
        text = _error_text(stderr)
        if status != 0 and not text.endswith(EVERY_ROW_FAILED):  # Each of them was told.
            raise InferError(text or f"{command[0]} exited with {status}")


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
