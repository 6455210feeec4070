"""The clients of the tests: curl as users run it, raw sockets for what no decent client sends, threads."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

SOCKET_SECONDS = 120.0


@dataclass
class Reply:
    """One HTTP answer, with the names that `requests` gives its parts."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.content)


def curl(*arguments: str | Path, cwd: Path | None = None) -> Reply:
    """Runs curl and returns its answer, or the last one if it asked several times."""
    return curl_all(*arguments, cwd=cwd)[-1]


def curl_all(*arguments: str | Path, cwd: Path | None = None) -> list[Reply]:
    """Runs curl and returns every answer."""
    command = ["curl", "--silent", "--show-error", "--max-time", "120", "--include", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=130, check=False)
    assert done.returncode == 0, f"curl exited with {done.returncode}: {done.stderr.decode()}"
    return parse(done.stdout)


def parse(answers: bytes) -> list[Reply]:
    """Splits answers that follow each other, as in a stream of a keep-alive connection."""
    replies = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        body, answers = rest[:length], rest[length:]
        status = int(status_line.split()[1])
        if status != 100:
            replies.append(Reply(status, headers, body))
    return replies


def raw(address: tuple[str, int], *pieces: bytes) -> bytes:
    """Sends bytes as they are and returns all that comes until the server closes."""
    with socket.create_connection(address, timeout=SOCKET_SECONDS) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the end; a reset counts as an end."""
    answer = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return answer
        if not piece:
            return answer
        answer += piece


def request(path: str, body: bytes = b"", *headers: str, method: str = "POST") -> bytes:
    """The bytes of a plain request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Runs the calls at the same time; their results come in the order of the calls."""
    with ThreadPoolExecutor(max_workers=max(1, len(calls))) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def later(call: Callable[[], T]) -> Future[T]:
    """Starts a call in the background."""
    pool = ThreadPoolExecutor(max_workers=1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future
