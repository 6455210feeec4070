"""Pictures of the dashboard in eight incidents, which really happen: `make pictures`, or with the names of some.

Each incident has a server of its own. Once the first line tells of it, there is a picture of all models on a desktop,
one on a phone, one of the model's page in the dark, and one of its requests, as target/pictures/INCIDENT-SCREEN.png.
Those in docs/pictures are copies of a few.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.archives import Store
from harness.browser import browser, open_page
from harness.package import ROOT
from harness.server import Server
from harness.steady import clients
from harness.wait import until

TO = ROOT / "target" / "pictures"
PAST_MS = 50_000
"""What a slower model is compared with."""
LATER_MS = 20_000
"""So much of the incident is in the charts."""

APP = """
import errno, os, pathlib, threading, time

import jitney

HERE = pathlib.Path({here!r})
kept = []


def watch():
    while not (HERE / "crash").exists():
        time.sleep(0.05)
    time.sleep(2)
    os._exit(3)


threading.Thread(target=watch, daemon=True).start()


@jitney.endpoint
def ranker(text: str) -> str:
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    if (HERE / "slow").exists():
        time.sleep(0.4)
    if (HERE / "leak").exists():
        kept.append(os.urandom(500_000))
    if (HERE / "disk").exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/cache/features.bin")
    return text


class Search:
    ranker = jitney.depends(ranker)

    @jitney.endpoint
    async def predict(self, text: str) -> str:
        return await self.ranker.remote(text)
"""
BROKEN = "import tokenizers_of_tomorrow\n"


@dataclass
class Scene:
    """A server on which an incident happens."""

    server: Server
    home: Path
    stack: ExitStack

    def overview(self) -> Any:
        """What the dashboard is told."""
        return self.server.manage("GET", "/overview").json()

    def past(self, millis: int) -> None:
        """Waits until so much of the past is known, or has come since."""
        began = until(lambda: self.overview()["sample"], "there is a sample")["time"]
        until(lambda: self.overview()["sample"]["time"] > began + millis, "time has passed", poll=1.0)

    def wait_for(self, told: str) -> None:
        """Waits until a line of the dashboard says this."""

        def says() -> bool:
            return any(re.search(told, one["what"]) for one in self.overview()["problems"])

        until(says, f"it says {told}", poll=0.5)

    def begin(self, switch: str) -> None:
        """The model behaves so from now on."""
        (self.home / switch).touch()


def overload(scene: Scene) -> None:
    assert scene.server.manage("PUT", "/models/ranker", job_queue_size=5).ok
    scene.past(10_000)
    scene.stack.enter_context(clients(scene.server, "ranker", 24))


def slow_model(scene: Scene) -> None:
    scene.past(PAST_MS)
    scene.begin("slow")


def crash_loop(scene: Scene) -> None:
    scene.past(10_000)
    scene.begin("crash")


def leak(scene: Scene) -> None:
    scene.begin("leak")


def full_disk(scene: Scene) -> None:
    scene.past(10_000)
    scene.begin("disk")


def bad_deploy(scene: Scene) -> None:
    archive = scene.server.store.mar("ranker", source=BROKEN, version="2.0")
    scene.server.manage("POST", "/models", url=archive.name, initial_workers=1, synchronous="false")


def noisy_neighbour(scene: Scene) -> None:
    scene.past(PAST_MS)
    for _ in range(8 * (os.cpu_count() or 1)):
        loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        scene.stack.callback(loop.kill)


INCIDENTS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "overload": (overload, "ranker 1.0: rejecting"),
    "slow-model": (slow_model, "the model has become slower"),
    "slow-part": (slow_model, "its part ranker 1.0 has become slower"),
    "crash-loop": (crash_loop, "restarted .* times"),
    "leak": (leak, "memory grows"),
    "bad-deploy": (bad_deploy, "ranker 2.0: could not load"),
    "full-disk": (full_disk, "No space left on device"),
    "noisy-neighbour": (noisy_neighbour, "other programs use the processors"),
}
"""How each begins, and what a line of the dashboard then says."""


@contextmanager
def scene(name: str) -> Iterator[Scene]:
    """A server with light traffic."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        home = Path(place)
        store = Store(home / "store")
        store.path.mkdir(exist_ok=True)
        (home / "app.py").write_text(APP.format(here=place))
        asked = "Search" if name == "slow-part" else "ranker"
        arguments = ["serve", f"app.py:{asked}", store.mar("echo"), "--model-store", store.path]
        binary = Path(os.environ.get("JITNEY_BIN", ROOT / "target" / "release" / "jitney"))
        server = Server(binary, home / "server", arguments, store=store, cwd=home).started()
        stack.callback(server.end)
        assert server.manage("PUT", f"/models/{asked}", max_latency_ms="1000").ok
        for client in (asked, "echo"):
            stack.enter_context(clients(server, client, 2, pause=0.05))
        yield Scene(server, home, stack)


def main(names: list[str]) -> None:
    """Makes the pictures of these incidents, or of all."""
    TO.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        for name in names or INCIDENTS:
            begin, told = INCIDENTS[name]
            with scene(name) as place:
                begin(place)
                place.wait_for(told)
                place.past(LATER_MS)
                first = place.overview()["problems"][0]
                print(f"{name}: {first['what']} | {first['advice']}", flush=True)
                take(chromium, place, name, first["model"] or "ranker/1.0")


def take(chromium: Any, place: Scene, name: str, model: str) -> None:
    """The pictures."""
    own = f"#/model/{model}"
    screens = {"desktop": ("", 1280, False), "phone": ("", 390, False), "dark": (own, 1280, True)}
    screens["requests"] = (f"{own}/requests", 1280, False)
    for screen, (hash, width, dark) in screens.items():
        page = open_page(chromium, place.server.url(f"/dashboard{hash}", "management"), width=width, dark=dark).page
        page.get_by_text("live", exact=True).wait_for()
        page.get_by_role("region", name="What is wrong now").locator(".problem").first.wait_for()
        page.screenshot(path=TO / f"{name}-{screen}.png")
        page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
