"""`python -m jitney.worker`: the process the server starts for one worker of a model.

The address and a one-time token come by environment and are removed from it at once, so that
neither the handler nor its children see them. Exit status: 0 after STOP or when the server is
gone, 1 when the model could not be loaded or the protocol was broken, 64 when started by hand.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import socket
import sys
import threading
import traceback

from jitney.torchserve.metrics import past_logging
from jitney.worker.loop import serve
from jitney.worker.process_group import FD_VARIABLE, follow_parent

SOCKET_VARIABLE = "JITNEY_WORKER_SOCKET"
TOKEN_VARIABLE = "JITNEY_WORKER_TOKEN"
EXIT_USAGE = 64
EXIT_GRACE_SECONDS = 5.0
"""How long threads and exit hooks a handler left behind may keep a finished worker alive."""


def main() -> int:
    """Connects, serves, and returns the exit status."""
    end_with_parent()
    fd = os.environ.pop(FD_VARIABLE, None)
    address = os.environ.pop(SOCKET_VARIABLE, None) or fd
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not address:
        print(f"jitney.worker is started by the server: {SOCKET_VARIABLE} is not set", file=sys.stderr)
        return EXIT_USAGE
    prepare_output()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if fd:
        follow_parent()
    sock = socket.socket(fileno=int(fd)) if fd else connect(address)
    # A child that the handler forks must not hold the stream open: the server sees by its end that the worker exited.
    os.register_at_fork(after_in_child=sock.close)
    status = 1
    try:
        with contextlib.closing(sock):
            status = serve(sock, token)
    except SystemExit as error:
        print(f"the handler ended its process: sys.exit({error.code!r})")
        raise
    except Exception:
        traceback.print_exc(file=sys.stdout)
    finally:
        exit_after_grace(status)
    return status


def prepare_output() -> None:
    """Line-buffered UTF-8 streams, plain log lines and metrics on stdout, whatever the locale is."""
    past_logging()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")


def connect(address: str) -> socket.socket:
    """Connects to `tcp:host:port` or to the Unix socket at a path."""
    if not address.startswith("tcp:"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(address)
        return sock
    host, _, port = address[len("tcp:") :].rpartition(":")
    sock = socket.create_connection((host.strip("[]"), int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def exit_after_grace(status: int) -> None:
    """Makes sure the process ends even if the handler left a thread running."""
    timer = threading.Timer(EXIT_GRACE_SECONDS, os._exit, (status,))
    timer.daemon = True
    timer.start()


PARENT_VARIABLE = "JITNEY_WORKER_PARENT"
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Makes the kernel end this process with its server, where the kernel can.

    The server's guard kills the whole process group of a worker when the server is gone. This is for when the guard was
    killed too: the kernel sends SIGKILL when the thread ends that started the process, which is one that lives as long
    as the server. It reaches the worker also while a handler holds the interpreter.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):  # A Python without ctypes, a libc without prctl.
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        os._exit(1)  # It had ended before it was asked for.


if __name__ == "__main__":
    sys.exit(main())
