"""`python -m jitney.offline.infer_ray`: `jitney infer --ray` as a Ray Data job over a cluster.

The command that starts it writes the parts of the input to stdin, reads one outcome per row in the
order of the input, stores them and keeps track of the progress. Each actor of the job reads its
parts by itself (`jitney.offline.infer_parts`) and runs the same `jitney` program as a job on one machine
would, so every kind of model works. Input and model must be found under the same paths on all nodes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

from jitney.offline.fed_program import CHUNK, FedProgram
from jitney.offline.infer_parts import Input


def main(arguments: list[str] | None = None) -> int:
    """Runs the job; errors go to stderr."""
    flags = parser().parse_args(arguments)
    try:
        import ray
        import ray.data
    except ImportError:
        print(f"error: --ray needs Ray: {sys.executable} -m pip install 'ray[data]'", file=sys.stderr)
        return 1
    parts = [json.loads(line) for line in sys.stdin]
    if not parts:
        return 0
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}}
    ray.init(address=flags.address, runtime_env=environment, log_to_driver=False, logging_level="ERROR")
    try:
        for block in outcomes(flags, parts):
            sys.stdout.write("".join(block))
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # The reader is gone.
        return 1
    finally:
        ray.shutdown()
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    one = argparse.ArgumentParser(prog="python -m jitney.offline.infer_ray")
    one.add_argument("model")
    one.add_argument("input")
    one.add_argument("--format", required=True, help="what the input is, as for jitney infer")
    one.add_argument("--numbers", action="store_true", help="cells that are numbers become numbers")
    one.add_argument("--address", help="the cluster; without one, a cluster of this machine's own")
    one.add_argument("--program", required=True, help="the jitney program")
    one.add_argument("--directory", required=True, help="where definitions are imported from")
    one.add_argument("--actors", type=int, required=True)
    one.add_argument("--batch-size", type=int)
    one.add_argument("--endpoint")
    return one


def outcomes(flags: argparse.Namespace, parts: list[dict[str, Any]]) -> Iterator[list[str]]:
    """One outcome per row, in order, some at a time."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Actors read for themselves: tasks that read for them would wait for processors that actors hold.
    answered = ray.data.from_items(parts, override_num_blocks=len(parts)).map_batches(
        PartsRunner,
        fn_constructor_kwargs={
            "model": flags.model,
            "directory": flags.directory,
            "source": Input(flags.input, flags.format, flags.numbers),
            "flags": {"program": flags.program, "endpoint": flags.endpoint, "batch-size": flags.batch_size},
        },
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=flags.actors),
    )
    for block in answered.iter_batches(batch_size=None, batch_format="pyarrow"):
        yield block.column("outcome").to_pylist()


class PartsRunner:
    """An actor: the jitney program, loaded once and fed part by part."""

    def __init__(self, model: str, directory: str, source: Input, flags: dict[str, Any]) -> None:
        os.chdir(directory)
        self._source = source
        self._program = FedProgram(model, source.fed_format, **flags)

    def __call__(self, batch: Any) -> Iterator[dict[str, list[str]]]:
        """The outcomes of a part, one per row."""
        for part in batch.to_pylist():
            rest = self._source.lines(part)
            while lines := list(itertools.islice(rest, CHUNK)):
                yield {"outcome": [line.decode() for line in self._program.outcomes(lines)]}

    def __del__(self) -> None:
        self._program.close()


if __name__ == "__main__":
    sys.exit(main())
