"""The Python package of this checkout, for tests that use it as a client; nothing is installed."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

import jitney  # noqa: E402

__all__ = ["ROOT", "jitney"]
