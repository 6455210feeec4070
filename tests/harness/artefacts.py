"""What `make dist` built: the files of dist/, or of the directory that JITNEY_DIST names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def artefact(pattern: str) -> Path:
    """The one file of that name; without it the run fails and says so."""
    dist = Path(os.environ.get("JITNEY_DIST", ROOT / "dist"))
    found = sorted(dist.glob(pattern))
    if len(found) != 1:
        pytest.fail(f"there must be one {pattern} in {dist} (see `make dist`), not {[path.name for path in found]}")
    return found[0].resolve()
