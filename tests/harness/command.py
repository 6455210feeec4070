"""A command of the program that ends by itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def run(binary: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs it with these variables and no others."""
    env = {"PATH": os.environ["PATH"], **env}
    return subprocess.run([str(binary), *arguments], env=env, capture_output=True, text=True, timeout=120, check=False)
