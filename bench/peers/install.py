"""Environments of the servers, outside the repository, each installed once."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable

from .servers import Server
from .servers.base import say

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def home() -> pathlib.Path:
    """Where the environments lie."""
    if chosen := os.environ.get("JITNEY_PEERS_DIR"):
        return pathlib.Path(chosen).absolute()
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "jitney-peers"


def python_of(server: Server) -> pathlib.Path:
    """The Python of a server's environment."""
    return home() / server.environment / "bin" / "python"


def install(servers: Iterable[Server]) -> dict[str, str]:
    """Makes what is missing; what cannot be had, with the reason."""
    missing: dict[str, str] = {}
    base = torch_python()
    for server in servers:
        try:
            environment(server, base)
            server.prepare(python_of(server))
        except RuntimeError as error:
            missing[server.name] = str(error)
            say(f"{server.title}: not here: {error}")
    return missing


def torch_python() -> str:
    """One Python under all of them: one that has torch if there is one."""
    done = subprocess.run([sys.executable, ROOT / "tools/debian.py", "find", "torch"], capture_output=True, text=True)
    if done.returncode:
        say(f"no torch, so no W3 and no TorchServe: {done.stderr.strip()}")
        return sys.executable
    return done.stdout.strip()


def environment(server: Server, base: str) -> None:
    """The virtual environment of a server, with its packages at their versions."""
    make(server.environment, base, server.requirements)


def make(name: str, base: str, requirements: tuple[str, ...]) -> pathlib.Path:
    """A virtual environment by name, made anew if what it should have changed; its Python."""
    folder = home() / name
    note, python = folder / "requirements.json", folder / "bin" / "python"
    wanted = {"python": base, "packages": list(requirements)}
    if note.exists() and json.loads(note.read_text()) == wanted:
        return python
    say(f"installing {name} ...")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([base, "-m", "venv", "--system-site-packages", str(folder)])
    if requirements:
        run([str(folder / "bin" / "pip"), "install", "--quiet", "--no-cache-dir", *requirements])
    note.write_text(json.dumps(wanted))
    return python


def run(command: list[str]) -> None:
    """Runs a command; raises with the last line of what it said."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        told = [row for row in (done.stderr or done.stdout).splitlines() if row.strip()]
        raise RuntimeError(told[-1] if told else f"{command[0]} ended with {done.returncode}")
