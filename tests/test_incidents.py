"""Four incidents, one after another on one server: overload, a crash loop, a bad deploy, a leak.

Each must be found from what an operator has, without reading code: a line of the dashboard, a metric that an alert
watches, a line of the log. The lines, metrics and alerts are those that docs/operations/incidents.md names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness.archives import Store
from harness.browser import browser, open_page
from harness.package import ROOT
from harness.server import Server
from harness.steady import clients
from harness.wait import until

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(find_spec("playwright") is None, reason="needs playwright and chromium: make test-browser"),
]

HELD = """
import pathlib, time

def handle(data, context):
    while data and not pathlib.Path({gate!r}).exists():
        time.sleep(0.01)
    return data and ["late"] * len(data)
"""
CRASHING = """
import os, pathlib, threading, time

def watch():
    while not pathlib.Path({gate!r}).exists():
        time.sleep(0.05)
    os._exit(3)

threading.Thread(target=watch, daemon=True).start()

def handle(data, context):
    return data and ["fine"] * len(data)
"""
BROKEN = "import no_such_package\n"
LEAKING = """
kept = []

def handle(data, context):
    kept.extend(bytearray(200_000) for _ in data or [])
    return data and ["thanks"] * len(data)
"""


class OperatorView:
    """What an operator looks at."""

    def __init__(self, server: Server, page: Any) -> None:
        self.server, self.page = server, page

    def headline(self, text: str | re.Pattern[str]) -> str:
        """The dashboard's line about it, once it is there."""
        line = self.page.get_by_role("region", name="What is wrong now").locator(".problem", has_text=text).first
        line.wait_for()
        return line.text_content()

    def log(self, text: str) -> str:
        """The log's line about it, once it is there."""

        def line() -> str | None:
            return next((one for one in self.server.stderr.splitlines() if re.search(text, one)), None)

        return until(line, f"the log says {text!r}")

    def grows(self, metric: str, model: str, **labels: str) -> None:
        """Waits until a counter has counted."""
        until(lambda: self.server.metric(metric, model, **labels) > 0, f"{metric} of {model} grows", poll=0.1)


@pytest.fixture(scope="module")
def view(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorView]:
    home = tmp_path_factory.mktemp("incidents")
    store = Store(home / "store")
    arguments = ["serve", store.mar("echo"), "--model-store", store.path]
    server = Server(binary, home / "server", arguments, store=store).started()
    with browser() as chromium:
        page = open_page(chromium, server.url("/dashboard", "management")).page
        page.get_by_text("live", exact=True).wait_for()
        yield OperatorView(server, page)
    server.end()


@pytest.fixture
def remove(view: OperatorView) -> Iterator[Callable[[str], None]]:
    """Ends a model after its incident."""
    names: list[str] = []
    yield names.append
    for name in names:
        view.server.manage("DELETE", f"/models/{name}/all")
        view.server.manage("DELETE", f"/models/{name}")


def test_overload(view: OperatorView, remove: Callable[[str], None], tmp_path: Path) -> None:
    server, gate = view.server, tmp_path / "go-on"
    server.register(server.store.mar("slow", source=HELD.format(gate=str(gate))), batch_size=1)
    remove("slow")
    assert server.manage("PUT", "/models/slow", job_queue_size=3).ok
    with clients(server, "slow", 10):
        assert "queue is full" in view.headline("slow 1.0: rejecting")
        view.grows("jitney_rejections_total", "slow", reason="queue_full")
        view.log(r"WARN .*rejected.*slow|WARN .*model=slow.*rejected")
        gate.touch()
    view.log(r"overload.*ended.*slow|slow.*overload.*ended")


def test_a_crash_loop(view: OperatorView, remove: Callable[[str], None], tmp_path: Path) -> None:
    server, gate = view.server, tmp_path / "crash"
    server.register(server.store.mar("crashing", source=CRASHING.format(gate=str(gate))))
    remove("crashing")
    gate.touch()
    assert re.search(r"code 3|status 3", view.headline(re.compile("crashing 1.0.* (restarted|lost|not load)")))
    view.grows("jitney_worker_exits_total", "crashing")
    view.grows("jitney_worker_restarts_total", "crashing")
    view.log(r"crashing.*exit status 3|exit status 3.*crashing|crashing.*code 3")
    view.log(r"crash loop")


def test_a_bad_deploy(view: OperatorView, remove: Callable[[str], None]) -> None:
    server = view.server
    server.register(server.store.mar("shop", "echo", version="1.0"))
    remove("shop")
    archive = server.store.mar("shop", source=BROKEN, version="2.0")
    server.manage("POST", "/models", url=archive.name, initial_workers=1, synchronous="false")
    assert "No module named 'no_such_package'" in view.headline("shop 2.0: could not load")
    view.grows("jitney_load_failures_total", "shop", model_version="2.0")
    assert server.metric("jitney_model_ready", "shop", model_version="2.0") == 0
    view.log(r"of shop could not load: .*No module named 'no_such_package'")
    assert server.predict("shop").ok, "the version before it goes on"


def test_a_leak(view: OperatorView, remove: Callable[[str], None]) -> None:
    server = view.server
    server.register(server.store.mar("leaking", source=LEAKING))
    remove("leaking")
    before = server.metric("jitney_worker_memory_bytes", "leaking")
    with clients(server, "leaking", 1):
        line = view.headline(re.compile("leaking 1.0"))
        assert re.search(r"grow", line), line
    assert server.metric("jitney_worker_memory_bytes", "leaking") > before + 20e6


def test_every_incident_has_an_alert_and_a_runbook() -> None:
    alerts = (ROOT / "deploy/prometheus/alerts.yml").read_text()
    page = (ROOT / "docs/operations/incidents.md").read_text()
    for metric, heading in [
        ("jitney_rejections_total", "Overload"),
        ("jitney_worker_exits_total", "Crash loop"),
        ("jitney_load_failures_total", "Bad deploy"),
        ("jitney_worker_memory_bytes", "Memory leak"),
    ]:
        assert metric in alerts and metric in page and f"## {heading}" in page, metric
