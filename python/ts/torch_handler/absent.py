"""The handlers of TorchServe that Jitney does not have, and what to use in their place.

Importing one of them raises this error, so that a worker's log tells what to do.
"""

from __future__ import annotations


def absent(name: str, library: str, instead: str) -> ImportError:
    """What an import of such a module raises."""
    return ImportError(f"{name} builds on {library} and is not part of Jitney. {instead}", name=name)
