"""One server under test: started on free ports, asked over HTTP, always ended, searched for orphans."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from harness import packages, processes
from harness.archives import Store
from harness.wait import PATIENCE_SECONDS, until

START_SECONDS = 180.0
END_SECONDS = 120.0
ASK_SECONDS = 120.0

PORTS = ("--port", "--management-port", "--metrics-port", "--grpc-port", "--grpc-management-port")
FREE_PORTS = tuple(word for flag in PORTS for word in (flag, "0"))
FREE_ADDRESSES = "".join(f"{api}_address=http://127.0.0.1:0\n" for api in ("inference", "management", "metrics"))
FREE_ADDRESSES += "grpc_inference_port=0\ngrpc_management_port=0\n"
"""The same for config.properties."""

SERVED = re.compile(r"^(Inference|Management|Metrics) +(https?://127\.0\.0\.1:\d+)$", re.MULTILINE)
BOUND = re.compile(r"(Inference|Management|Metrics) API bind to: (https?://127\.0\.0\.1:\d+)")


def ready_workers(about: Mapping[str, Any]) -> dict[str, int | None]:
    """The pids by worker id of those workers of a description that are loaded."""
    return {worker["id"]: worker.get("pid") for worker in about["workers"] if worker["status"] == "READY"}


class Server:
    """A `jitney` process and what it said."""

    def __init__(
        self,
        binary: Path,
        home: Path,
        arguments: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        store: Store | None = None,
        wait_for_workers: bool = True,
        open_files_max: int | None = None,
        cwd: Path | None = None,
        under: Sequence[str] = (),
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.binary = binary
        self.home = home
        self.mark = uuid.uuid4().hex
        self.store = store
        self.wait_for_workers = wait_for_workers
        self.under = [*under, *(["prlimit", f"--nofile={open_files_max}"] if open_files_max else [])]
        """A command that runs the server's, such as a profiler."""
        self.start_seconds = start_seconds
        self.command, *rest = map(str, arguments)
        self.arguments = [self.command, *(FREE_PORTS if self.command in ("serve", "demo") else ()), *rest]
        home.mkdir(parents=True)
        self.cwd = cwd or home
        # A short path: the server makes its scratch directory elsewhere when a socket's would be too long.
        self.temp = Path(tempfile.mkdtemp(prefix="bb-"))
        self.env = self._environment(env)
        self.urls: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        """What every request of the methods below brings, such as a key."""
        self.process: subprocess.Popen[bytes] | None = None

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("JITNEY_", "TS_"))}
        env |= {"TMPDIR": str(self.temp), processes.MARK: self.mark, "PYTHONDONTWRITEBYTECODE": "1"}
        if folder := packages.kept():
            env["JITNEY_PACKAGE_CACHE"] = folder
        # The interpreter itself and not pyenv's shim, which costs a tenth of a second per worker.
        env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH', '')}"
        return env | dict(more or {})

    # -- process -------------------------------------------------------------------------------

    def started(self) -> Server:
        """Starts the process and waits until it listens and its first workers are loaded."""
        with (self.home / "stdout").open("wb") as out, (self.home / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                [*self.under, str(self.binary), *self.arguments],
                cwd=self.cwd,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        try:
            self.urls = until(self._addresses, "the server prints its addresses", self.start_seconds)
            if self.wait_for_workers:
                until(self._all_ready, "the start-up models are ready", self.start_seconds)
        except BaseException as error:
            self.kill()
            raise AssertionError(f"the server did not start: {error}\n{self.log[-4000:]}") from error
        packages.compile_new()
        return self

    def _addresses(self) -> dict[str, str]:
        code = self.process.poll()
        assert code is None, f"it exited with {code}"
        pattern = BOUND if self.command == "torchserve" else SERVED
        done = "Model server started." if self.command == "torchserve" else "Try:"
        said = self.stdout  # Read once: what is printed between two reads would be in the second only.
        return {name.lower(): url for name, url in pattern.findall(said)} if done in said else {}

    def _all_ready(self) -> bool:
        names = [model["modelName"] for model in self.manage("GET", "/models").json()["models"]]
        return all(len(ready_workers(one)) >= one["minWorkers"] for one in map(self.describe, names))

    def end(self) -> None:
        """Ends the server politely and checks that it took everybody with it."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.terminate()
            self.wait()
        orphans = self.orphans()
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.temp, ignore_errors=True)
        assert not orphans, f"processes left behind: {orphans}\n{self.log[-4000:]}"

    def terminate(self) -> None:
        """SIGTERM: the polite way."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Waits for the end and returns the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not end within {seconds} s\n{self.log[-4000:]}") from None

    def kill(self) -> None:
        """SIGKILL for the server and for everything it started."""
        for pid in processes.marked(self.mark):
            os.kill(pid, signal.SIGKILL)
        self.process.wait(END_SECONDS)

    def orphans(self, seconds: float = PATIENCE_SECONDS) -> list[int]:
        """Processes that outlive the server's end; they get a moment to notice it."""
        try:
            until(lambda: not processes.marked(self.mark), "no process is left", seconds)
        except AssertionError:
            return processes.marked(self.mark)
        return []

    # -- output -------------------------------------------------------------------------------

    @property
    def stdout(self) -> str:
        """What the server printed so far."""
        return (self.home / "stdout").read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """What the server said beside it: with `serve` the log."""
        return (self.home / "stderr").read_text(errors="replace")

    @property
    def log(self) -> str:
        """Everything the server said."""
        return self.stdout + self.stderr

    def logged(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until the log says so; lines take a moment from the writer's thread to the file."""
        try:
            until(lambda: text in self.log, f"the log says {text!r}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log[-4000:]}") from None

    def newest_snapshot(self) -> Path:
        """The last snapshot of a server under `jitney torchserve`."""
        return sorted((self.cwd / "logs/config").glob("*.cfg"))[-1]

    # -- requests -----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The server's process."""
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the inference API."""
        host, _, port = self.urls["inference"].removeprefix("http://").rpartition(":")
        return host, int(port)

    def url(self, path: str, api: str = "inference") -> str:
        """An address of the server."""
        return self.urls[api] + path

    def predict(
        self, model: str, body: Any = b"", *, headers: Mapping[str, str] | None = None, api: str = "predictions"
    ) -> requests.Response:
        """One prediction, or what else `api` has for a model. Bytes go as they are, anything else as JSON."""
        content = {"data": body} if isinstance(body, bytes) else {"json": body}
        headers = {**self.headers, **(headers or {})}
        return requests.post(self.url(f"/{api}/{model}"), headers=headers, timeout=ASK_SECONDS, **content)

    def manage(self, method: str, path: str, **query: Any) -> requests.Response:
        """A call of the management API."""
        url = self.url(path, "management")
        return requests.request(method, url, params=query, headers=self.headers, timeout=ASK_SECONDS)

    def metrics(self) -> str:
        """The metrics page."""
        return requests.get(self.url("/metrics", "metrics"), headers=self.headers, timeout=ASK_SECONDS).text

    def register(self, archive: Path | str, *, workers: int = 1, **query: Any) -> None:
        """Registers a model that must come up."""
        url = archive if isinstance(archive, str) else archive.name
        reply = self.manage("POST", "/models", url=url, initial_workers=workers, synchronous="true", **query)
        assert reply.status_code == 200, f"{reply.text}\n{self.log[-4000:]}"
        name = re.search(r'Model "(.*)" Version: (.*) registered', reply.json()["status"])
        until(lambda: len(self.ready(*name.groups())) >= workers, "the registered workers are ready")

    def need(self, model: str, handler: str, **query: Any) -> str:
        """Builds and registers a model in one go; returns its name."""
        config = query.pop("config", None)
        self.register(self.store.mar(model, handler, config=config), **query)
        return model

    def describe(self, model: str, version: str | None = None) -> dict[str, Any]:
        """What the server says about a model."""
        path = f"/models/{model}" + (f"/{version}" if version else "")
        return self.manage("GET", path).json()[0]

    def workers(self, model: str) -> dict[str, int | None]:
        """The pids of a model's workers by worker id."""
        return {worker["id"]: worker.get("pid") for worker in self.describe(model)["workers"]}

    def ready(self, model: str, version: str | None = None) -> dict[str, int | None]:
        """Those of them that are loaded; workers inside the server have no process of their own."""
        return ready_workers(self.describe(model, version))

    def connections(self) -> float:
        """Connections of clients that are open."""
        return self.total("jitney_connections", 'plane="data"')

    def total(self, name: str, label: str = "") -> float:
        """The sum of a metric over all its labels, or over those lines that have one."""
        page = self.metrics()
        lines = [line for line in page.splitlines() if line.startswith(name + "{") and label in line]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def metric(self, name: str, model: str, **labels: str) -> float:
        """A number of the metrics page."""
        page = self.metrics()
        wanted = [f'model_name="{model}"', *(f'{key}="{value}"' for key, value in labels.items())]
        for line in page.splitlines():
            if line.startswith(name + "{") and all(label in line for label in wanted):
                return float(line.rpartition(" ")[2])
        if f"# TYPE {name} " in page:
            return 0.0  # Declared, and nothing recorded yet.
        declared = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")]
        raise AssertionError(f"no {name} on the metrics page; there are {declared}")
