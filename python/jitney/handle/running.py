"""A server as Python sees it: `jitney.connect` gives a session, `model` a handle of what it serves; and what
`jitney.run` returns, a handle whose server belongs to it.

That server is a child process that ends with this one, however that ends: it holds the other end of a pipe. Its log
goes where this program's messages go; in a notebook, where the output of a child may get lost, it is read here and
printed into the cell.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Any

from jitney.definition.decorators import P, R
from jitney.definition.definition import Definition, Endpoint
from jitney.handle.connections import Connections, Manager
from jitney.handle.handle import Handle
from jitney.handle.job import Job
from jitney.wire.address import read_url

ADDRESS = re.compile(r"^(Inference|Management) +(\S+)$")
READY = "Try: "
END_SECONDS = 30.0


class ServerProcess:
    """A server that was started, and the private directory that it reads, if there is one."""

    def __init__(self, command: Sequence[str], cwd: str, directory: str, *, of_cells: bool) -> None:
        """Starts it. Where cells run, an interrupt ends a cell and not the server, and its log is printed here."""
        self._directory = directory
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if of_cells else None,
            text=True,
            errors="replace",
            start_new_session=of_cells,
        )
        self._reader = _in_background(_show, self._process.stderr) if of_cells else None
        try:
            self.addresses = self._wait_for_addresses()
        except BaseException:
            self.close()
            raise

    def _wait_for_addresses(self) -> dict[str, str]:
        assert self._process.stdout is not None
        addresses = _addresses(self._process.stdout)
        if "Inference" not in addresses:
            status = self._process.wait()
            raise RuntimeError(f"the server did not start (status {status}); see its output above")
        _in_background(_discard, self._process.stdout)
        return addresses

    def close(self) -> None:
        """Ends the server after it has answered what it has accepted."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with contextlib.suppress(OSError):
                stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join(END_SECONDS)
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)


def _in_background(work: Callable[[IO[str]], None], lines: IO[str] | None) -> threading.Thread:
    thread = threading.Thread(target=work, args=(lines,), name="jitney-output", daemon=True)
    thread.start()
    return thread


def _addresses(lines: IO[str]) -> dict[str, str]:
    """The server's addresses, once it is ready."""
    found: dict[str, str] = {}
    for line in lines:
        match = ADDRESS.match(line.rstrip())
        if match:
            found[match[1]] = match[2]
        if line.startswith(READY):
            return found
    return {}


def _show(lines: IO[str]) -> None:
    for line in lines:
        with contextlib.suppress(Exception):  # The program may have closed its own stderr.
            sys.stderr.write(line)


def _discard(lines: IO[str]) -> None:
    for _ in lines:
        pass


def connect(
    url: str,
    *,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    management_url: str | None = None,
    management_token: str | None = None,
) -> Session:
    """A server's inference address, as `http://127.0.0.1:8080`; nothing is sent before the first call.

    `token` is the inference key of a server that asks for one. `tls` is for `https://` addresses
    whose certificate the system does not know. `unix:/path` is a socket's file. `management_url` is
    for `Handle.configure`.
    """
    manager = Manager(management_url, management_token, tls) if management_url else None
    return Session(read_url(url, token, tls), manager)


class Session(Connections):
    """A server's models. Close it, or use it in a `with`, to end its connections."""

    def model(self, name: str, version: str = "", *, encoding: str = "value") -> Handle:
        """A handle of a model, in its default version unless one is named.

        `encoding` is how a call's one argument is sent to models that are not written with this
        package: as "json" or as plain "bytes".
        """
        return Handle(self, name, version, encoding=encoding)

    def job(self, job_id: str) -> Job[Any]:
        """A job that was submitted before, by this program or another one with the same key."""
        return Job(self.client(), job_id)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await asyncio.sleep(0)  # The running loop's own connection ends in its next turn.


OF_CELLS: dict[str, RunningModel[..., Any]] = {}
"""The models that cells started, by name: whoever runs the cell again means the same one."""


class RunningModel(Handle[P, R]):
    """A handle whose server belongs to it. Close it, or use it in a `with`; it ends with the process."""

    def __init__(self, definition: Definition, server: ServerProcess) -> None:
        self.url = server.addresses["Inference"]
        """The address of the model over HTTP."""
        self.management_url = server.addresses["Management"]
        """The address of the management API."""
        session = Session(read_url(self.url), Manager(self.management_url))
        super().__init__(session, definition.name, endpoints={one.name: _written(one) for one in definition.endpoints})
        self._server = server
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the server after it has answered what it has accepted."""
        atexit.unregister(self.close)
        if OF_CELLS.get(self._names[0]) is self:
            del OF_CELLS[self._names[0]]
        self._server.close()
        self._connections.close()

    def __jitney_url__(self) -> str:
        """The address of the model for `jitney.infer`."""
        return f"{self.url}/{self._names[0]}"

    def __repr__(self) -> str:
        return f"<jitney.RunningModel {self._names[0]} at {self.url}: {', '.join(self._endpoints.values())}>"

    def __enter__(self) -> RunningModel[P, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _written(endpoint: Endpoint) -> str:
    """How an endpoint is called."""
    return f"{endpoint.name}({', '.join(param.name for param in endpoint.params if not param.is_request)})"
