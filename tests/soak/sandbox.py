"""Where the server of a soak runs: a small scratch disk that can be filled, and a wall clock that can be set."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

DISK_BYTES = 256 << 20


class SmallDisk:
    """A file system of its own over a directory, seen only by who enters it. Needs no root, only user namespaces."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        mount = f'mount -t tmpfs -o size={DISK_BYTES} none "$1" && echo mounted && exec sleep infinity'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(directory)]
        self.keeper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        said = self.keeper.stdout.readline() if self.keeper.stdout else ""
        assert said == "mounted\n", "a scratch disk of its own needs user namespaces (sysctl user.max_user_namespaces)"

    @property
    def enter(self) -> list[str]:
        """The command that runs another one with this disk, in the same process."""
        pid = str(self.keeper.pid)
        return ["nsenter", "--target", pid, "--user", "--mount", "--preserve-credentials", f"--wd={self.directory}"]

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Takes all that is free, and gives it back."""
        ballast = Path(f"/proc/{self.keeper.pid}/root{self.directory}/ballast")
        try:
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))
            yield
        finally:
            ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """The disk goes with the last process that sees it."""
        self.keeper.kill()
        self.keeper.wait()


class WallClock:
    """The wall clock as libfaketime shows it; the monotonic clock runs on, as in life."""

    def __init__(self, library: Path, file: Path) -> None:
        self.file = file
        self.step(0)
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    def step(self, seconds: int) -> None:
        """Sets the clock this far from the truth."""
        beside = self.file.with_suffix(".new")
        beside.write_text(f"{seconds:+d}\n")
        os.replace(beside, self.file)
