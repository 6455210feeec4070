"""TorchServe's command names. Each becomes the ``jitney`` command of the same meaning, in the same process."""

from __future__ import annotations

import os
import shutil
import sys


def torchserve() -> None:
    """``torchserve …``"""
    _become("torchserve")


def model_archiver() -> None:
    """``torch-model-archiver …``"""
    _become("archive")


def workflow_archiver() -> None:
    """``torch-workflow-archiver …``"""
    _become("archive-workflow")


def _become(command: str) -> None:
    program = _jitney()
    if program is None:
        sys.exit("jitney is not installed: it is neither beside this command nor on the PATH (JITNEY_BIN names it)")
    os.execv(program, [program, command, *sys.argv[1:]])


def _jitney() -> str | None:
    beside = os.path.dirname(os.path.abspath(sys.argv[0]))
    return os.environ.get("JITNEY_BIN") or shutil.which("jitney", path=beside) or shutil.which("jitney")
