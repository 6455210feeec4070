"""Starts the release binary on a model and reads what it costs."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
PORTS = ("port", "management-port", "metrics-port", "grpc-port", "grpc-management-port")
BINARY = os.environ.get("JITNEY_BIN", "target/release/jitney")


class Server:
    """`with Server(source, "--batch-size", "32") as server:` serves one handler as model `bench`.

    `source` is the code of a handler, or as a path a model directory or `file.py:object`; with `named=False` a folder of
    models, each under its own name.
    """

    def __init__(
        self, source: str | pathlib.Path, *flags: str, env: dict[str, str] | None = None, named: bool = True
    ) -> None:
        self.source, self.flags, self.env, self.named = source, flags, env or {}, named

    def __enter__(self) -> Server:
        self.folder = tempfile.TemporaryDirectory(prefix="jitney-bench-")
        model = self.source if isinstance(self.source, pathlib.Path) else written(self.folder.name, "1.0", self.source)
        ports = [word for name in PORTS for word in (f"--{name}", "0")]
        self.log = open(pathlib.Path(self.folder.name, "log"), "w+")
        temp = pathlib.Path(self.folder.name, "tmp")
        temp.mkdir()
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [BINARY, "serve", f"bench={model}" if self.named else str(model), *ports, *self.flags],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "TMPDIR": str(temp), **self.env},
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
        raise RuntimeError("the server did not start:\n" + self.tail())

    def tail(self, lines: int = 60) -> str:
        """The end of the log."""
        text = pathlib.Path(self.folder.name, "log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def ask(self, path: str, which: str = "management", method: str = "GET", body: object = None) -> Any:
        """What the server answers: JSON, or text where it is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(which), timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body))
        text = connection.getresponse().read().decode()
        connection.close()
        try:
            return json.loads(text)
        except ValueError:
            return text

    def wait_until_ready(self, seconds: float = 600, model: str = "bench") -> float:
        """Waits until a worker of a model is ready, and returns the seconds from the server's start to then."""
        while (took := time.perf_counter() - self.started) < seconds:
            if self.process.poll() is not None:
                break
            described = self.ask(f"/models/{model}")
            versions = described if isinstance(described, list) else []
            if any(worker["status"] == "READY" for version in versions for worker in version["workers"]):
                return took
            if any(version.get("loadFailures") for version in versions):
                break
            time.sleep(0.05)
        raise RuntimeError("the worker did not start:\n" + self.tail())

    def wait_for_workers(self, count: int) -> None:
        """Waits until every version has so many workers that are ready."""

        def ready(version: Any) -> bool:
            return sum(worker["status"] == "READY" for worker in version["workers"]) == count

        while not all(map(ready, self.ask("/models/bench/all"))):
            assert self.process.poll() is None and time.perf_counter() - self.started < 300, self.tail()
            time.sleep(0.05)

    def port(self, which: str = "inference") -> int:
        return int(self.addresses[which].rsplit(":", 1)[1])

    def workers(self) -> list[int]:
        """Process ids of the workers: the server's children."""
        return children(self.process.pid)

    def scratch(self) -> pathlib.Path:
        """The server's private directory."""
        [path] = pathlib.Path(self.folder.name, "tmp").iterdir()
        return path

    def cpu_seconds(self) -> tuple[float, float]:
        """CPU used so far by the server and by its workers."""
        return cpu(self.process.pid), sum(cpu(worker) for worker in self.workers())


def written(folder: str | pathlib.Path, version: str, source: str) -> pathlib.Path:
    """A version of the model `bench` as a directory."""
    model = pathlib.Path(folder, f"bench-{version}")
    (model / "MAR-INF").mkdir(parents=True)
    (model / "handler.py").write_text(source)
    about = {"modelName": "bench", "modelVersion": version, "handler": "handler.py"}
    (model / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"runtime": "python", "model": about}))
    return model


def children(pid: int) -> list[int]:
    """Processes that a process started; none where it has ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [
        int(child) for thread in threads for child in read(pathlib.Path(f"/proc/{pid}/task/{thread}/children")).split()
    ]


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    return [pid, *(below for child in children(pid) for below in tree(child))]


def read(path: pathlib.Path) -> str:
    """A file of /proc; empty when its process or thread has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def cpu(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
