"""`python -m jitney.infer_ray`: `jitney infer --ray` as a Ray Data job over a cluster.

Prints one outcome per row, in the order of the input; the command that starts it writes them down and
remembers how far it is. Each actor of the job runs the same `jitney` program as a job on one machine
would, so every kind of model works. Input and model must be found under the same paths on all nodes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import queue
import sys
from collections.abc import Iterator
from typing import Any

from jitney.errors import status_of
from jitney.offline import infer

PART_BYTES_MIN, PART_BYTES_MAX = 4 << 10, 4 << 20
"""Bytes of the input that an actor takes at a time."""

PARTS_PER_ACTOR = 8
"""So that nobody waits long for the last one."""

CHUNK = 1024
"""Rows of a part that are asked for at a time."""

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
        for block in outcomes(flags):
            sys.stdout.write("".join(f"{outcome}\n" for outcome in block))
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Nobody reads on.
        return 1
    finally:
        ray.shutdown()
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


def outcomes(flags: argparse.Namespace) -> Iterator[list[str]]:
    """One outcome per row, in order, some at a time."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    parts = [
        {"path": flags.input, "begin": begin, "end": end, "first": begin == flags.position}
        for begin, end in ranges(flags.position, os.path.getsize(flags.input), flags.actors)
    ]
    if not parts:
        return
    # Actors read for themselves: tasks that read for them would wait for processors that actors hold.
    answered = ray.data.from_items(parts, override_num_blocks=len(parts)).map_batches(
        Runner,
        fn_constructor_kwargs={
            "model": flags.model,
            "directory": flags.directory,
            "wishes": {"program": flags.program, "endpoint": flags.endpoint, "batch_size": flags.batch_size},
        },
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=flags.actors),
    )
    for block in answered.iter_batches(batch_size=None, batch_format="pyarrow"):
        yield block.column("outcome").to_pylist()


def ranges(begin: int, end: int, actors: int) -> Iterator[tuple[int, int]]:
    """The bytes in pieces, several for each actor."""
    size = max(PART_BYTES_MIN, min((end - begin) // (PARTS_PER_ACTOR * actors), PART_BYTES_MAX))
    for at in range(begin, end, size):
        yield at, min(at + size, end)


def lines(part: dict[str, Any]) -> Iterator[bytes]:
    """The rows that begin inside a part; the one before it is another's, the last may reach beyond it."""
    with open(part["path"], "rb") as file:
        if part["first"]:
            file.seek(part["begin"])
        else:
            file.seek(part["begin"] - 1)
            file.readline()
        while file.tell() < part["end"]:
            line = file.readline().rstrip(BLANK).removeprefix(BOM)
            if line:
                yield line


class Runner:
    """An actor: the jitney program, loaded once and asked batch by batch."""

    def __init__(self, model: str, directory: str, wishes: dict[str, Any]) -> None:
        os.chdir(directory)
        self._asked: queue.Queue[Any] = queue.Queue()
        self._answers = infer(model, iter(self._asked.get, self), workers=1, **wishes)

    def __call__(self, batch: Any) -> Iterator[dict[str, list[str]]]:
        """The outcomes of a part, one per line."""
        for part in batch.to_pylist():
            rest = lines(part)
            while rows := [_read(line) for line in itertools.islice(rest, CHUNK)]:
                for row in rows:
                    self._asked.put(row)
                yield {"outcome": [json.dumps(_outcome(next(self._answers))) for _ in rows]}

    def __del__(self) -> None:
        self._asked.put(self)


def _read(line: bytes) -> Any:
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
