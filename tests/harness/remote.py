"""Another machine with files on it: HTTP with ranges and ETags, paths as S3 has them, and a cable that can break."""

from __future__ import annotations

import hashlib
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class RemoteFiles:
    """The files by path, what was asked for them, and what is to go wrong."""

    files: dict[str, bytes] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    """After how many bytes of the body each of the next connections breaks."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The headers of every request, with small letters."""
    after_break: dict[str, bytes] = field(default_factory=dict)
    """What the files become when a connection has broken."""
    redirects: dict[str, str] = field(default_factory=dict)
    """Paths that lead to other URLs."""
    base: str = ""

    def tag(self, path: str) -> str:
        """The ETag of a file."""
        return f'"{hashlib.md5(self.files[path]).hexdigest()}"'


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    protocol_version = "HTTP/1.1"
    remote_files: RemoteFiles

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        """A file, the rest of a file, or the news that it has changed."""
        there = self.remote_files
        path = self.path.split("?")[0]
        there.asked.append({name.lower(): value for name, value in self.headers.items()})
        if path in there.redirects:
            self.send_response(302)
            self.send_header("Location", there.redirects[path])
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if path not in there.files:
            return self.head(404, 0)
        content, tag = there.files[path], there.tag(path)
        if self.headers.get("If-Match") not in (None, tag):
            return self.head(412, 0)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and self.headers.get("If-Range") in (None, tag):
            first, last = int(wanted[1]), int(wanted[2] or len(content) - 1)
            self.head(206, last + 1 - first, tag, f"bytes {first}-{last}/{len(content)}")
            return self.body(content[first : last + 1])
        self.head(200, len(content), tag)
        return self.body(content)

    def head(self, status: int, length: int, tag: str | None = None, content_range: str | None = None) -> None:
        """Status and headers."""
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        for name, value in [("ETag", tag), ("Content-Range", content_range)]:
            if value:
                self.send_header(name, value)
        self.end_headers()

    def body(self, content: bytes) -> None:
        """The content, or as much of it as passes before the cable breaks."""
        there = self.remote_files
        passes = there.breaks.pop(0) if there.breaks else len(content)
        self.wfile.write(content[:passes])
        if passes < len(content):
            self.close_connection = True
            there.files.update(there.after_break)


@contextmanager
def remote_files() -> Iterator[RemoteFiles]:
    """The machine, for as long as the block lasts."""
    there = RemoteFiles()
    handler = type("Bound", (Handler,), {"remote_files": there})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    there.base = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield there
    server.shutdown()
    server.server_close()
