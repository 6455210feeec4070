"""`jitney.run`: a server for one definition, as a child of this program, and a handle of its model.

The server runs the installed `jitney` program with this very interpreter, listens on free ports of
this machine only, and ends with this process, however that ends: it holds the other end of a pipe. Its
arguments are flags of `jitney serve`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, overload

from jitney.call.errors import RemoteError
from jitney.client import Client
from jitney.definition.decorators import BatchFunction, P, R
from jitney.definition.definition import Definition, define
from jitney.definition.options import DEVICES, NAME
from jitney.handle.handle import Handle
from jitney.handle.running import OF_CELLS, RunningModel, ServerProcess
from jitney.machine.process import find_program, is_interactive, runs_this_package
from jitney.packing import by_value

if TYPE_CHECKING:
    from typing_extensions import Unpack

QUIET = "warning"
"""The log level where cells run."""
NO_PRINTS = "jitney::worker_output=off"


Config = str | os.PathLike[str] | Mapping[str, Any] | None
"""A `jitney.yaml`, or what stands in one."""


class RunOptions(TypedDict, total=False):
    """What `jitney.run` takes besides the target."""

    name: str | None
    workers: int | None
    device: str | Sequence[int] | None
    python: str | os.PathLike[str] | None
    log_level: str | None
    prints: bool
    ray: str | bool | None
    port: int
    program: str | os.PathLike[str] | None
    config: Config


def worker_flags(workers: int | None, device: str | Sequence[int] | None, ray: str | bool | None) -> list[str]:
    """What the command line says about workers."""
    flags = [] if workers is None else ["--workers", str(workers)]
    if isinstance(device, str):
        kind, _, number = device.partition(":")
        if kind not in DEVICES or (number and (not number.isdigit() or kind == "cpu")):
            raise ValueError(f'device must be "cpu", "gpu", "cuda:1" or numbers of GPUs as in [0, 1], not {device!r}')
        flags += ["--device-type", DEVICES[kind], *(["--device-ids", number] if number else [])]
    elif device is not None:
        flags += ["--device-type", "gpu", "--device-ids", ",".join(map(str, device))]
    if ray not in (None, False):
        flags.append(f"--ray={'auto' if ray is True else ray}")
    return flags


def log_flags(level: str | None, prints: bool) -> list[str]:
    level = level or (QUIET if is_interactive() else None)
    level = {"warning": "warn", "critical": "error"}.get(level.lower(), level) if level else None
    if prints:
        return ["--log-level", level] if level else []
    return ["--log-level", f"{level or 'info'},{NO_PRINTS}"]


def config_flags(config: Config, directory: str) -> list[str]:
    if config is None:
        return []
    if isinstance(config, Mapping):
        file = Path(directory, "jitney.yaml")
        file.write_text(json.dumps(config))  # JSON is YAML.
        return ["--config", str(file)]
    return ["--config", os.path.abspath(config)]


PORTS = ("port", "management-port", "metrics-port", "grpc-port", "grpc-management-port")
LOAD_SECONDS = 24 * 3600.0
"""Longer than the server's own start-up timeout, which ends the wait first."""


@overload
def run(target: BatchFunction[..., Any, R], **options: Unpack[RunOptions]) -> RunningModel[..., R]: ...
@overload
def run(target: type[Any], **options: Unpack[RunOptions]) -> RunningModel[..., Any]: ...
@overload
def run(target: Callable[P, Iterator[R]], **options: Unpack[RunOptions]) -> RunningModel[P, list[R]]: ...
@overload
def run(target: Callable[P, AsyncIterator[R]], **options: Unpack[RunOptions]) -> RunningModel[P, list[R]]: ...
@overload
def run(target: Callable[P, Coroutine[Any, Any, R]], **options: Unpack[RunOptions]) -> RunningModel[P, R]: ...
@overload
def run(target: Callable[P, R], **options: Unpack[RunOptions]) -> RunningModel[P, R]: ...
@overload
def run(target: Any, **options: Unpack[RunOptions]) -> RunningModel[..., Any]: ...
def run(
    target: Any,
    *,
    name: str | None = None,
    workers: int | None = None,
    device: str | Sequence[int] | None = None,
    python: str | os.PathLike[str] | None = None,
    log_level: str | None = None,
    prints: bool = True,
    ray: str | bool | None = None,
    port: int = 0,
    program: str | os.PathLike[str] | None = None,
    config: Config = None,
) -> RunningModel[..., Any]:
    """Serves a definition beside this program and returns a handle of it, once its workers are loaded.

    Workers are processes of their own. They import the definition: define it in a file, and start it
    below `if __name__ == "__main__":` if that is the file which runs. What cannot be imported (a function
    of a notebook's cell, one made inside another function) is sent to them with cloudpickle:
    `pip install 'jitney[notebook]'`.

    Args:
        target: a function, a class, or a definition of another form.
        name: the model's name; a lambda needs one.
        workers: processes that run it.
        device: "cpu", "gpu", "cuda:1", or numbers of GPUs as in [0, 1].
        python: the interpreter of the workers; this one by default.
        log_level: "error", "warning", "info", "debug", or any other filter of `jitney serve --log-level`. In a
            notebook it is "warning" by default, else "info".
        prints: whether to show what workers print.
        ray: the address of a Ray cluster that workers run on.
        port: the one for HTTP; a free one by default, see `url`.
        program: the `jitney` program, if not the one beside this Python or on the path.
        config: further settings: a `jitney.yaml`, or a dictionary of what stands in one.

    In a notebook the model that the same name had before is closed first, since cells are run again.
    """
    _check_not_in_worker()
    if isinstance(target, Handle):
        raise TypeError(f"{target!r} runs already; jitney.run takes a function or a class")
    target = (target.bound or target.target) if isinstance(target, Definition) else target
    definition = define(target, name=_checked_name(name))
    flags = ["--python", os.fspath(python or sys.executable), "--until-eof", "--debug-errors"]
    flags += [part for flag in PORTS for part in (f"--{flag}", str(port if flag == "port" else 0))]
    flags += [*worker_flags(workers, device, ray), *log_flags(log_level, prints)]
    server = _start(target, definition.name, name, program, flags, config, own_python=python is None)
    running: RunningModel[..., Any] = RunningModel(definition, server)
    try:
        _await_workers(definition.name, running.management_url)
    except RemoteError as error:
        running.close()
        raise RuntimeError(f"{definition.name} did not load; see the server's output above ({error})") from None
    except BaseException:
        running.close()
        raise
    if is_interactive():
        OF_CELLS[definition.name] = running
    return running


def _start(
    target: Any,
    served_as: str,
    name: str | None,
    program: str | os.PathLike[str] | None,
    flags: list[str],
    config: Config,
    own_python: bool,
) -> ServerProcess:
    """Starts the server, in place of the cell's earlier one; what is written for it goes with it."""
    source = by_value.importable(target)
    written = source is None or isinstance(config, Mapping)
    directory = tempfile.mkdtemp(prefix="jitney-run-") if written else ""
    try:
        new_name = name if name and not _has_name(target) else ""
        source = source or by_value.write(target, directory, name=new_name, own_python=own_python)
        model = f"{name}={source.spec}" if name else source.spec
        command = [find_program(program), "serve", model, *flags, *config_flags(config, directory)]
        if is_interactive() and served_as in OF_CELLS:
            OF_CELLS.pop(served_as).close()
        return ServerProcess(command, source.directory, directory, of_cells=is_interactive())
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _checked_name(name: str | None) -> str | None:
    if name is not None and not NAME.fullmatch(name):
        raise ValueError(f"name must be letters, digits, '_', '-' and '.', not {name!r}")
    return name


def _has_name(target: Any) -> bool:
    return bool(NAME.fullmatch(getattr(target, "__name__", None) or type(target).__name__))


def _check_not_in_worker() -> None:
    """Raises inside a worker: it imports the main file, and would start a server of its own."""
    if runs_this_package():
        raise RuntimeError('put jitney.run below `if __name__ == "__main__":`, since workers import this file')


def _await_workers(name: str, management_url: str) -> None:
    """Waits until the workers are loaded; an earlier call would spend its deadline waiting."""
    with Client(management_url, timeout=LOAD_SECONDS) as client:
        model = client.describe(name)[0]
        client.scale(name, min_worker=model["minWorkers"], max_worker=model["maxWorkers"], synchronous=True)
