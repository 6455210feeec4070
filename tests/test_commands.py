"""The commands against a running server: status, models, register, scale, set, default, unregister, logs, top; and
doctor and completions. One server with tokens for the whole file."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import socket
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.archives import Store
from harness.server import Server
from harness.wait import until

SECONDS = 120


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with tokens and the model `echo`, which has another version in the store."""
    home = tmp_path_factory.mktemp("commands")
    store = Store(home / "store")
    store.mar("second", "echo", version="2.0")
    store.mar("broken", source="import no_such_module")
    arguments = ["serve", store.mar("echo"), "--model-store", store.path, "--token-auth"]
    server = Server(binary, home / "server", arguments, store=store, wait_for_workers=False)
    yield server.started()
    server.end()


@pytest.fixture(autouse=True)
def ready(server: Server) -> None:
    """Every test begins with a server that says that it is ready."""
    until(lambda: jitney(server, "status").returncode == 0, "the server is ready", poll=0.1)


def command(server: Server, *arguments: str) -> list[str]:
    """A command line; the keys are in the server's directory."""
    return [str(server.binary), *arguments, "--url", server.urls["management"]]


def environment(server: Server, **more: str) -> dict[str, str]:
    """Without settings of whoever runs the tests."""
    return {name: value for name, value in server.env.items() if not name.startswith("JITNEY_")} | more


def jitney(server: Server, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in the server's directory, where its keys are."""
    return subprocess.run(
        command(server, *arguments),
        cwd=cwd or server.cwd,
        env=environment(server, **env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def done(server: Server, *arguments: str) -> str:
    """The same for a command that must succeed: what it printed."""
    ran = jitney(server, *arguments)
    assert ran.returncode == 0, ran
    return ran.stdout


def versions(server: Server, model: str) -> dict[str, dict[str, Any]]:
    """The versions of a model, as `jitney models` tells them."""
    models = json.loads(done(server, "models", model, "--json"))["models"]
    return {one["version"]: one for one in models}


def test_status_says_whether_the_server_is_ready(server: Server):
    text = done(server, "status")
    assert text.startswith("Jitney ") and f"at {server.urls['management']}: ready, up " in text
    assert "echo/1.0" in text and "REQ/S" in text
    document = json.loads(done(server, "status", "--json"))
    assert document["server"]["state"] == "ready" and document["models"][0]["name"] == "echo"


def test_a_server_that_is_not_there_is_told_with_its_address(server: Server, tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        # Bound and not listening: nobody else gets it, and nobody answers.
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        for command in ("status", "models", "logs", "top"):
            ran = run(server, command, "--url", url)
            assert ran.returncode == 69 and ran.stdout == "", ran
            assert f"cannot reach {url}: connection refused" in ran.stderr and "JITNEY_URL" in ran.stderr
    ran = run(server, "status", "--url", f"unix:{tmp_path}/no.sock")
    assert ran.returncode == 69 and "no.sock" in ran.stderr
    ran = run(server, "status", "--url", server.urls["metrics"])
    assert ran.returncode == 69 and "no management address" in ran.stderr, ran
    assert run(server, "status", "--url", "ftp://x").returncode == 64


def run(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command with addresses of its own."""
    line = [str(server.binary), *arguments]
    return subprocess.run(
        line, cwd=server.cwd, env=environment(server), capture_output=True, text=True, timeout=SECONDS
    )


def test_the_key_comes_from_a_flag_a_file_a_variable_or_the_directory(server: Server, tmp_path: Path):
    keys = server.cwd / "key_file.json"
    key = json.loads(keys.read_text())["management"]["key"]
    without = jitney(server, "status", cwd=tmp_path)
    assert without.returncode == 77 and "wants a token" in without.stderr and "--key-file" in without.stderr
    for token in ("wrong", "-wrong"):
        wrong = jitney(server, "status", "--token", token, cwd=tmp_path)
        assert wrong.returncode == 77 and "does not take this token" in wrong.stderr
    assert jitney(server, "status", "--token", key, cwd=tmp_path).returncode == 0
    assert jitney(server, "status", "--key-file", str(keys), cwd=tmp_path).returncode == 0
    assert jitney(server, "status", cwd=tmp_path, JITNEY_TOKEN=key).returncode == 0
    assert jitney(server, "status", "--key-file", str(tmp_path / "none"), cwd=tmp_path).returncode == 1


def test_a_model_is_registered_changed_and_removed(server: Server):
    assert 'Model "echo" Version: 2.0 registered' in done(
        server, "register", "second.mar", "--name", "echo", "--workers", "1", "--batch-size", "4"
    )
    assert versions(server, "echo")["2.0"]["maxBatchSize"] == 4
    done(server, "set", "echo/2.0", "max_latency_ms=2s", "max_batch_size=6")
    changed = versions(server, "echo")["2.0"]
    assert (changed["maxBatchSize"], changed["maxLatencyMs"]) == (6, 2000.0)
    assert "Workers scaled to 2" in done(server, "scale", "echo/2.0", "--workers", "2")
    scaled = versions(server, "echo")["2.0"]
    assert len(scaled["workers"]) == scaled["workersMin"] == 2
    done(server, "scale", "echo/2.0", "auto")
    bounds = versions(server, "echo")["2.0"]
    assert bounds["workersMin"] == 1 < bounds["workersMax"]
    done(server, "scale", "echo/2.0", "2")
    assert versions(server, "echo")["2.0"]["workersMax"] == 2
    assert json.loads(done(server, "scale", "echo/2.0", "--workers", "1", "--no-wait", "--json"))["status"]
    done(server, "default", "echo", "2.0")
    assert {version: one["isDefault"] for version, one in versions(server, "echo").items()} == {
        "1.0": False,
        "2.0": True,
    }
    assert "echo/2.0 (default)" in done(server, "models")
    details = done(server, "models", "echo/2.0")
    assert "latency target 2000 ms" in details and "jitney set echo/2.0 NAME=VALUE" in details
    done(server, "default", "echo", "1.0")
    done(server, "unregister", "echo/2.0", "--yes")
    assert list(versions(server, "echo")) == ["1.0"]


def test_the_servers_own_words_are_shown(server: Server):
    ran = jitney(server, "scale", "nothing", "--workers", "1")
    assert ran.returncode == 1 and "Model not found: nothing (404 ModelNotFoundException)" in ran.stderr, ran
    ran = jitney(server, "models", "ecko")
    assert ran.returncode == 1 and "did you mean `echo`?" in ran.stderr, ran
    ran = jitney(server, "register", "broken.mar", "--workers", "1")
    assert ran.returncode == 1 and "no_such_module" in ran.stderr, ran
    ran = jitney(server, "register", "absent.mar")
    assert ran.returncode == 1 and "absent.mar" in ran.stderr, ran
    for wrong in (
        ["set", "echo", "isolation=thread"],
        ["set", "echo", "max_latency=1"],
        ["scale", "echo"],
        ["scale", "echo", "many"],
    ):
        assert jitney(server, *wrong).returncode == 64, wrong


def test_logs_are_printed_and_followed(server: Server):
    document = done(server, "logs", "--lines", "3", "--json").splitlines()
    assert 1 <= len(document) <= 3 and all({"time", "level", "message"} <= json.loads(line).keys() for line in document)
    assert done(server, "logs", "--contains", "no line has this") == ""
    follow = command(server, "logs", "--follow", "--lines", "0", "--contains", "absent2.mar")
    following = subprocess.Popen(follow, cwd=server.cwd, env=environment(server), stdout=subprocess.PIPE)
    try:
        out = following.stdout.fileno()
        os.set_blocking(out, False)

        def followed() -> bytes:
            """The stream may begin after the first lines; sooner or later one comes."""
            assert jitney(server, "register", "absent2.mar").returncode == 1
            try:
                return os.read(out, 1 << 16)
            except BlockingIOError:
                return b""

        assert b"absent2.mar" in until(followed, "a new line is followed")
    finally:
        following.kill()
        following.communicate()


def test_top_prints_one_frame_without_a_terminal(server: Server):
    for arguments in (["top"], ["top", "--once"]):
        frame = done(server, *arguments)
        assert "echo/1.0" in frame and "WORKERS" in frame and "why: the last decisions" in frame, frame
        assert "\x1b" not in frame
    assert json.loads(done(server, "top", "--once", "--json"))["server"]["state"] == "ready"


class Screen:
    """A command in a terminal."""

    def __init__(self, server: Server, *arguments: str) -> None:
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (40, 120))
        self.before = termios.tcgetattr(self.slave)
        self.shown = b""
        self.process = subprocess.Popen(
            command(server, *arguments),
            cwd=server.cwd,
            env=environment(server, TERM="xterm-256color"),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
        )

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.slave)
        os.close(self.master)

    def shows(self, text: bytes) -> None:
        """Reads until the terminal shows it."""
        os.set_blocking(self.master, False)

        def shown() -> bool:
            with contextlib.suppress(BlockingIOError):
                self.shown += os.read(self.master, 65536)
            return text in self.shown

        until(shown, f"the terminal shows {text!r}")

    def type(self, text: bytes) -> None:
        """Presses keys."""
        os.write(self.master, text)

    def ended(self) -> int:
        """Waits for the end; the terminal must be as it was."""
        code = self.process.wait(SECONDS)
        assert termios.tcgetattr(self.slave) == self.before
        return code


def test_top_gives_the_terminal_back(server: Server):
    for end, code in ((lambda screen: screen.type(b"q"), 0), (lambda screen: screen.process.terminate(), 130)):
        with Screen(server, "top") as screen:
            screen.shows(b"echo/1.0")
            screen.type(b"?")
            screen.shows(b"Ctrl-C")
            end(screen)
            screen.shows(b"\x1b[?1049l")
            assert screen.ended() == code


def test_unregister_asks_in_a_terminal(server: Server):
    with Screen(server, "unregister", "echo") as screen:
        screen.shows(b"Unregister echo version 1.0 with 1 workers")
        screen.type(b"n\n")
        screen.shows(b"nothing was changed")
        assert screen.ended() == 1
    assert versions(server, "echo")


def test_doctor_looks_at_the_machine_and_at_the_server(server: Server):
    port = server.urls["management"].rpartition(":")[2]
    ports = [
        word for flag in ("port", "metrics-port", "grpc-port", "grpc-management-port") for word in (f"--{flag}", "0")
    ]
    ran = jitney(server, "doctor", "--json", *ports, "--management-port", port, str(server.store.path / "echo.mar"))
    document = json.loads(ran.stdout)
    assert ran.returncode == 0 and document["problems"] == 0, ran.stdout
    areas = {finding["area"] for finding in document["findings"]}
    assert areas >= {"Program", "Python", "torch", "GPUs", "ONNX", "Ports", "Limits", "Files", "Server", "Models"}
    text = json.dumps(document)
    assert "the worker can be imported" in text and "belongs to the running server" in text
    assert all(finding["advice"] for finding in document["findings"] if finding["level"] != "ok")
    ran = jitney(server, "doctor", *ports, "--management-port", "0", "no-such.mar", "--python", "/no/such/python")
    assert ran.returncode == 1 and "problem  no such file: no-such.mar" in ran.stdout, ran.stdout
    assert "no Python at /no/such/python" in ran.stdout


def test_bash_completes_commands(server: Server):
    script = """source <("$0" completions bash)
    COMP_WORDS=(jitney "$1"); COMP_CWORD=1; _jitney jitney "$1" jitney; echo "${COMPREPLY[@]}" """
    line = ["bash", "-c", script, str(server.binary)]
    for typed, expected in (("ser", "serve"), ("unreg", "unregister"), ("compl", "completions")):
        assert subprocess.run([*line, typed], capture_output=True, text=True, check=True).stdout.split() == [expected]
