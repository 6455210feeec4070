"""Files that a value names by their paths, inside of models and lists, where nothing is uploaded.

Services pass files to each other in this way. A client must not: it would be told what any file of this machine holds.
So such a path has to lead into the folder for temporary files, where uploads are.
"""

from __future__ import annotations

import tempfile
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jitney.compat.bentoml.context import Context
from jitney.compat.bentoml.exceptions import BadInput


def holds_paths(hint: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Whether values of this type may hold paths: in lists and unions, and in fields of pydantic models."""
    if hint is Path:
        return True
    inner = [*typing.get_args(hint)]
    if isinstance(hint, type) and hint not in seen:
        inner += [field.annotation for field in getattr(hint, "model_fields", {}).values()]
    return any(holds_paths(one, (*seen, hint)) for one in inner)


def check_named_files(value: Any, _context: Context) -> Any:
    """The same value, if all of its files are temporary ones."""
    home = Path(tempfile.gettempdir()).resolve()
    for path in _paths(value):
        if home not in path.resolve().parents:
            raise BadInput(
                f"{str(path)!r} names a file outside of the server's folder for temporary files: upload files as "
                "parameters of their own, or as fields of input_spec"
            )
    return value


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
        return
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple, set)) else ()
    for one in inner or (vars(value).values() if hasattr(value, "model_fields") else ()):
        yield from _paths(one)
