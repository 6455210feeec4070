"""The Python package of this checkout, for tests that use it as a client; nothing is installed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "python"))

import jitney  # noqa: E402

__all__ = ["jitney"]
