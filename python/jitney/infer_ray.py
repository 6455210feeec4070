"""`python -m jitney.infer_ray`: `jitney infer --ray` as a Ray Data job over a cluster.

Prints one outcome per row, in the order of the input; the command that starts it writes them down and
remembers how far it is. Each actor of the job runs the same `jitney` program as a job on one machine
would, so every kind of model works. Input and model must be found under the same paths on all nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
from collections.abc import Iterator
from typing import Any

from jitney.errors import status_of
from jitney.offline import infer

RANGE_BYTES = 4 << 20
"""Bytes of the input that one read task takes."""

BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n\x0c"


def main(arguments: list[str] | None = None) -> int:
    """Runs the job; complaints go to stderr."""
    flags = parser().parse_args(arguments)
    try:
        import ray
        import ray.data
    except ImportError:
        print(f"error: --ray needs Ray: {sys.executable} -m pip install 'ray[data]'", file=sys.stderr)
        return 1
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}}
    ray.init(address=flags.address, runtime_env=environment, log_to_driver=False, logging_level="ERROR")
    try:
        for outcome in outcomes(flags):
            sys.stdout.write(outcome + "\n")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Nobody reads on.
        return 1
    finally:
        ray.shutdown()
    sys.stdout.flush()
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    one = argparse.ArgumentParser(prog="python -m jitney.infer_ray")
    one.add_argument("model")
    one.add_argument("input", help="lines of JSON")
    one.add_argument("--position", type=int, default=0, help="the byte to begin at")
    one.add_argument("--address", help="the cluster; without one, a cluster of this machine's own")
    one.add_argument("--program", required=True, help="the jitney program")
    one.add_argument("--directory", required=True, help="where definitions are imported from")
    one.add_argument("--actors", type=int, required=True)
    one.add_argument("--batch-size", type=int)
    one.add_argument("--endpoint")
    return one


def outcomes(flags: argparse.Namespace) -> Iterator[str]:
    """One outcome per row, in order."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    parts = [
        {"path": flags.input, "begin": begin, "end": end, "first": begin == flags.position}
        for begin, end in ranges(flags.position, os.path.getsize(flags.input))
    ]
    if not parts:
        return
    rows = ray.data.from_items(parts, override_num_blocks=len(parts)).flat_map(lines)
    answered = rows.map_batches(
        Runner,
        fn_constructor_kwargs={
            "model": flags.model,
            "directory": flags.directory,
            "wishes": {"program": flags.program, "endpoint": flags.endpoint, "batch_size": flags.batch_size},
        },
        batch_size=4 * (flags.batch_size or 256),
        batch_format="pyarrow",
        concurrency=flags.actors,
    )
    for row in answered.iter_rows():
        yield row["outcome"]


def ranges(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The bytes in pieces."""
    for at in range(begin, end, RANGE_BYTES):
        yield at, min(at + RANGE_BYTES, end)


def lines(part: dict[str, Any]) -> list[dict[str, str]]:
    """The rows that begin inside a part; the one before it is another's, the last may reach beyond it."""
    rows = []
    with open(part["path"], "rb") as file:
        if part["first"]:
            file.seek(part["begin"])
        else:
            file.seek(part["begin"] - 1)
            file.readline()
        while file.tell() < part["end"]:
            line = file.readline().rstrip(BLANK).removeprefix(BOM)
            if line:
                rows.append({"line": line.decode(errors="replace")})
    return rows


class Runner:
    """An actor: the jitney program, loaded once and asked batch by batch."""

    def __init__(self, model: str, directory: str, wishes: dict[str, Any]) -> None:
        os.chdir(directory)
        self._asked: queue.Queue[Any] = queue.Queue()
        self._answers = infer(model, iter(self._asked.get, self), workers=1, **wishes)

    def __call__(self, batch: Any) -> dict[str, list[str]]:
        """One outcome per line."""
        rows = [_read(line) for line in batch.column("line").to_pylist()]
        for row in rows:
            self._asked.put(row)
        return {"outcome": [json.dumps(_outcome(next(self._answers))) for _ in rows]}

    def __del__(self) -> None:
        self._asked.put(self)


def _read(line: str) -> Any:
    """A row; one that is no JSON is told so by the command, whatever is answered here."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _outcome(answer: Any) -> dict[str, Any]:
    if isinstance(answer, BaseException):
        return {"error": str(answer), "status": status_of(answer)}
    return {"output": answer}


if __name__ == "__main__":
    sys.exit(main())
