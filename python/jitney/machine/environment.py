"""`python -m jitney.machine.environment PATH`: a virtual environment that also finds what this interpreter finds.

``venv`` alone can look through to the interpreter it was made from, but not to a virtual environment it was made
from, which is where a server's packages usually are. Runs once per model that asks for ``useVenv``, before its first
worker; never inside one.
"""

from __future__ import annotations

import importlib.util
import site
import sys
import venv
from pathlib import Path

INHERITED = "jitney_inherited.pth"
"""Python reads the lines of such files as further directories to search, after the environment's own."""


def make(path: Path) -> None:
    """Makes the environment at ``path``, with pip only if this interpreter has none."""
    has_pip = importlib.util.find_spec("pip") is not None
    venv.EnvBuilder(symlinks=True, with_pip=not has_pip).create(path)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = path / "lib" / version / "site-packages"
    (own / INHERITED).write_text("".join(f"{folder}\n" for folder in site.getsitepackages()))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
