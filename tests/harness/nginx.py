"""The examples of deploy/nginx and deploy/envoy, with programs that run them in the foreground between free ports."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from pathlib import Path

from harness.package import ROOT
from harness.wait import until

EXAMPLE = ROOT / "deploy" / "nginx" / "nginx.conf"
BY_MODEL = EXAMPLE.with_name("by-model.conf")
ENVOY_BY_MODEL = ROOT / "deploy" / "envoy" / "by-model.yaml"
PORTS = (8080, 9080, 10080)
"""Where the examples have their replicas."""
HERE = """daemon off;
pid {folder}/pid;
{user}
"""
TEMPORARY = "\n".join(
    f"  {kind}_temp_path {{folder}}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


class Nginx:
    """`with Nginx(program, ["127.0.0.1:1234", "127.0.0.1:1235"]) as nginx:` passes on what comes to `nginx.url()`."""

    def __init__(self, program: str, replicas: list[str], example: Path = EXAMPLE) -> None:
        self.program, self.replicas, self.example = program, replicas, example

    def __enter__(self) -> Nginx:
        self.folder = tempfile.TemporaryDirectory(prefix="jitney-nginx-")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = Path(self.folder.name, "error.log")
        config = Path(self.folder.name, self.example.name)
        config.write_text(self._config())
        self.process = subprocess.Popen([self.program, *self._arguments(config)], stderr=self.log.open("wb"))
        until(self._listens, f"the balancer listens on {self.port}")
        return self

    def _arguments(self, config: Path) -> list[str | Path]:
        return ["-e", self.log, "-c", config]

    def _config(self) -> str:
        text = self.example.read_text()
        for port, replica in zip(PORTS, self.replicas):
            assert f"127.0.0.1:{port} " in text
            text = text.replace(f"127.0.0.1:{port} ", f"{replica} ")
        assert text.count("127.0.0.1:8000") == 1
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        user = "user root;" if os.geteuid() == 0 else ""
        text = re.sub(r"^http \{$", "http {\n" + TEMPORARY, text, flags=re.MULTILINE)
        return (HERE.format(folder="{folder}", user=user) + text).replace("{folder}", self.folder.name)

    def _listens(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError("the balancer ended: " + self.log.read_text())
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        self.folder.cleanup()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self.port

    def url(self, path: str) -> str:
        """An address behind it."""
        return f"http://127.0.0.1:{self.port}{path}"


class Envoy(Nginx):
    """The same with Envoy."""

    def _arguments(self, config: Path) -> list[str | Path]:
        return ["-c", config, "--disable-hot-restart", "--concurrency", "2"]

    def _config(self) -> str:
        text = self.example.read_text()
        ports = [int(replica.rpartition(":")[2]) for replica in self.replicas]
        for old, new in zip((8000, *PORTS), (self.port, *ports), strict=True):
            assert text.count(f"port_value: {old}}}") == 1
            text = text.replace(f"port_value: {old}}}", f"port_value: {new}}}")
        return text
