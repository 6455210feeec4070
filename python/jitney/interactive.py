"""Whether somebody types into this process: the cells of a notebook, or IPython's console.

Nothing is imported to find out: where IPython runs, it is loaded.
"""

from __future__ import annotations

import sys


def is_interactive() -> bool:
    """Whether cells run in this process."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return shell is not None and shell() is not None
