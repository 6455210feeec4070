"""`python -m jitney.worker.fork_server MODULE…`: imports modules once, and forks itself into workers.

The server starts it where `preload` names modules. Its standard input is a socket to the server; the messages are those
of `process/fork_server.rs`. A worker gets the environment, the folder and the search path that it would have as
`python -m jitney.worker`, and from then on is one.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.machinery
import os
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from jitney.torchserve.threads import WAITING_VARIABLE
from jitney.worker.__main__ import end_with_parent
from jitney.worker.__main__ import main as run_worker

LENGTH = struct.Struct("<I")
ORDER_MAX = 1 << 24
FORK, REAP = b"F", b"R"
PATH_VARIABLE = "PYTHONPATH"
DEFINED = "jitney.worker.defined"
"""What workers of definitions import of ours; the rest comes with this module."""


class ForkOrder(NamedTuple):
    """What a worker gets."""

    folder: str
    environment: dict[bytes, bytes]

    @classmethod
    def decode(cls, text: bytes) -> ForkOrder:
        """The folder and the variables, with zeros between them."""
        folder, *variables = text.split(b"\0")
        pairs = (variable.partition(b"=") for variable in variables)
        return cls(os.fsdecode(folder), {name: value for name, _, value in pairs})

    def path(self) -> list[str]:
        """Where the worker looks for modules before it looks where this process does."""
        found = os.fsdecode(self.environment.get(os.fsencode(PATH_VARIABLE), b""))
        return found.split(":") if found else []


class ForkServer:
    """Answers orders, one after the other."""

    def __init__(self, channel: socket.socket, unfit: str | None) -> None:
        self._channel = channel
        self._unfit = unfit
        """Why nothing can be forked."""
        own = os.environ.get(PATH_VARIABLE, "")
        self._own_path = own.split(":") if own else []

    def run(self) -> ForkOrder | None:
        """Forks until the server is gone (None); in a new process returns its order."""
        while True:
            message, files = self._receive()
            if not message:
                return None
            kind, text = message[:1], message[1:]
            try:
                if kind == REAP:
                    self._send(str(os.waitpid(int(text), 0)[1]))
                    continue
                order = ForkOrder.decode(text)
                why = self._objection(order)
                if self._unfit is not None:
                    self._send(f"never {self._unfit}")
                elif why is not None:
                    self._send(f"no {why}")
                elif self._fork(files):
                    return order
            finally:
                for file in files:
                    os.close(file)

    def _fork(self, files: Sequence[int]) -> bool:
        """Whether this is the new process."""
        process = os.fork()
        # Both do it: neither may go on before it is done.
        with contextlib.suppress(OSError):
            os.setpgid(process, process)
        if process:
            self._send(str(process))
            return False
        self._channel.close()
        for file, stream in zip(files, (1, 2), strict=True):
            os.dup2(file, stream)
        return True

    def _objection(self, order: ForkOrder) -> str | None:
        """Why a worker cannot be made from this process: its model brings a module of its own that is imported here,
        by name or because another one needs it."""
        for folder in order.path():
            if folder in self._own_path:
                continue
            for name in sorted(_stems(folder) & sys.modules.keys()):
                found = importlib.machinery.PathFinder.find_spec(name, [folder])
                if found is not None and found.loader is not None:
                    return f"its model has a module {name} of its own, in {folder}"
        return None

    def _receive(self) -> tuple[bytes, list[int]]:
        """The next order and its files; nothing at the end."""
        begin, files, _, _ = socket.recv_fds(self._channel, LENGTH.size, 2)
        while begin and len(begin) < LENGTH.size:
            begin += self._channel.recv(LENGTH.size - len(begin))
        if not begin:
            return b"", files
        (length,) = LENGTH.unpack(begin)
        if length > ORDER_MAX:
            raise ValueError(f"an order of {length} bytes")
        text = bytearray()
        while len(text) < length:
            piece = self._channel.recv(length - len(text))
            if not piece:
                return b"", files
            text += piece
        return bytes(text), files

    def _send(self, text: str) -> None:
        content = text.encode()
        self._channel.sendall(LENGTH.pack(len(content)) + content)


def _stems(folder: str) -> set[str]:
    """What modules in a folder could be called."""
    with contextlib.suppress(OSError):
        return {name.partition(".")[0] for name in os.listdir(folder)}
    return set()


def main() -> int:
    """Imports, forks, and in a worker serves."""
    end_with_parent()
    channel = socket.socket(fileno=os.dup(0))
    close_input()
    os.environ.setdefault(WAITING_VARIABLE, "PASSIVE")
    importlib.import_module(DEFINED)
    modules, why = imported(sys.argv[1:]), unfit()
    if why is None:
        print(f"imported once for all workers: {', '.join(modules) or 'nothing'}")
    gc.collect()
    gc.freeze()  # A collector that touches what is shared would copy it.
    # Libraries' own threads, which they stop and start around a fork, are no reason to warn.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    order = ForkServer(channel, why).run()
    if order is None:
        return 0
    become(order)
    return run_worker()


def imported(names: Sequence[str]) -> list[str]:
    """The modules that could be imported."""
    found = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"{name} cannot be imported: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            found.append(name)
    return found


def unfit() -> str | None:
    """What has happened while modules were imported that a fork would break."""
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if threads:
        return f"an import has started threads ({', '.join(threads)}); take that module out of preload"
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return "an import has used a GPU; take that module out of preload"
    return None


def close_input() -> None:
    """An input that is at its end."""
    reader, writer = os.pipe()
    os.dup2(reader, 0)
    os.close(reader)
    os.close(writer)


def become(order: ForkOrder) -> None:
    """Makes this process the worker that was ordered."""
    own = os.environ.get(PATH_VARIABLE, "")
    # First comes the folder in which the process was started, then the variable's, then what every interpreter has.
    rest = sys.path[1 + (len(own.split(":")) if own else 0) :]
    os.environ.clear()
    os.environb.update(order.environment)
    os.chdir(order.folder)
    sys.path[:] = [order.folder, *order.path(), *rest]
    sys.argv[1:] = []
    importlib.invalidate_caches()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # Else all workers would draw the same numbers.


if __name__ == "__main__":
    sys.exit(main())
