#!/usr/bin/env python3
"""Makes a Python environment of tests/pyproject.toml as tests/uv.lock says: a group of the lock is one environment.

    python3 tools/environment.py NAME [--python PYTHON] [--beside-system]
    python3 tools/environment.py --lock

The package index, certificates and time limits are those of pip on this machine: the lock names versions and hashes,
and files come from where pip would get them. uv's cache is shared, so a second environment costs links.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".tools/uv/bin/uv"
PROJECT = ROOT / "tests"

PIP_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
"""What pip is told here, and how uv wants to hear it."""

SYSTEM_PACKAGES = ("numpy",)
"""Left to the system beside whose packages an environment stands: its torch was built for that one."""


@functools.cache
def settings() -> dict[str, str]:
    """The environment for uv: what pip is told on this machine, unless uv is told something itself."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    env = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        if uv_name := PIP_SETTINGS.get(name.rpartition(".")[2]):
            env[uv_name] = value.strip("'\"")
    # Byte code lies beside the libraries, where the workers that tests start look for it.
    return {**env, **{name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}}


def uv(*arguments: str | Path, env: dict[str, str] | None = None) -> None:
    """Runs uv, and ends with its status if it fails."""
    ran = subprocess.run([UV, "--quiet", *arguments], env=env or settings(), check=False)
    if ran.returncode != 0:
        sys.exit(ran.returncode)


def lock() -> None:
    """Solves the lock anew. It is for everybody, so it names the public index and no place of this machine."""
    places = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS")
    env = {name: value for name, value in settings().items() if name not in places}
    uv("lock", "--project", PROJECT, "--upgrade", env=env)


def make(name: str, python: str, beside_system: bool) -> None:
    """Makes the environment, or brings it to what the lock says now."""
    path = ROOT / ".venv" / name
    kept = path.is_dir() and f"include-system-site-packages = {str(beside_system).lower()}" in config(path)
    if not kept:
        flags = ["--system-site-packages"] if beside_system else []
        uv("venv", "--clear", "--seed", "--python", python, *flags, path)
    listed = path / "requirements.txt"
    left_out = [word for one in SYSTEM_PACKAGES if beside_system for word in ("--no-emit-package", one)]
    uv("export", "--project", PROJECT, "--frozen", "--no-header", "--only-group", name, *left_out, "-o", listed)
    uv("pip", "sync", "--python", path, "--require-hashes", "--compile-bytecode", listed)


def config(path: Path) -> str:
    """What an environment says of itself."""
    file = path / "pyvenv.cfg"
    return file.read_text() if file.is_file() else ""


def main() -> None:
    """Reads the words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="a group of tests/pyproject.toml")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--beside-system", action="store_true", help="with the packages of that Python's system")
    parser.add_argument("--lock", action="store_true", help="solve tests/uv.lock anew")
    flags = parser.parse_args()
    if flags.lock:
        lock()
    if flags.name:
        make(flags.name, flags.python, flags.beside_system)


if __name__ == "__main__":
    main()
