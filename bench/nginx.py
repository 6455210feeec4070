"""An nginx in front of one or more servers, with connections that it keeps: in the foreground, as any user, on a free port."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import tempfile
from collections.abc import Sequence

from harness.wait import until

KEPT = 64
"""Free connections to the server that it keeps; a request that finds none opens one."""

CONFIG = """\
{user}
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 100000000;
  upstream model_server {{
{servers}
    keepalive {kept};
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://model_server;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""


class Nginx:
    """`with Nginx("127.0.0.1:8080") as nginx:` passes what comes to `nginx.url()` on."""

    def __init__(self, *servers: str, under: Sequence[str] = ()) -> None:
        self.servers, self.under = servers, under

    def __enter__(self) -> Nginx:
        self.folder = tempfile.TemporaryDirectory(prefix="jitney-nginx-")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        user = "user root;" if os.geteuid() == 0 else ""
        config = pathlib.Path(self.folder.name, "nginx.conf")
        servers = "\n".join(f"    server {server};" for server in self.servers)
        config.write_text(CONFIG.format(user=user, folder=self.folder.name, servers=servers, kept=KEPT, port=self.port))
        log = pathlib.Path(self.folder.name, "error.log")
        self.process = subprocess.Popen([*self.under, "nginx", "-e", log, "-c", config], stderr=subprocess.DEVNULL)
        until(self._listens, f"nginx listens on {self.port}", 10)
        return self

    def _listens(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError("nginx ended: " + pathlib.Path(self.folder.name, "error.log").read_text())
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        self.folder.cleanup()

    def url(self, path: str) -> str:
        """An address behind it."""
        return f"http://127.0.0.1:{self.port}{path}"
