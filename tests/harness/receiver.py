"""A receiver of webhooks: keeps what it gets, checks signatures, and answers as the test says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@dataclass(frozen=True)
class Received:
    """A message that came."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """What it says."""
        return json.loads(self.body)

    def is_signed(self, key: bytes = KEY) -> bool:
        """Whether one of its signatures is by this key, as Standard Webhooks says."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return expected in self.headers["webhook-signature"].split(" ")


class Receiver:
    """A server on a free port of the loopback address."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.statuses: list[int] = []
        """What the next messages are answered with; then 204."""
        self.gate = threading.Event()
        """Answers wait until it is set."""
        self.gate.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(self.path, headers, body))
                status = receiver.statuses.pop(0) if receiver.statuses else 204
                receiver.gate.wait()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        """Ends it."""
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
