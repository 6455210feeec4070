"""What a server has to say about itself to be measured."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from dataclasses import dataclass, field

from ..workloads import BIG_BYTES, GRPC, JSON_BYTES, Load, Workload

APPS = pathlib.Path(__file__).resolve().parent.parent / "apps"


@dataclass(frozen=True)
class Ask:
    """One request, and a word that its answer must have."""

    path: str
    body: bytes
    answer: str
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


@dataclass(frozen=True)
class Site:
    """Where a server runs and what it shall serve."""

    workload: Workload
    folder: pathlib.Path
    port: int
    other_ports: tuple[int, ...]
    python: pathlib.Path
    """Of the server's own environment."""
    photo: bytes = b""
    photo_class: str = ""
    grpc: bool = False


class Server:
    """A server to measure; each has a module of its own."""

    name: str
    title: str
    requirements: tuple[str, ...] = ()
    """What pip installs, with versions."""
    front: str | None = None
    """The name of the process that speaks HTTP, where it is not also the one that runs the model."""
    ours = False
    slow = False
    """Whether short runs will do, so that the whole comparison ends."""
    warm_s = 1.0
    """How long it gets requests before they count, at least."""
    warm_requests = 0
    """How many it gets at least; but no longer than four times that."""
    start_s = 2.0
    """How long it takes to start, about."""
    loadgen = False
    """Whether it has a part in W6."""
    environment: str
    """The environment's folder; the name of the server unless several share one."""

    def __init__(self) -> None:
        self.environment = self.name

    def prepare(self, python: pathlib.Path) -> None:
        """What its environment needs beyond packages; raises RuntimeError with the reason if that cannot be had."""

    def loads(self, workload: Workload) -> tuple[Load, ...]:
        """The loads of a workload that make sense for it; none if it has no part in it."""
        return tuple(load for load in workload.loads if load is not GRPC and (self.loadgen or not load.scenario))

    def command(self, site: Site) -> list[str]:
        """How it is started, with its files written."""
        raise NotImplementedError

    def variables(self, site: Site) -> dict[str, str]:
        """What its environment variables say, beside those that all servers have."""
        return {}

    def settings(self, workload: Workload) -> str:
        """How it is set, in words."""
        raise NotImplementedError

    def alone(self, site: Site, seconds: float) -> dict[str, float] | None:
        """The figures of something that is no server and needs no load from outside."""
        return None

    def version(self, python: pathlib.Path) -> str:
        """Its version."""
        package = self.requirements[0].split("[")[0].split("==")[0]
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    def ask(self, site: Site) -> Ask:
        """A request of the workload. Most servers take JSON and raw bodies as they are."""
        if site.workload.raw:
            body, answer = raw(site)
            return Ask(self.path, body, answer, {"Content-Type": "application/octet-stream"})
        body, answer = framed('{"input": "%s"}')
        return Ask(self.path, body, answer)

    path = "/"


def raw(site: Site) -> tuple[bytes, str]:
    """The body of a workload whose input is the body itself, and its answer."""
    if site.workload.model == "classifier":
        return site.photo, site.photo_class
    return b"a" * BIG_BYTES, str(BIG_BYTES)


def framed(frame: str, total: int = JSON_BYTES) -> tuple[bytes, str]:
    """A JSON body of `total` bytes with a string where the frame has `%s`, and that string's length."""
    count = total - len(frame % "")
    body = frame % ("a" * count)
    json.loads(body)
    return body.encode(), str(count)


def common_variables(site: Site) -> dict[str, str]:
    """What the model's code reads."""
    workload = site.workload
    return {
        "PATH": f"{site.python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": str(site.folder),
        "TMPDIR": str(site.folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(APPS),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "PEER_MODEL": workload.model,
        "PEER_BODY": "raw" if workload.raw or site.grpc else "json",
        "PEER_BATCH": str(workload.batch),
        "PEER_DELAY_MS": str(workload.delay_ms),
    }


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
