"""The command `torchserve`, for scripts that call its entry point."""

from __future__ import annotations

import subprocess
import sys

from ts.launcher import program

__all__ = ["start"]


def start() -> None:
    """Runs the server's program with this process's arguments, and ends with its status."""
    sys.exit(subprocess.run([*program(), *sys.argv[1:]], check=False).returncode)


if __name__ == "__main__":
    start()
