"""Where the `jitney` program is: `jitney.run` and `jitney.infer` start it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def find_program(given: str | os.PathLike[str] | None = None) -> str:
    """The given path, else JITNEY_BIN, else the one beside this interpreter (where pip puts it), else the PATH's."""
    beside = Path(sys.executable).with_name("jitney")
    found = given or os.environ.get("JITNEY_BIN") or (beside if beside.is_file() else shutil.which("jitney"))
    if found is None:
        raise FileNotFoundError(
            "the `jitney` program is neither beside this Python nor on the PATH; install it, or give its path: program="
        )
    return os.fspath(found)
