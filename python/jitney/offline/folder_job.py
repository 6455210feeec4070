"""`python -m jitney.offline.folder_job`: `jitney infer --ray` over a folder of Parquet files, to a folder of them.

This process plans the parts, hands them to actors and counts. An actor reads its parts, runs them through the
`jitney` program and writes the answers by itself, so no row passes through here. However the job was ended, the same
command goes on with the parts that are not done.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import threading
import time
from _thread import interrupt_main
from typing import Any, NamedTuple

from jitney.call.errors import InferError
from jitney.offline import parquet_folder
from jitney.offline.actor_pool import ActorPool
from jitney.offline.answer_folder import AnswerFolder, PartNote, common_field
from jitney.offline.fed_program import FedProgram, outcome_columns
from jitney.offline.infer import ERROR, OUTPUT
from jitney.offline.location import Location
from jitney.offline.parquet import json_line
from jitney.offline.parquet_folder import FilePart
from jitney.offline.progress_bar import ProgressBar

FILE, ROW = "file", "row"
LINE_SECONDS = 30.0
"""Between two lines about the progress, where there is no terminal."""
INTERRUPTED = 130


class FolderJob(NamedTuple):
    """What an actor is told."""

    model: str
    directory: str
    input: Location
    output: AnswerFolder
    columns: list[str] | None
    with_input: bool
    flags: dict[str, Any]
    """Of the `jitney` program."""


class PartRunner:
    """An actor: two threads, of which one runs a part while the other reads or writes one."""

    def __init__(self, job: FolderJob) -> None:
        self._job = job
        self._program: FedProgram | None = None
        self._turn = threading.Lock()

    def ready(self) -> None:
        """Starts the program. What is wrong with its model is told by the first part."""
        os.chdir(self._job.directory)
        self._program = FedProgram(self._job.model, **self._job.flags)

    def run(self, number: int, part: FilePart) -> PartNote:
        """Runs a part and writes its answers."""
        import pyarrow

        job, program = self._job, self._program
        assert program is not None
        table = parquet_folder.read(job.input, part, None if job.with_input else job.columns)
        rows = parquet_folder.arguments(table, part, job.columns).to_pylist()
        lines = [json_line(row).encode() for row in rows]
        del rows
        with self._turn:
            outcomes = program.outcomes(lines)
        fields, columns = outcome_columns(outcomes)
        places = pyarrow.array(range(part.first, part.first + part.count), pyarrow.int64())
        before = {FILE: pyarrow.array([part.file] * part.count), ROW: places}
        if job.with_input:
            before |= dict(zip(table.column_names, table.columns))
        schema = pyarrow.schema([*(pyarrow.field(name, column.type) for name, column in before.items()), *fields])
        answers = pyarrow.table([*before.values(), *columns], schema=schema)
        return job.output.write(number, part.name, answers, part.count - columns[1].null_count)

    def rewrite(self, number: int, part: FilePart, note: PartNote, field: str) -> PartNote:
        """Gives the outputs of a part the type of all."""
        return self._job.output.rewrite(number, part.name, note, field)


def main(arguments: list[str] | None = None) -> int:
    """Runs the job; errors go to stderr."""
    flags = parser().parse_args(arguments)
    try:
        import pyarrow
        import ray
    except ImportError as error:
        print(f"error: --ray needs {error.name}: {sys.executable} -m pip install 'ray[data]'", file=sys.stderr)
        return 1
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    try:
        return run(flags)
    except (InferError, OSError, ConnectionError, pyarrow.ArrowException) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command resumes the job", file=sys.stderr)
        return INTERRUPTED
    finally:
        ray.shutdown()


def _end_with_the_command() -> None:
    """The command holds the other end of stdin."""
    while os.read(0, 1):
        pass
    interrupt_main()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    one = argparse.ArgumentParser(prog="python -m jitney.offline.folder_job")
    one.add_argument("model")
    one.add_argument("input")
    one.add_argument("output")
    one.add_argument("--address", help="the cluster; without one, a cluster of this machine's own")
    one.add_argument("--program", required=True, help="the jitney program")
    one.add_argument("--directory", required=True, help="where definitions are imported from")
    one.add_argument("--actors", type=int, help="one per processor of the cluster, if not given")
    one.add_argument("--columns", help="those that the model gets, with commas between them")
    one.add_argument("--with-input", action="store_true")
    one.add_argument("--max-failed", type=int)
    one.add_argument("--overwrite", action="store_true")
    one.add_argument("--batch-size", type=int)
    one.add_argument("--endpoint")
    return one


def run(flags: argparse.Namespace) -> int:
    """Finds out what is left to do, and does it."""
    source, target = Location(flags.input), Location(flags.output)
    if source.holds(target) or target.holds(source):
        raise InferError(f"the output {target.url} and the input {source.url} must not lie in each other")
    columns = flags.columns.split(",") if flags.columns else None
    files = parquet_folder.find(source)
    parquet_folder.check_columns(files, columns, (FILE, ROW, OUTPUT, ERROR) if flags.with_input else ())
    state = hashlib.sha256(repr([tuple(file.stored) for file in files]).encode()).hexdigest()
    about = {"model": flags.model, "endpoint": flags.endpoint, "columns": columns, "with_input": flags.with_input}
    output = AnswerFolder(target, {**about, "input": state})
    done = output.open(flags.overwrite)
    if done is None:
        print(f"{target.url} is already complete", file=sys.stderr)
        return 0
    program = {"program": flags.program, "endpoint": flags.endpoint, "batch-size": flags.batch_size}
    job = FolderJob(flags.model, flags.directory, source, output, columns, flags.with_input, program)
    run_parts(flags, job, parquet_folder.cut(files), done)
    output.finish(done.values())
    return 0 if any(note.failed < note.rows for note in done.values()) or not done else _every_row_failed()


def _every_row_failed() -> int:
    print("error: every row failed", file=sys.stderr)
    return 1


def run_parts(flags: argparse.Namespace, job: FolderJob, parts: list[FilePart], done: dict[int, PartNote]) -> None:
    """Runs the parts that are not done, and adds their notes."""
    left = [number for number in range(len(parts)) if number not in done]
    before = sum(note.rows for note in done.values())
    if before:
        print(f"resuming after {before} rows", file=sys.stderr)
    pool = start_actors(flags, job)
    lines = _Lines(pool)
    for _ in pool.start():
        lines.look(None)
    print("the first actor is ready", file=sys.stderr)
    bar = ProgressBar(sum(part.count for part in parts), before=before)
    with bar:
        for answer in pool.run(left, lambda actor, number: actor.run.remote(number, parts[number])):
            lines.look(bar)
            if answer is None:
                continue
            number, note = answer
            done[number] = note
            bar.count(note.failed, note.rows)
            failed = sum(note.failed for note in done.values())
            if flags.max_failed is not None and failed > flags.max_failed:
                raise InferError(f"{failed} rows failed, more than the {flags.max_failed} of --max-failed")
    rewrite_parts(pool, parts, done)
    if not bar.shown:
        print(bar.line(), file=sys.stderr)


def rewrite_parts(pool: ActorPool, parts: list[FilePart], done: dict[int, PartNote]) -> None:
    """Makes the outputs of all parts have one type, where they have not."""
    field = common_field(done.values()) if done else ""
    odd = [number for number, note in done.items() if note.field != field]
    for answer in pool.run(odd, lambda actor, one: actor.rewrite.remote(one, parts[one], done[one], field)):
        if answer is not None:
            number, note = answer
            done[number] = note


class _Lines:
    """What is said now and then where no bar is seen."""

    def __init__(self, pool: ActorPool) -> None:
        self._pool = pool
        self._said = time.monotonic()

    def look(self, bar: ProgressBar | None) -> None:
        if time.monotonic() - self._said < LINE_SECONDS:
            return
        self._said = time.monotonic()
        if not self._pool.ready:
            print("waiting for a place in the cluster; an actor needs a processor", file=sys.stderr)
        elif bar is not None and not bar.shown:
            print(bar.line(), file=sys.stderr)


def start_actors(flags: argparse.Namespace, job: FolderJob) -> ActorPool:
    """Joins the cluster, or starts one, and starts actors on all its nodes."""
    import ray

    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}}
    ray.init(address=flags.address, runtime_env=environment, log_to_driver=False, logging_level="ERROR")
    options = {"num_cpus": 1, "max_concurrency": 2, "scheduling_strategy": "SPREAD"}
    runner = ray.remote(**options)(PartRunner)
    return ActorPool(lambda: runner.remote(job), flags.actors or max(1, int(ray.cluster_resources().get("CPU", 1))))


if __name__ == "__main__":
    sys.exit(main())
