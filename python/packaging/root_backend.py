"""`pip install ./python` builds what `pip install .` builds: the project is described in the directory above."""

import os
from pathlib import Path

from maturin import (  # noqa: F401 - these are the functions that pip calls
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

# The functions read the pyproject.toml of the current directory.
os.chdir(Path(__file__).resolve().parents[2])
