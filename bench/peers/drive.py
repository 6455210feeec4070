"""Runs the steps of the schedule one after another."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence

from .install import python_of
from .measure import measure, once, once_grpc, wait_until_ready
from .processes import Running, free_ports
from .results import Figure, Results, machine, packages
from .schedule import Lengths, Step, steps
from .servers import Ask, Server, Site
from .servers.base import APPS, common_variables, say
from .workloads import Load, Workload

START_PATIENCE_S = 120.0
WARM_TIMES_MAX = 4
UNREACHED = (OSError, RuntimeError, http.client.HTTPException, subprocess.SubprocessError)


class Driver:
    """One run over all steps."""

    def __init__(self, results: Results, out: pathlib.Path, lengths: Lengths) -> None:
        self.results, self.out, self.lengths = results, out, lengths
        self.run = len(results.runs)
        self.photo, self.photo_class = b"", ""

    def play(self, servers: Sequence[Server], workloads: Sequence[Workload], rounds: int) -> None:
        """Measures everything; what is done is on disk after every step."""
        raise_open_files()
        python = python_of(servers[0])
        self.results.machine = {**machine(), **packages(python, ("torch", "numpy", "pillow"))}
        self.results.runs.append(
            {
                "day": datetime.date.today().isoformat(),
                "rounds": rounds,
                "seconds": self.lengths.seconds,
                "overload_seconds": self.lengths.overload,
                "slow_share": self.lengths.slow_share,
                "servers": [one.name for one in servers],
                "load_average": [],
            }
        )
        for server in servers:
            self.results.versions[server.name] = server.version(python_of(server))
            told = self.results.settings.setdefault(server.name, {})
            told.update({one.name: server.settings(one) for one in workloads if server.loads(one)})
        if any(one.model == "classifier" for one in workloads):
            self.take_photo(python)
        todo = [one for one in steps(servers, workloads, rounds) if one.workload.model != "classifier" or self.photo]
        left = sum(step.estimate(self.lengths) for step in todo)
        say(f"{len(todo)} steps, about {left / 60:.0f} min")
        started, planned = time.monotonic(), 0.0
        for number, step in enumerate(todo, 1):
            if step.round == len(self.results.runs[-1]["load_average"]):
                self.results.runs[-1]["load_average"].append(round(os.getloadavg()[0], 1))
            self.take(step)
            self.results.write(self.out)
            planned += step.estimate(self.lengths)
            left = (sum(one.estimate(self.lengths) for one in todo) - planned) * (time.monotonic() - started) / planned
            say(f"  [{number}/{len(todo)}] about {left / 60:.1f} min left")

    def take_photo(self, python: pathlib.Path) -> None:
        """The picture and its class; without torch there is no W3."""
        with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
            try:
                subprocess.run([python, APPS / "work.py", "photo", file.name], check=True, capture_output=True)
                command = [str(python), str(APPS / "work.py"), "answer", file.name]
                told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            except subprocess.CalledProcessError:
                self.results.missing["W3"] = "there is no torch here (see `make setup`)"
                say("no torch: W3 is left out")
                return
            self.photo, self.photo_class = pathlib.Path(file.name).read_bytes(), told.strip()

    def take(self, step: Step) -> None:
        """One server under the loads of one workload; what fails is noted, and the next one comes."""
        say(f"round {step.round + 1}, {step.workload.name}, {step.server.name}")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="jp-"))
        port, *others = free_ports(5)
        grpc = any(load.grpc for load in step.loads)
        site = Site(
            step.workload,
            folder,
            port,
            tuple(others),
            python_of(step.server),
            self.photo,
            self.photo_class,
            grpc,
        )
        try:
            self.take_loads(step, site)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def take_loads(self, step: Step, site: Site) -> None:
        """Starts the server, warms it up, measures, and ends it."""
        server = step.server
        if (alone := server.alone(site, self.lengths.of(server, step.loads[0]))) is not None:
            self.note(step, step.loads[0], alone)
            return
        ask = server.ask(site)
        variables = {**common_variables(site), **server.variables(site)}
        running = Running(server.command(site), variables, site.folder, server.front)
        try:
            ready = wait_until_ready(ask, site.port, running, site.folder if site.grpc else None, START_PATIENCE_S)
            mib = running.memory_mib()
            self.warm(step, ask, site, running)
            for load in step.loads:
                values = measure(load, ask, site.port, running, site.folder, self.lengths.of(server, load))
                values |= {"start_s": round(ready, 2), "idle_mib": round(mib, 1)}
                values["right_after"] = self.still_right(ask, site)
                self.note(step, load, values)
        except UNREACHED as error:
            say(f"  failed: {error}")
            self.note(step, step.loads[-1], {}, plain(error, site))
        finally:
            running.stop()

    def warm(self, step: Step, ask: Ask, site: Site, running: Running) -> None:
        """The first requests are not counted."""
        load = Load("warm", connections=step.loads[-1].connections or 32, grpc=site.grpc)
        wanted = step.server.warm_requests if step.workload.model == "noop" or not step.workload.raw else 0
        sent = 0.0
        for _ in range(WARM_TIMES_MAX):
            with contextlib.suppress(*UNREACHED):
                sent += measure(load, ask, site.port, running, site.folder, step.server.warm_s)["requests"]
            if sent >= wanted:
                return

    def still_right(self, ask: Ask, site: Site) -> float:
        """Whether a request after the load is answered as it should be."""
        try:
            if site.grpc:
                once_grpc(ask, site.port, site.folder)
            else:
                once(ask, site.port, timeout=30)
        except UNREACHED:
            return 0.0
        return 1.0

    def note(self, step: Step, load: Load, values: dict[str, float], error: str = "") -> None:
        """Keeps a figure."""
        rounded = {name: round(value, 4) for name, value in values.items()}
        seconds = self.lengths.of(step.server, load)
        one = Figure(self.run, step.round, step.server.name, step.workload.name, load.name, seconds, rounded, error)
        self.results.figures.append(one)
        if not error:
            short = (
                "rate",
                "good_per_s",
                "p50_ms",
                "p99_ms",
                "cpu_us",
                "front_us",
                "worker_us",
                "not_ok",
                "lost",
                "right_after",
            )
            say(f"  {load.name}: " + ", ".join(f"{name} {rounded[name]:g}" for name in short if name in rounded))


def raise_open_files() -> None:
    """Every server may have as many connections as the machine allows."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def plain(error: BaseException, site: Site) -> str:
    """The first row of an error without paths of this machine."""
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return first.replace(str(site.folder), "...").replace(str(site.python.parent.parent), "...")[:300]
