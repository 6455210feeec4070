"""Fuzzes what Python reads with atheris, one target in a process: executions, coverage, finds.

    python fuzz/run_python.py [--seconds 60] [TARGET ...]

The checks are in python/tests/fuzz_checks.py. New inputs that reach new code go to fuzz/found, those that fail to
fuzz/artifacts; neither is checked in.
"""

from __future__ import annotations

import os
import sys

from run import HERE, arguments, run

PYTHON = HERE.parent / "python"
TARGETS = ["client_files", "handle_values"]


def fuzz(target: str) -> None:
    """Runs one target in this process, whose other arguments are libFuzzer's."""
    import atheris

    sys.path[:0] = [str(PYTHON), str(PYTHON / "tests")]
    with atheris.instrument_imports(include=["jitney", "zipfile"]):
        from fuzz_checks import CHECKS
    atheris.Setup(sys.argv, CHECKS[target])
    atheris.Fuzz()


def main() -> int:
    """Runs the targets one after the other; 1 if any found something."""
    flags = arguments(__doc__, TARGETS)
    passed = [run([sys.executable, __file__], target, flags.seconds, {"TARGET": target}) for target in flags.targets]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    if target := os.environ.get("TARGET"):
        fuzz(target)
    sys.exit(main())
