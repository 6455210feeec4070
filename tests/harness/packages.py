"""The Python packages of the program under test, unpacked and compiled once for all servers of a run. Otherwise every
worker of every server would compile them anew, which is a third of what the tests cost."""

from __future__ import annotations

import compileall
import fcntl
import os
import tempfile
from pathlib import Path

FOLDER = "TEST_PACKAGE_CACHE"
"""Names the folder. Where it is not set, servers unpack their packages at every start, as they do by default."""


def keep() -> None:
    """From now on they are kept below the home of the tests, which leaves with them. Processes that run tests beside
    each other share those of the one that started them."""
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="packages-", dir=os.environ["HOME"])


def kept() -> str | None:
    """The folder, if they are kept."""
    return os.environ.get(FOLDER)


def compile_new() -> None:
    """Compiles what a server has unpacked, since what tests start writes no byte code."""
    folder = Path(kept() or os.devnull)
    for unpacked in folder.glob("packages-*"):
        done = folder / f"compiled-{unpacked.name}"
        if done.exists():
            continue
        with open(folder / "lock", "w") as lock:  # One process does it, the others wait for it.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                compileall.compile_dir(unpacked, quiet=1)
                done.touch()
