"""`jitney.run`: a server for one definition, as a child of this program, and a handle of its model.

The server runs the installed `jitney` program with this very interpreter, listens on free ports of
this machine only, and ends with this process, however that ends: it holds the other end of a pipe.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from jitney.address import read_url
from jitney.client import Client
from jitney.definition import Definition, define
from jitney.errors import DefinitionError, RemoteError
from jitney.handle.connections import Manager
from jitney.handle.handle import Handle
from jitney.handle.session import Session
from jitney.program import find_program

FLAGS = ("port", "management-port", "metrics-port", "grpc-port", "grpc-management-port")
ADDRESS = re.compile(r"^(Inference|Management) +(\S+)$")
READY = "Try: "
END_SECONDS = 30.0
LOAD_SECONDS = 24 * 3600.0
"""Longer than the server's own start-up timeout, which ends the wait first."""
WORKER_PACKAGES = ("jitney", "jitney.worker")


def run(target: Any, *, port: int = 0, program: str | os.PathLike[str] | None = None) -> RunningModel:
    """Serves a definition beside this program and returns a handle of it, once its workers are loaded.

    It must be importable, since workers are processes of their own: define it in a file, and start
    it below `if __name__ == "__main__":` if that is the file which runs. `port` is the one for HTTP
    (a free one by default; see `url`); `program` is the `jitney` program to use.
    """
    _check_not_in_worker()
    definition = define(target)
    spec, directory = locate_source(definition)
    command = [find_program(program), "serve", spec, "--python", sys.executable, "--until-eof", "--debug-errors"]
    for flag in FLAGS:
        command += [f"--{flag}", str(port if flag == "port" else 0)]
    process = subprocess.Popen(command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    addresses = _addresses(process.stdout)
    if "Inference" not in addresses:
        code = process.wait()
        raise RuntimeError(f"the server did not start (status {code}); see its output above")
    running = RunningModel(definition.name, process, addresses)
    try:
        _await_workers(definition.name, running.management_url)
    except BaseException:
        running.close()
        raise
    return running


class RunningModel(Handle):
    """A handle whose server belongs to it. Close it, or use it in a `with`; it ends with the process."""

    def __init__(self, name: str, process: subprocess.Popen[str], addresses: dict[str, str]) -> None:
        session = Session(read_url(addresses["Inference"]), Manager(addresses["Management"]))
        super().__init__(session, name)
        self.url = addresses["Inference"]
        """The address of the model over HTTP."""
        self.management_url = addresses["Management"]
        """The address of the management API."""
        self._process = process
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the server after it has answered what it has accepted."""
        atexit.unregister(self.close)
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._connections.close()

    def __enter__(self) -> RunningModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def locate_source(definition: Definition) -> tuple[str, str]:
    """`module:object` of a definition and the directory to import it from."""
    target = definition.target
    named = target if hasattr(target, "__qualname__") else None
    if named is None:
        raise DefinitionError(f"{target!r} has no name to import it by; give jitney.run a function or a class")
    module_name, path = named.__module__, named.__qualname__
    if "<" in path:
        raise DefinitionError(f"{path} is defined inside a function; workers can import it only from a module")
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None:
        raise DefinitionError(
            f"{path} is defined in a notebook or console, where workers cannot import it; put it into a file"
        )
    source = Path(file).resolve()
    if module_name == "__main__":
        return f"{source.name}:{path}", str(source.parent)
    depth = module_name.count(".") + (source.name == "__init__.py")
    return f"{module_name}:{path}", str(source.parents[depth])


def _check_not_in_worker() -> None:
    """Raises inside a worker: it imports the main file, and would start a server of its own."""
    main = sys.modules.get("__main__")
    if getattr(main, "__package__", None) in WORKER_PACKAGES:
        raise RuntimeError('put jitney.run below `if __name__ == "__main__":`, since workers import this file')


def _await_workers(name: str, management_url: str) -> None:
    """Waits until the workers are loaded; an earlier call would spend its deadline waiting."""
    with Client(management_url, timeout=LOAD_SECONDS) as client:
        model = client.describe(name)[0]
        try:
            client.scale(name, min_worker=model["minWorkers"], max_worker=model["maxWorkers"], synchronous=True)
        except RemoteError as error:
            raise RuntimeError(f"{name} did not load; see the server's output above ({error})") from None


def _addresses(lines: IO[str]) -> dict[str, str]:
    """The server's addresses, once it is ready; its later output is discarded."""
    found: dict[str, str] = {}
    for line in lines:
        match = ADDRESS.match(line.rstrip())
        if match:
            found[match[1]] = match[2]
        if line.startswith(READY):
            break
    else:
        return {}
    threading.Thread(target=_discard, args=(lines,), name="jitney-output", daemon=True).start()
    return found


def _discard(lines: IO[str]) -> None:
    for _ in lines:
        pass
