"""A hub of models on this machine: it answers the requests that `huggingface_hub` sends. Beside it, a cache in the
layout of that library, as a download leaves it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached(home: Path, name: str, folder: Path) -> None:
    """Puts a folder into the cache below `home`, which is what HF_HOME names."""
    kept = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = kept / "snapshots" / COMMIT
    (kept / "blobs").mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(COMMIT)
    for file in folder.rglob("*"):
        if file.is_file():
            content, link = file.read_bytes(), snapshot / file.relative_to(folder)
            blob = kept / "blobs" / hashlib.sha1(content).hexdigest()
            blob.write_bytes(content)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(blob)


class LocalHub(ThreadingHTTPServer):
    """Has one model."""

    daemon_threads = True

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), HubRequest)
        self.name = name
        self.files = {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
        self.sent: list[str] = []
        """The files that were downloaded."""
        self.tokens: set[str] = set()
        """What requests brought to be let in."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubRequest(BaseHTTPRequestHandler):
    """One request."""

    server: LocalHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, hub = urlsplit(self.path).path, self.server
        hub.tokens.add(self.headers.get("Authorization", ""))
        model = f"/api/models/{hub.name}"
        file = path.removeprefix(f"/{hub.name}/resolve/{COMMIT}/")
        if path in (model, f"{model}/revision/main"):
            self.document({"id": hub.name, "sha": COMMIT, "siblings": [{"rfilename": one} for one in hub.files]})
        elif path == f"{model}/tree/{COMMIT}":
            self.document(
                [{"type": "file", "path": one, "size": len(content), "oid": tag(content)}
                 for one, content in hub.files.items()]
            )  # fmt: skip
        elif file in hub.files:
            if self.command == "GET":
                hub.sent.append(file)
            self.reply(200, hub.files[file], **{"ETag": f'"{tag(hub.files[file])}"', "X-Repo-Commit": COMMIT})
        else:
            self.reply(404, b"{}", **{"X-Error-Code": "RepoNotFound"})

    def document(self, told: Any) -> None:
        self.reply(200, json.dumps(told).encode(), **{"Content-Type": "application/json"})

    def reply(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


def tag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def local_hub(name: str, folder: Path) -> Iterator[LocalHub]:
    """A hub with one model, while the test needs it."""
    hub = LocalHub(name, folder)
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
