"""Jitney's Python package: what runs inside the worker processes the server starts.

Importing it costs nothing and pulls in no third-party code; the parts live in submodules
(`jitney.worker` is the process a model runs in).
"""

__version__ = "0.1.0"
