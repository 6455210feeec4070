"""BentoML itself, in an environment of its own: the original of what jitney.compat stands for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from harness.wait import until

CHANGED = ("import bentoml\n", "from jitney.compat import bentoml\n")
"""The only line that differs."""


def copy_application(source: Path, target: Path, moved: bool) -> None:
    """Copies all files of the applications; `moved` ones have their import line changed."""
    target.mkdir(parents=True)
    for file in source.iterdir():
        if not file.is_file():
            continue
        text = file.read_text()
        assert file.suffix != ".py" or text.count(CHANGED[0]) == 1, file
        (target / file.name).write_text(text.replace(*CHANGED) if moved else text)


@contextmanager
def serve(bin_directory: Path, home: Path, target: str, env: dict[str, str]) -> Iterator[str]:
    """Runs `bentoml serve` in a directory; gives its URL when it is ready."""
    port = _free_port()
    with (home / "bentoml.log").open("wb") as log:
        process = subprocess.Popen(
            [bin_directory / "bentoml", "serve", target, "--port", str(port), "--host", "127.0.0.1"],
            cwd=home,
            env={**os.environ, **env, "PATH": f"{bin_directory}:{os.environ['PATH']}"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: process.poll() is not None or _is_ready(url), "bentoml is ready", poll=0.2)
        assert process.poll() is None, (home / "bentoml.log").read_text()[-4000:]
        yield url
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends it and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
            return


def _is_ready(url: str) -> bool:
    """Whether it says so. A service behind middleware that lets nobody in is as ready as it gets."""
    try:
        return requests.get(f"{url}/readyz", timeout=10).status_code < 500
    except requests.RequestException:
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
