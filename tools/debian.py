#!/usr/bin/env python3
"""Programs of Debian that tests use: where they are, and how they get there.

    python3 tools/debian.py find NAME        prints a path, or fails and says what to do
    python3 tools/debian.py install NAME ... installs what is missing, and says first what it will do

Only `install` changes the machine and asks for root: it is `make setup`. Tests call `find`, which changes nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Waits for another installation that runs, as machines do by themselves after a start.
INSTALL = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300")
SYSTEM_PYTHON = "/usr/bin/python3"
TORCH = "import torch, torchvision, PIL.Image, numpy, ensurepip"


def torch() -> str | None:
    """A Python with torch: this one or the system's."""
    for python in (os.environ.get("PYTHON", "python3"), SYSTEM_PYTHON):
        asked = [python, "-c", f"{TORCH}; import sys; print(sys.executable)"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False) if shutil.which(python) else None
        if found and found.returncode == 0:
            return found.stdout.strip()
    return None


def chromium() -> str | None:
    """A Chromium under any of its names."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


def nginx() -> str | None:
    """nginx, which Debian puts where only root looks."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def prometheus() -> str | None:
    """A Prometheus with promtool beside it."""
    return shutil.which("prometheus") if shutil.which("promtool") else None


def postgresql() -> str | None:
    """The newest PostgreSQL, which Debian keeps apart by version."""
    return max(map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres")), default=None)


def qemu() -> str | None:
    """What runs programs for aarch64."""
    return shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


class Program(NamedTuple):
    """One of them: how it is found, and the packages that bring it."""

    find: Callable[[], str | None]
    packages: tuple[str, ...]


PROGRAMS = {
    "torch": Program(torch, ("python3-torch", "python3-torchvision", "python3-pil", "python3-numpy", "python3-venv")),
    "chromium": Program(chromium, ("chromium",)),
    "nginx": Program(nginx, ("nginx",)),
    "prometheus": Program(prometheus, ("prometheus",)),
    "go": Program(lambda: shutil.which("go"), ("golang-go",)),
    "postgresql": Program(postgresql, ("postgresql",)),
    "qemu": Program(qemu, ("qemu-user-static",)),
}


def find(name: str) -> str:
    """The program's path."""
    program = PROGRAMS[name]
    if path := program.find():
        return path
    packages = " ".join(program.packages)
    sys.exit(f"no {name} here: `make setup WITH={name}` installs it (Debian: {packages})")


def install(names: list[str]) -> None:
    """Installs the packages of what is missing."""
    missing = [name for name in names if not PROGRAMS[name].find()]
    if not missing:
        print(f"there already: {', '.join(names)}; nothing to install")
        return
    if not shutil.which("apt-get"):
        sys.exit(f"missing: {', '.join(missing)}; without apt-get you have to install them yourself")
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    packages = [package for name in missing for package in PROGRAMS[name].packages]
    commands = [
        [*as_root, "apt-get", "update", "-qq"],
        [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", *INSTALL, *packages],
    ]
    print(f"missing: {', '.join(missing)}. This runs as root:", *map(shlex.join, commands), sep="\n  ", flush=True)
    for command in commands:
        if status := subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            sys.exit(f"`{shlex.join(command)}` ended with exit code {status}; see above and /var/log/apt/term.log")
    for name in missing:
        find(name)


def main() -> None:
    """Reads the words of the command line."""
    verb, *names = sys.argv[1:] or [""]
    if verb not in ("find", "install") or not names or not set(names) <= set(PROGRAMS):
        sys.exit(f"{__doc__}\nNAME is one of: {', '.join(PROGRAMS)}")
    if verb == "install":
        install(names)
    else:
        print(find(names[0]))


if __name__ == "__main__":
    main()
