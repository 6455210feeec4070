"""A directory in which the commands and programs of one page run as they stand.

Programs on its PATH are the real binary and this Python. `jitney serve` and `jitney demo` come back once the server is
ready, as a reader would go on in a second terminal; the next one ends the last. Ports of the pages become free ones,
and deadlines become long ones, which a busy machine can keep. Nothing else in a command is changed.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from harness import processes
from harness.wait import until

RUN_SECONDS = 180
PORTS = {
    "JITNEY_PORT": 8080,
    "JITNEY_MANAGEMENT_PORT": 8081,
    "JITNEY_METRICS_PORT": 8082,
    "JITNEY_GRPC_PORT": 7070,
    "JITNEY_GRPC_MANAGEMENT_PORT": 7071,
}
CURL = "silent\nshow-error\nfail-with-body\nmax-time = 120\n"
STAND_IN = """#!{python}
import sys
sys.path.insert(0, {tests!r})
from harness.snippets import stand_in
stand_in({binary!r}, sys.argv[1:])
"""


class Sandbox:
    """One page's directory, ports and server."""

    def __init__(self, binary: Path, home: Path) -> None:
        self.home = home
        self.ran = 0
        self.mark = uuid.uuid4().hex
        self.temp = Path(tempfile.mkdtemp(prefix="snippets-"))
        self.ports = free_ports()
        programs = self.temp / "bin"
        programs.mkdir()
        program = STAND_IN.format(python=sys.executable, tests=str(Path(__file__).parent.parent), binary=str(binary))
        (programs / "jitney").write_text(program)
        (programs / "jitney").chmod(0o755)
        for name in ("python", "python3"):  # No links: an interpreter finds its environment by its path.
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            (programs / name).chmod(0o755)
        (self.temp / ".curlrc").write_text(CURL)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JITNEY_", "TS_"))}
        self.env = {
            **kept,
            **{name: str(self.ports[port]) for name, port in PORTS.items()},
            "PATH": f"{programs}:{Path(sys.executable).parent}:{kept['PATH']}",
            "PYTHONPATH": str(Path(__file__).parent.parent.parent / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "JITNEY_BIN": str(binary),
            "HOME": str(self.temp),
            "CURL_HOME": str(self.temp),
            "TMPDIR": str(self.temp),
            "SNIPPETS_SERVER": str(self.temp / "server"),
            "NO_COLOR": "1",
            processes.MARK: self.mark,
        }

    def here(self, text: str) -> str:
        """The same with this sandbox's ports, and with deadlines that no call misses."""
        for port, free in self.ports.items():
            text = re.sub(rf"(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]):{port}\b", rf"\1:{free}", text)
            text = re.sub(rf"(port[ =]){port}\b", rf"\g<1>{free}", text)
        text = re.sub(r"max_latency_ms=\d+", "max_latency_ms=60000", text)
        return re.sub(r"timeout=[\d.]+", "timeout=60", text)

    def write(self, name: str, text: str) -> None:
        """A file that the page tells to write."""
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.here(text))

    def run(self, command: list[str], *, code: int = 0, ready: bool = True, where: str = "") -> str:
        """What a command prints, or what it complains about if it is to fail; it must end with this code."""
        # Files and no pipes: a server that is started here keeps its stdout.
        self.ran += 1
        out_file, err_file = self.temp / f"stdout-{self.ran}", self.temp / f"stderr-{self.ran}"
        env = self.env | ({} if ready else {"SNIPPETS_UNREADY": "1"})
        with out_file.open("w") as out, err_file.open("w") as err:
            done = subprocess.run(
                command,
                cwd=self.home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=RUN_SECONDS,
                check=False,
            )
        said = out_file.read_text(errors="replace")
        log = self.temp / "server.err"
        told = f"{err_file.read_text()}\n{log.read_text()[-3000:] if log.exists() else ''}"
        assert done.returncode == code, f"{where} ended with {done.returncode}:\n{command[-1]}\n{said}\n{told}"
        return said if code == 0 else err_file.read_text()

    def bash(self, text: str, **options: object) -> str:
        """Runs a block of commands."""
        return self.run(["bash", "-euo", "pipefail", "-c", self.here(text)], **options)

    def python(self, text: str, **options: object) -> str:
        """Runs a program."""
        self.write("snippet.py", text)
        return self.run([sys.executable, "snippet.py"], **options)

    def end(self) -> None:
        """Ends the page's server and checks that nobody stays."""
        end_server(self.temp / "server")
        for process in processes.marked(self.mark):
            os.kill(process, signal.SIGKILL)


def free_ports() -> dict[int, int]:
    """A free port for each of the well-known ones; all are held until all are known."""
    held = {port: socket.create_server(("127.0.0.1", 0)) for port in PORTS.values()}
    ports = {port: listener.getsockname()[1] for port, listener in held.items()}
    for listener in held.values():
        listener.close()
    return ports


def stand_in(binary: str, arguments: list[str]) -> None:
    """What `jitney` is in a sandbox: servers go on in the background, everything else is the binary itself."""
    if arguments[:2] == ["torchserve", "--start"] and "--foreground" not in arguments:
        subprocess.run([binary, *arguments], check=True)
        answers(f"http://127.0.0.1:{os.environ['JITNEY_PORT']}")
        return
    serves = arguments[:1] in (["serve"], ["demo"]) and not {"--help", "-h"} & set(arguments)
    if not serves:
        os.execv(binary, [binary, *arguments])
    record = Path(os.environ["SNIPPETS_SERVER"])
    end_server(record)
    out_file, err_file = record.with_suffix(".out"), record.with_suffix(".err")
    with out_file.open("w") as out, err_file.open("w") as err:
        server = subprocess.Popen([binary, *arguments], stdout=out, stderr=err, start_new_session=True)
    record.write_text(str(server.pid))

    def up() -> bool:
        if server.poll() is not None:
            sys.stderr.write(err_file.read_text())
            sys.exit(server.returncode)
        if "Try:" not in out_file.read_text():
            return False
        address = re.search(r"^Inference +(\S+)$", out_file.read_text(), re.MULTILINE)[1]
        return "SNIPPETS_UNREADY" in os.environ or is_healthy(address)

    until(up, "the server of the page is ready", RUN_SECONDS / 2, poll=0.1)


def answers(address: str) -> None:
    """Waits until a server that went to the background is healthy."""
    until(lambda: is_healthy(address), "the server of the page answers", RUN_SECONDS / 2, poll=0.1)


def is_healthy(address: str) -> bool:
    """Whether a server says that it can be asked."""
    ping = ["curl", "--insecure", "--output", os.devnull, f"{address}/ping"]
    return subprocess.run(ping, capture_output=True).returncode == 0


def end_server(record: Path) -> None:
    """Ends the server that a sandbox started last, as Ctrl-C would."""
    if not record.exists():
        return
    process = int(record.read_text())
    record.unlink()
    try:
        os.kill(process, signal.SIGTERM)
    except ProcessLookupError:
        return
    until(lambda: not processes.is_alive(process), "the server of the page ends", RUN_SECONDS / 2)
