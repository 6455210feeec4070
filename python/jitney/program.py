"""Where the `jitney` program is: `jitney.run` and `jitney.infer` start it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def find_program(given: str | os.PathLike[str] | None = None) -> str:
    """What was named, here or in JITNEY_BIN; the one beside this interpreter, where pip puts it; the path's."""
    beside = Path(sys.executable).with_name("jitney")
    found = given or os.environ.get("JITNEY_BIN") or (beside if beside.is_file() else shutil.which("jitney"))
    if found is None:
        raise FileNotFoundError(
            "there is no program `jitney` beside this Python or on the path: pip install jitney, or name it: program="
        )
    return os.fspath(found)
