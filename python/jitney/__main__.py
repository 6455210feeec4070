"""`python -m jitney`: what the `jitney` command leaves to Python, because it imports user code.

stdout is for data, stderr for messages. Exit status: 0 success, 1 failed or mistakes found, 64 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.check.check import check, told
from jitney.check.inspection import inspect
from jitney.definition.application import Application, graph
from jitney.definition.locate import locate
from jitney.loaders.huggingface.hub import located
from jitney.loaders.loader import LoadOptions
from jitney.loaders.registry import model_path, open_path
from jitney.packing.pack import pack

FAILED, USAGE = 1, 64
SAID_MAX = 500
"""Letters of what an exception says."""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command."""
    flags = parser().parse_args(arguments)
    if flags.command == "inspect":
        with contextlib.redirect_stdout(sys.stderr):
            found = inspect(flags.object, LoadOptions(flags.trust, flags.task))
        print(found.told(flags.json))
        return found.status
    named = flags.object
    try:
        application = load(flags)
    except DefinitionError as error:
        why = " ".join(str(error).split()) if getattr(flags, "silent", False) else str(error)
        print(f"error: {named}: {why}{where_raised(error)}", file=sys.stderr)
        return FAILED
    except Exception as error:
        print_traceback(error)
        said = " ".join(f"{type(error).__name__}: {error}".split())[:SAID_MAX]
        why = (
            f": cannot be read: {said}"
            if getattr(flags, "file", False)
            else f" raised {type(error).__name__} while it was imported"
        )
        print(f"error: {named}{why}", file=sys.stderr)
        return FAILED
    if flags.command == "pack":
        packed = pack(application, flags.object, flags.directory, Path(flags.out), flags.version)
        if not flags.silent:
            print(json.dumps(packed))
        return 0
    try:
        samples = [read_sample(text) for text in flags.sample]
    except ValueError as error:
        print(f"error: --sample must be a JSON object of one item's arguments: {error}", file=sys.stderr)
        return USAGE
    return print_check(application, samples, flags)


def print_check(application: Application, samples: list[dict[str, Any]], flags: argparse.Namespace) -> int:
    """Prints what is found; what the user's code prints meanwhile goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = check(application, samples, flags.endpoint)
    except LookupError as error:
        print(f"error: {flags.object}: {error}", file=sys.stderr)
        return USAGE
    except Exception as error:
        print_traceback(error)
        print(f"error: {flags.object} raised {type(error).__name__} in its constructor or setup", file=sys.stderr)
        return FAILED
    text, status = told(found, flags.json)
    print(text)
    return status


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m jitney")
    commands = top.add_subparsers(dest="command", required=True)
    inspected = commands.add_parser("inspect", help="say what a file or folder is")
    inspected.add_argument("object", help="a file or folder, or hf:ORG/NAME")
    inspected.add_argument("--json", action="store_true", help="print one JSON document")
    _add_load_options(inspected)
    for name, about in (("pack", "write a definition's model directory"), ("check", "look for batching mistakes")):
        one = commands.add_parser(name, help=about)
        one.add_argument("object", help="module:object, or file.py:object")
        one.add_argument("--directory", default=os.getcwd(), help="where to import from")
        if name == "pack":
            one.add_argument("--out", required=True, help="the directory to write")
            one.add_argument("--version", help="the version to serve it as")
            one.add_argument("--file", action="store_true", help="the object is a file or folder that a loader finds")
            one.add_argument(
                "--silent", action="store_true", help="do not print what was packed, and errors in one line"
            )
            _add_load_options(one)
        else:
            one.add_argument("--sample", action="append", default=[], help="one item's arguments as a JSON object")
            one.add_argument("--endpoint", default="", help="examine this endpoint alone")
            one.add_argument("--json", action="store_true", help="print one JSON document")
    return top


def _add_load_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--trust", action="store_true", help="code that is part of the model may run")
    one.add_argument("--task", help="what a model of several uses is for")


def where_raised(error: BaseException) -> str:
    """Where in the user's code a definition went wrong, if it was there."""
    theirs = [one for one in traceback.extract_tb(error.__traceback__) if not _is_ours(one.filename)]
    return f" ({os.path.basename(theirs[-1].filename)}, line {theirs[-1].lineno})" if theirs else ""


def print_traceback(error: BaseException) -> None:
    """Prints a traceback from the user's code on; what leads there is always the same."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    # What cannot be parsed has not run: its file, line and caret say all.
    otherwise = None if isinstance(error, SyntaxError) else error.__traceback__
    traceback.print_exception(type(error), error, trace or otherwise)


def _is_ours(file: str) -> bool:
    """Whether a file is of this package or of Python."""
    own = os.path.dirname(os.path.abspath(__file__))
    of_python = file.startswith(os.path.dirname(os.__file__)) and "site-packages" not in file
    return of_python or file.startswith(("<", os.path.join(own, "")))


def read_sample(text: str) -> dict[str, Any]:
    """One item's arguments."""
    sample = json.loads(text)
    if not isinstance(sample, dict):
        raise ValueError(f"{text!r} is no object")
    return sample


def load(flags: argparse.Namespace) -> Application:
    """The definition with all its parts that a `module:object` names, or what a loader makes of a file or folder, which
    then has its path in `flags.object`. What is printed meanwhile goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        if getattr(flags, "file", False):
            path = model_path(located(flags.object))
            flags.object = str(path)
            return graph(open_path(path, LoadOptions(flags.trust, flags.task)))
        return graph(locate(flags.object, os.path.abspath(flags.directory)))


if __name__ == "__main__":
    sys.exit(main())
