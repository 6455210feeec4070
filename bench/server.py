"""Starts the release binary on a model directory and reads what it costs."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

TICKS = os.sysconf("SC_CLK_TCK")
PORTS = ("port", "management-port", "metrics-port", "grpc-port", "grpc-management-port")
BINARY = os.environ.get("JITNEY_BIN", "target/release/jitney")


class Server:
    """`with Server(source, "--batch-size", "32") as server:` serves one handler as model `bench`."""

    def __init__(self, source: str, *flags: str) -> None:
        self.source, self.flags = source, flags

    def __enter__(self) -> Server:
        self.folder = tempfile.TemporaryDirectory(prefix="jitney-bench-")
        model = pathlib.Path(self.folder.name, "bench")
        (model / "MAR-INF").mkdir(parents=True)
        (model / "handler.py").write_text(self.source)
        manifest = {
            "runtime": "python",
            "model": {"modelName": "bench", "modelVersion": "1.0", "handler": "handler.py"},
        }
        (model / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
        ports = [word for name in PORTS for word in (f"--{name}", "0")]
        self.log = open(pathlib.Path(self.folder.name, "log"), "w+")
        temp = pathlib.Path(self.folder.name, "tmp")
        temp.mkdir()
        self.process = subprocess.Popen(
            [BINARY, "serve", f"bench={model}", *ports, *self.flags],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "TMPDIR": str(temp)},
        )
        self.addresses = self._read_addresses()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.log.close()
        self.folder.cleanup()

    def _read_addresses(self) -> dict[str, str]:
        """The server prints its addresses and, last, a curl line once it listens; requests wait for the worker."""
        found: dict[str, str] = {}
        for line in self.process.stdout:
            for name, address in re.findall(r"^(Inference|Management|Metrics)\s+(http://[\d.:]+)", line):
                found[name.lower()] = address
            if "curl " in line:
                return found
        self.log.seek(0)
        raise RuntimeError("the server did not start:\n" + self.log.read())

    def port(self, which: str = "inference") -> int:
        return int(self.addresses[which].rsplit(":", 1)[1])

    def workers(self) -> list[int]:
        """Process ids of the workers: the server's children."""
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for path in children for child in path.read_text().split()]

    def scratch(self) -> pathlib.Path:
        """The server's private directory."""
        [path] = pathlib.Path(self.folder.name, "tmp").iterdir()
        return path

    def cpu_seconds(self) -> tuple[float, float]:
        """CPU used so far by the server and by its workers."""
        return cpu(self.process.pid), sum(cpu(worker) for worker in self.workers())


def cpu(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
