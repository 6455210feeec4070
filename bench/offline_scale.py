"""`jitney infer --ray` from Parquet to Parquet on four nodes of this machine, whole and with its driver killed twice.

    JITNEY_BIN=target/release/jitney .venv/ray/bin/python bench/offline_scale.py [ROWS] [--partitions N]

Both jobs run on the same cluster, one after the other, over the same rows (10,000,000 unless told otherwise). The
driver is killed with its process group when a third and when two thirds of the rows are noted, and the same command is
given again. The time of a run counts from its line "the first actor is ready" on; what comes before is the restart,
which is printed, too. Ends with an error unless every key is there once with its own output, in both outputs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NODES = 4
STORE_BYTES = 100_000_000
LOOK_SECONDS = 0.2
READY = "the first actor is ready"
MODEL = '''
"""Cheap for a row, in large batches."""

import jitney


@jitney.batch(max_batch_size=4096)
def double(number: list[int]) -> list[int]:
    return [2 * one for one in number]
'''


def main() -> None:
    """Measures and checks."""
    one = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    one.add_argument("rows", type=int, nargs="?", default=10_000_000)
    one.add_argument("--partitions", type=int, default=8)
    flags = one.parse_args()
    with tempfile.TemporaryDirectory() as place, cluster() as address:
        home = Path(place)
        (home / "model.py").write_text(MODEL)
        write_rows(home / "rows", flags.rows, flags.partitions)
        whole, _ = measure(home, "whole", flags.rows, address, [])
        thirds = [flags.rows // 3, 2 * flags.rows // 3]
        killed, restarts = measure(home, "killed", flags.rows, address, thirds)
        for name in ("whole", "killed"):
            check(home / name, flags.rows)
        result = {
            "rows": flags.rows,
            "nodes": NODES,
            "kills": len(thirds),
            "rows_per_s": round(flags.rows / whole),
            "rows_per_s_with_kills": round(flags.rows / killed),
            "ratio": round(whole / killed, 3),
            "restarts_s": [round(seconds, 1) for seconds in restarts],
            "each_key_once": True,
        }
        print(json.dumps(result))


@contextmanager
def cluster() -> Iterator[str]:
    """The address of four nodes with a processor each."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": STORE_BYTES})
    try:
        for _ in range(NODES):
            nodes.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        nodes.wait_for_nodes()
        yield nodes.address
    finally:
        nodes.shutdown()


def write_rows(folder: Path, rows: int, partitions: int) -> None:
    """A key for each row, in as many files as partitions."""
    import pyarrow
    import pyarrow.parquet

    for number in range(partitions):
        keys = range(number * rows // partitions, (number + 1) * rows // partitions)
        (folder / f"part={number}").mkdir(parents=True)
        table = pyarrow.table({"number": pyarrow.array(keys, pyarrow.int64())})
        pyarrow.parquet.write_table(table, folder / f"part={number}" / "rows.parquet", row_group_size=1 << 16)


def measure(home: Path, output: str, rows: int, address: str, kills: list[int]) -> tuple[float, list[float]]:
    """Seconds of work until all rows are there, and those of each start before it."""
    worked, restarts = 0.0, []
    for number, mark in enumerate([*kills, None]):
        began = time.monotonic()
        job = begin(home, output, address, home / f"{output}-{number}.txt")
        while READY not in (home / f"{output}-{number}.txt").read_text():
            assert job.poll() is None, (home / f"{output}-{number}.txt").read_text()
            time.sleep(LOOK_SECONDS)
        ready = time.monotonic()
        while job.poll() is None and (mark is None or noted(home / output) < mark):
            time.sleep(LOOK_SECONDS)
        if mark is not None:
            assert job.poll() is None, "the job was over before it could be killed"
            os.killpg(job.pid, signal.SIGKILL)
        assert job.wait() == (0 if mark is None else -signal.SIGKILL), (home / f"{output}-{number}.txt").read_text()
        worked += time.monotonic() - ready
        restarts.append(ready - began)
        print(f"{output}: run {number}, ready after {restarts[-1]:.1f} s, worked {time.monotonic() - ready:.1f} s")
    return worked, restarts


def begin(home: Path, output: str, address: str, said: Path) -> subprocess.Popen[bytes]:
    """Starts the job in a process group of its own."""
    binary = Path(os.environ["JITNEY_BIN"]).resolve()
    command = [binary, "infer", "model.py:double", "rows", "-o", output, "--with-input", f"--ray={address}"]
    command += ["--workers", str(NODES), "--python", sys.executable]
    with said.open("w") as stderr:
        return subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, stderr=stderr, start_new_session=True)


def noted(output: Path) -> int:
    """Rows of the parts that are done."""
    return sum(json.loads(note.read_text())[0] for note in output.glob("_jitney/*/0*"))


def check(output: Path, rows: int) -> None:
    """Every key once, with its own output, in its own partition."""
    import pyarrow.compute
    import pyarrow.dataset

    table: Any = pyarrow.dataset.dataset(output, partitioning="hive").to_table(columns=["number", "output", "error"])
    keys = table.column("number")
    assert len(table) == rows, len(table)
    assert pyarrow.compute.count_distinct(keys).as_py() == rows
    assert pyarrow.compute.min_max(keys).as_py() == {"min": 0, "max": rows - 1}
    assert table.column("error").null_count == rows
    assert pyarrow.compute.all(pyarrow.compute.equal(table.column("output"), pyarrow.compute.multiply(keys, 2))).as_py()
    assert (output / "_SUCCESS").exists()


if __name__ == "__main__":
    main()
