"""The flags that benchmarks of several rows share."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterable


def row_parser(about: str | None, rows: Iterable[str]) -> argparse.ArgumentParser:
    """Which rows, how often, how long, and where the figures go; a benchmark adds its own."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(rows))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--out", type=pathlib.Path)
    return parser
