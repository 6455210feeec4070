"""What this process is, and where the `jitney` program lies that `jitney.run` and `jitney.infer` start.

Nothing is imported to find out: where IPython runs, it is loaded.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def is_interactive() -> bool:
    """Whether somebody types into this process: the cells of a notebook, or IPython's console."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return shell is not None and shell() is not None


def runs_this_package() -> bool:
    """Whether this process is a worker or another program of this package, which imports the user's file."""
    package = getattr(sys.modules.get("__main__"), "__package__", None) or ""
    return package.partition(".")[0] == "jitney"


def find_program(given: str | os.PathLike[str] | None = None) -> str:
    """The given path, else JITNEY_BIN, else the one beside this interpreter (where pip puts it), else the PATH's."""
    beside = Path(sys.executable).with_name("jitney")
    found = given or os.environ.get("JITNEY_BIN") or (beside if beside.is_file() else shutil.which("jitney"))
    if found is None:
        raise FileNotFoundError(
            "the `jitney` program is neither beside this Python nor on the PATH; install it, or give its path: program="
        )
    return os.fspath(found)
