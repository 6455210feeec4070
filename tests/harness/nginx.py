"""deploy/nginx/nginx.conf with an nginx that runs it in the foreground, as any user, between free ports."""

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
REPLICAS = ("127.0.0.1:8080", "127.0.0.1:9080")
"""What the example calls its replicas."""
HERE = """daemon off;
pid {folder}/pid;
{user}
"""
TEMPORARY = "\n".join(
    f"  {kind}_temp_path {{folder}}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


class Nginx:
    """`with Nginx(program, ["127.0.0.1:1234", "127.0.0.1:1235"]) as nginx:` passes on what comes to `nginx.url()`."""

    def __init__(self, program: str, replicas: list[str]) -> None:
        self.program, self.replicas = program, replicas

    def __enter__(self) -> Nginx:
        self.folder = tempfile.TemporaryDirectory(prefix="jitney-nginx-")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config, self.log = Path(self.folder.name, "nginx.conf"), Path(self.folder.name, "error.log")
        config.write_text(self._config())
        self.process = subprocess.Popen([self.program, "-e", self.log, "-c", config], stderr=self.log.open("wb"))
        until(self._listens, f"nginx listens on {self.port}")
        return self

    def _config(self) -> str:
        text = EXAMPLE.read_text()
        for placeholder, replica in zip(REPLICAS, self.replicas, strict=True):
            assert text.count(placeholder) == 2, "once for requests and once for sequences"
            text = text.replace(placeholder, replica)
        assert text.count("127.0.0.1:8000") == 1
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        user = "user root;" if os.geteuid() == 0 else ""
        text = re.sub(r"^http \{$", "http {\n" + TEMPORARY, text, flags=re.MULTILINE)
        return (HERE.format(folder="{folder}", user=user) + text).replace("{folder}", self.folder.name)

    def _listens(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError("nginx ended: " + self.log.read_text())
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
