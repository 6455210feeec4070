"""W7: TorchServe's own benchmark-ab.py, from a checkout of pytorch/serve, unchanged, against both servers.

It calls whatever `torchserve` is on the path; for Jitney that is a script of one line.
"""

from __future__ import annotations

import csv
import pathlib
import shutil
import subprocess
import sys
import tempfile

from .install import make, python_of
from .processes import free_ports
from .results import Figure, Results
from .servers import SERVERS
from .servers.base import APPS, framed, say
from .servers.jitney import BINARY
from .servers.torchserve import archive
from .workloads import W7, Load

REQUIREMENTS = ("click", "click-config-file", "pandas", "matplotlib", "requests", "locust")
SERVERS_OF_IT = ("jitney-torchserve", "torchserve")
REQUESTS = 20_000
COLUMNS = {
    "rate": "TS throughput",
    "p50_ms": "TS latency P50",
    "p99_ms": "TS latency P99",
    "error_share": "TS error rate",
}


def play(results: Results, checkout: pathlib.Path, rounds: int) -> None:
    """Measures both by turns, and adds the figures."""
    script = checkout / "benchmarks" / "benchmark-ab.py"
    if not script.is_file():
        sys.exit(f"{checkout} is no checkout of pytorch/serve: it has no benchmarks/benchmark-ab.py")
    if not shutil.which("ab"):
        sys.exit("it needs ApacheBench: apt-get install apache2-utils")
    python = make("benchmark-ab", sys.executable, REQUIREMENTS)
    [load] = W7.loads
    for turn in range(rounds):
        for name in SERVERS_OF_IT if turn % 2 == 0 else reversed(SERVERS_OF_IT):
            say(f"round {turn + 1}, W7, {name}")
            values = once(name, script, python, load)
            say("  " + ", ".join(f"{key} {value:g}" for key, value in values.items()))
            results.figures.append(Figure(len(results.runs), turn, name, W7.name, load.name, 0.0, values))
            results.settings.setdefault(name, {})[W7.name] = SERVERS[name].settings(W7)


def once(name: str, script: pathlib.Path, python: pathlib.Path, load: Load) -> dict[str, float]:
    """One run against one server."""
    with tempfile.TemporaryDirectory(prefix="jp-") as temporary:
        folder = pathlib.Path(temporary)
        (folder / "bin").mkdir()
        program = folder / "bin" / "torchserve"
        server = python_of(SERVERS[name])
        theirs = server.parent / "torchserve"
        program.write_text(
            f'#!/bin/sh\nexec {BINARY} torchserve "$@"\n' if SERVERS[name].ours else f'#!/bin/sh\nexec {theirs} "$@"\n'
        )
        program.chmod(0o755)
        inference, management, metrics, grpc, grpc_management = free_ports(5)
        config = folder / "config.properties"
        config.write_text(
            f"inference_address=http://127.0.0.1:{inference}\nmanagement_address=http://127.0.0.1:{management}\n"
            f"metrics_address=http://127.0.0.1:{metrics}\ngrpc_inference_port={grpc}\n"
            f"grpc_management_port={grpc_management}\njob_queue_size={W7.queue}\n"
        )
        (folder / "input").write_bytes(framed('{"input": "%s"}')[0])
        model = archive(folder / "bench.mar")
        out = folder / "out"
        out.mkdir()
        flags = {
            "--url": f"file://{model}",
            "--concurrency": load.connections,
            "--requests": REQUESTS,
            "--batch_size": W7.batch,
            "--batch_delay": W7.delay_ms,
            "--input": folder / "input",
            "--content_type": "application/json",
            "--config_properties": config,
            "--report_location": out,
            "--tmp_dir": out,
        }
        command = [str(python), str(script), *(str(part) for pair in flags.items() for part in pair)]
        variables = {
            "PATH": f"{folder / 'bin'}:{server.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": temporary,
            "TMPDIR": temporary,
            "LANG": "C.UTF-8",
            "JITNEY_PYTHON": str(server),
            "PYTHONPATH": str(APPS),
            "PEER_MODEL": W7.model,
            "PEER_BODY": "json",
            "OMP_NUM_THREADS": "1",
        }
        try:
            done = subprocess.run(
                command, cwd=script.parent, env=variables, capture_output=True, text=True, timeout=600
            )
            report = out / "benchmark" / "ab_report.csv"
            if not report.exists():
                raise RuntimeError(f"benchmark-ab.py made no report:\n{(done.stdout + done.stderr)[-2000:]}")
            [row] = csv.DictReader(report.open())
        finally:
            subprocess.run([program, "--stop"], env=variables, cwd=folder, capture_output=True, timeout=60)
        values = {key: float(row[column]) for key, column in COLUMNS.items()}
        share = values.pop("error_share")
        return {**values, "requests": float(REQUESTS), "not_ok": REQUESTS * share / 100.0}
