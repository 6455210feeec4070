"""What a newcomer reads first: the banner, unknown paths, broken JSON, and code that cannot be served."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from harness.server import ASK_SECONDS, FREE_PORTS, Server

APP = """
from dataclasses import dataclass

import jitney


@jitney.batch
def shout(text: list[str]) -> list[str]:
    return [one.upper() for one in text]


@jitney.batch
def mistaken(text: str) -> list[str]:
    return [text.upper()]


@dataclass
class Box:
    width: float
    height: float


@jitney.model
class Boxes:
    @jitney.endpoint
    def area(self, boxes: list[Box], scale: int) -> float:
        return sum(box.width * box.height for box in boxes) * scale

    @jitney.endpoint
    def count(self, boxes: list[Box]) -> int:
        return len(boxes)


class Silent:
    def speak(self, text: str) -> str:
        return text
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with code that can be served, and code that cannot."""
    home = tmp_path_factory.mktemp("app")
    (home / "app.py").write_text(APP)
    (home / "unclosed.py").write_text("def f(:\n    pass\n")
    return home


@pytest.fixture(scope="module")
def server(binary: Path, app: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """README's first example."""
    server = Server(
        binary, tmp_path_factory.mktemp("home") / "server", ["serve", "app.py:shout", "app.py:Boxes"], cwd=app
    )
    yield server.started()
    server.end()


def run(binary: Path, app: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A server that does not start."""
    command = [str(binary), "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=app)


def test_the_banner_and_the_root_name_the_page_of_the_api(server: Server) -> None:
    assert f"{server.url('')}/docs" in server.stdout
    assert requests.get(server.url("/"), timeout=ASK_SECONDS).json() == {"status": "alive", "docs": "/docs"}


@pytest.mark.parametrize(
    ("listener", "path", "other"),
    [
        ("inference", "/models", "management"),
        ("management", "/shout", "inference"),
        ("management", "/metrics", "metrics"),
    ],
)
def test_an_unknown_path_is_told_its_port(server: Server, listener: str, path: str, other: str) -> None:
    reply = requests.get(server.url(path, listener), timeout=ASK_SECONDS)
    message = reply.json()["message"]
    assert (reply.status_code, message.count("/docs")) == (404, 1), message
    assert f"There is no {path} on this port. It is on the {other} port" in message


def test_an_unknown_path_that_is_nowhere_names_no_port(server: Server) -> None:
    message = requests.get(server.url("/nothing/at/all"), timeout=ASK_SECONDS).json()["message"]
    assert "It is on" not in message and "/docs" in message


@pytest.mark.parametrize(
    ("listener", "method", "path", "said"),
    [
        ("inference", "POST", "/shot", "Model not found: shot; did you mean `shout`? GET /docs"),
        ("inference", "POST", "/predictions/shot", "Model not found: shot; did you mean `shout`? GET /docs"),
        ("inference", "POST", "/Boxes/aera", "Boxes has no endpoint 'aera' (did you mean `area`?); it has: "),
        ("inference", "POST", "/zzz", "Model not found: zzz. GET /docs"),
        ("inference", "DELETE", "/shout", "/shout does not take DELETE; it takes GET, POST, PUT."),
        ("management", "POST", "/models?url=x.mar", "Model store has not been configured. Start the server with --mod"),
        ("management", "GET", "/models/shot", "Model not found: shot; did you mean `shout`?"),
        ("management", "GET", "/modles", "There is no /modles on this port; did you mean `/models`?"),
    ],
)
def test_what_is_nearly_there_is_named(server: Server, listener: str, method: str, path: str, said: str) -> None:
    reply = requests.request(method, server.url(path, listener), timeout=ASK_SECONDS)
    assert reply.status_code in (404, 405) and reply.json()["message"].startswith(said), reply.text


def test_ports_in_use_are_named_all_at_once(binary: Path, app: Path, server: Server) -> None:
    taken = {name: server.urls[name].rpartition(":")[2] for name in ("inference", "management")}
    flags = ["--port", taken["inference"], "--management-port", taken["management"]]
    done = run(binary, app, "app.py:shout", *flags)
    assert done.returncode == 1, done.stderr
    assert f"in use by other programs: {taken['inference']} (inference), {taken['management']} (management)" in (
        done.stderr
    )


def test_a_tab_in_the_configuration_is_named(binary: Path, app: Path, tmp_path: Path) -> None:
    (tmp_path / "tab.yaml").write_text("models:\n\t- app:shout\n")
    done = run(binary, app, "--config", str(tmp_path / "tab.yaml"))
    assert done.returncode == 64 and "line 2" in done.stderr and "indented with spaces" in done.stderr, done.stderr


def test_a_batch_function_that_takes_its_list_for_one_item_is_told(start: Callable[..., Server], app: Path) -> None:
    server = start("serve", "app.py:mistaken", cwd=app)
    said = requests.post(server.url("/mistaken"), json={"text": "a"}, timeout=ASK_SECONDS).json()["message"]
    assert said.endswith("'text' is annotated str, but arrives as a list: write list[str]"), said


def test_fields_that_do_not_fit_are_a_list(server: Server) -> None:
    body = {"boxes": [{"width": 1, "height": 2}, {"width": "wide", "height": 1}], "sclae": 1}
    told = requests.post(server.url("/Boxes/area"), json=body, timeout=ASK_SECONDS).json()
    assert told["errors"] == [
        {"field": "boxes.1.width", "message": "cannot be read: could not convert string to float: 'wide'"},
        {"field": "sclae", "message": "there is no such parameter"},
        {"field": "scale", "message": "is missing"},
    ]
    assert "'boxes': 1.width: cannot be read" in told["message"] and told["code"] == 400 and told["requestId"], told


@pytest.mark.parametrize(("body", "place"), [(b'{"text":"a"', "line 1, column 12"), (b"", "line 1, column 1")])
def test_broken_json_is_refused_with_its_place(server: Server, body: bytes, place: str) -> None:
    headers = {"content-type": "application/json"}
    reply = requests.post(server.url("/shout"), body, headers=headers, timeout=ASK_SECONDS)
    assert reply.status_code == 400 and f"invalid JSON at {place}" in reply.json()["message"], reply.text


@pytest.mark.parametrize(
    ("target", "lines"),
    [
        ("app.py:Silent", ["Silent has no endpoint: put @jitney.batch"]),
        ("unclosed.py:f", ['    File "', "      def f(:", "            ^", "    SyntaxError: "]),
    ],
)
def test_code_that_cannot_be_served_is_refused_in_lines_that_can_be_read(
    binary: Path, app: Path, target: str, lines: list[str]
) -> None:
    done = run(binary, app, target, *FREE_PORTS)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    for line in lines:
        assert any(line in shown for shown in done.stderr.splitlines()), done.stderr
