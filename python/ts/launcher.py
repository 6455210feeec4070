"""Starts and stops a server from Python, and registers models, for scripts written against TorchServe.

The server is `jitney torchserve`, found by JITNEY_BIN or on the PATH, or else the `torchserve`
command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from queue import Full, Queue
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requests import Response

MANAGEMENT = "http://localhost:8081"
STARTED = "Model server started"
LINES_KEPT = 1000
REGISTRATION_TIMEOUT = 600

Params = Mapping[str, Any] | Iterable[tuple[str, Any]]


def start(
    model_store: str | None = None,
    snapshot_file: str | None = None,
    no_config_snapshots: bool = False,
    plugin_folder: str | None = None,
    disable_token: bool = False,
    models: str | None = None,
    enable_model_api: bool = False,
) -> Queue[str | None]:
    """Stops a running server and starts one; returns its further lines, None after the last.

    A server that does not start has printed why, and its first further line is None.
    """
    stop()
    options = {"--model-store": model_store, "--plugins-path": plugin_folder, "--ts-config": snapshot_file}
    options["--models"] = models
    flags = {
        "--no-config-snapshots": no_config_snapshots,
        "--disable-token-auth": disable_token,
        "--enable-model-api": enable_model_api,
    }
    command = [*program(), "--start"]
    command += [part for name, value in options.items() if value for part in (name, value)]
    command += [name for name, is_set in flags.items() if is_set]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    wait_until_started(server.stdout)
    lines: Queue[str | None] = Queue(LINES_KEPT)
    threading.Thread(target=follow, args=(server.stdout, lines), daemon=True).start()
    return lines


def stop(wait: bool = True) -> None:
    """Stops the server, if one runs, and waits for its end unless `wait` is false."""
    subprocess.run([*program(), "--stop", *(["--foreground"] if wait else [])], check=False)


def register_model(model_name: str, url: str) -> Response:
    """Registers a model with one worker and waits until it is ready."""
    return register_model_with_params(
        {"model_name": model_name, "url": url, "initial_workers": "1", "synchronous": "true"}
    )


def register_model_with_params(params: Params) -> Response:
    """Registers a model with these query parameters."""
    import requests

    # As it is: requests takes both a mapping and pairs.
    fields: Any = params
    return requests.post(f"{MANAGEMENT}/models", params=fields, timeout=REGISTRATION_TIMEOUT)


def program() -> list[str]:
    """The beginning of the server's command line."""
    beside = os.path.dirname(sys.executable)
    jitney = os.environ.get("JITNEY_BIN") or shutil.which("jitney", path=beside) or shutil.which("jitney")
    if jitney:
        return [jitney, "torchserve"]
    torchserve = shutil.which("torchserve")
    if torchserve is None:
        raise FileNotFoundError("jitney is not installed: it is not on the PATH (JITNEY_BIN names it)")
    return [torchserve]


def wait_until_started(stdout: IO[str]) -> None:
    """Prints the server's lines up to the one that announces the start, or all of them if none does."""
    for line in stdout:
        print(line.rstrip())
        if STARTED in line:
            return


def follow(stdout: IO[str], lines: Queue[str | None]) -> None:
    """Prints the server's lines and keeps the first ones; when the queue is full further lines are dropped."""
    for line in stdout:
        print(line.rstrip())
        try:
            lines.put_nowait(line)
        except Full:
            continue
    lines.put(None)
