"""The log: lines as JSON, read and followed over management, with a level that changes while the server runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.archives import Store
from harness.client import later
from harness.server import Server
from harness.wait import until

BROKEN = "import nosuchpkg\n"
LINE = {"time", "level", "target", "message", "fields"}


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model that answers, one that cannot load and one without workers; its log is JSON."""
    home = tmp_path_factory.mktemp("logs")
    store = Store(home / "store")
    models = [store.mar("echo"), store.mar("bad", source=BROKEN)]
    options = ["--model-store", store.path, "--log-format", "json", "--access-log"]
    server = Server(binary, home / "server", ["serve", *models, *options], store=store, wait_for_workers=False)
    server.started()
    until(lambda: server.ready("echo"), "echo is ready")
    server.manage("POST", "/models", url="echo.mar", model_name="idle", initial_workers=0).raise_for_status()
    yield server
    server.end()


def lines(server: Server, **query: Any) -> list[dict]:
    """What `/logs` answers."""
    reply = server.manage("GET", "/logs", **query)
    assert reply.status_code == 200, reply.text
    return reply.json()["lines"]


def set_level(server: Server, level: str) -> requests.Response:
    """Changes what is logged."""
    return requests.put(server.url("/log-level", "management"), json={"level": level}, timeout=120)


def test_every_line_is_an_object_with_the_same_names(server: Server) -> None:
    assert server.predict("echo", b"hello").status_code == 200
    server.logged('"uri":"/predictions/echo"')
    written = [json.loads(line) for line in server.stderr.splitlines()]
    assert all(set(line) == LINE for line in written)
    access = [line for line in written if line["target"] == "jitney::access"]
    assert any(line["fields"]["uri"] == "/predictions/echo" and line["fields"]["status"] == 200 for line in access)
    server.logged("No module named 'nosuchpkg'")
    written = [json.loads(line) for line in server.stderr.splitlines()]
    printed = next(line for line in written if line["target"] == "jitney::worker_output")
    fields = {"model": "bad", "version": "1.0", "worker": printed["fields"]["worker"], "stream": "stdout"}
    assert printed["fields"] == fields and printed["fields"]["worker"] >= 9000


def test_the_last_lines_are_found_by_level_model_and_text(server: Server) -> None:
    until(lambda: lines(server, level="error", model="bad"), "the failed load is logged")
    assert {line["level"] for line in lines(server, level="warn")} <= {"WARN", "ERROR"}
    assert {line["fields"]["model"] for line in lines(server, model="echo")} == {"echo"}
    assert all("worker is ready" in line["message"] for line in lines(server, contains="WORKER is ready"))
    assert len(lines(server, lines=1)) == 1
    assert lines(server, contains="nobody ever wrote this") == []
    for query, mistake in [({"level": "loud"}, '"loud"'), ({"lines": "many"}, "from 0 to 2000")]:
        reply = server.manage("GET", "/logs", **query)
        assert reply.status_code == 400 and mistake in reply.json()["message"], reply.text


def test_the_level_changes_at_once_and_mistakes_are_named(server: Server) -> None:
    assert server.manage("GET", "/log-level").json() == {"level": "info"}
    assert set_level(server, "error").json() == {"level": "error"}
    server.manage("POST", "/models", url="echo.mar", model_name="unseen").raise_for_status()
    assert set_level(server, "info,jitney_engine=debug").status_code == 200
    server.manage("POST", "/models", url="echo.mar", model_name="seen").raise_for_status()
    assert lines(server, model="seen", contains="model registered")
    assert lines(server, model="unseen", contains="model registered") == []
    for level, mistake in [
        ("inof", "did you mean `info`?"),
        ("info,jitney_engin=debug", '"jitney_engin" is no part'),
        ("info,x=loud", '"loud" is no log level'),
        ("", "empty"),
    ]:
        reply = set_level(server, level)
        assert reply.status_code == 400 and mistake in reply.json()["message"], reply.text
    reply = requests.put(server.url("/log-level", "management"), data=b"info", timeout=120)
    assert reply.status_code == 400 and "JSON" in reply.json()["message"]
    assert server.manage("GET", "/log-level").json() == {"level": "info,jitney_engine=debug"}
    assert set_level(server, "info").status_code == 200


def test_one_who_follows_sees_lines_as_they_come(server: Server) -> None:
    set_level(server, "info")
    url = server.url("/logs/stream?contains=level+is+changed&lines=1", "management")
    with requests.get(url, stream=True, timeout=120) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        events = reply.iter_lines(decode_unicode=True)
        assert next(events) == "event: log"
        assert set(json.loads(next(events).removeprefix("data: "))) == LINE
        changed = later(lambda: set_level(server, "info,hyper=warn"))
        following = [next(events) for _ in range(3)]
        assert json.loads(following[2].removeprefix("data: "))["fields"]["now"] == "info,hyper=warn"
        assert changed.result().status_code == 200


def test_rejections_leave_a_line_and_not_one_each(server: Server) -> None:
    for _ in range(30):
        assert server.predict("idle", b"x").status_code == 503
    found = until(lambda: lines(server, model="idle", contains="no_worker"), "the rejections are logged")
    assert len(found) < 5
    first = found[0]
    assert (first["level"], first["fields"]["reason"]) == ("WARN", "no_worker")
    assert first["fields"]["rejected"] >= 1 and "scale it up" in first["message"]


def test_a_crash_loop_is_named_once(server: Server) -> None:
    found = until(lambda: lines(server, model="bad", contains="crash loop"), "the crash loop is named")
    (line,) = found
    assert line["level"] == "ERROR" and line["fields"]["ends"] == 3
    assert "the next start is" in line["message"]
    assert line["message"].endswith("last error: ModuleNotFoundError: No module named 'nosuchpkg'")
