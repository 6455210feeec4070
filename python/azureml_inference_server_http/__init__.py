"""The import surface of Azure Machine Learning's inference server for entry scripts, and the model that runs one.

`api` is what entry scripts import. Its classes stand on werkzeug's, as Azure's stand on Flask's."""

from __future__ import annotations

from jitney import __version__ as __version__
