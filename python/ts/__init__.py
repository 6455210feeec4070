"""TorchServe's import surface, implemented by Jitney so that handlers run unchanged.

Nothing here imports torch, numpy or yaml when it is imported.
"""

from ts.version import __version__

__all__ = ["__version__"]
