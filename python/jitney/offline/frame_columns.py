"""Whether the columns of a table are the arguments of a function: known before a job begins, and said then."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from jitney.call.errors import InferError
from jitney.definition.definition import define
from jitney.definition.hints import Param
from jitney.values.containers import container_for

SCALARS = (int, float, str, bool, bytes, list)


def check(columns: tuple[str, ...], model: Any, endpoint: str | None) -> None:
    """Raises `InferError` if a function cannot be called with rows of these columns."""
    definition = define(model, name=None if getattr(model, "__name__", "") != "<lambda>" else "lambda")
    try:
        one = definition.endpoint(endpoint or "")
    except LookupError as error:
        raise InferError(str(error.args[0])) from None
    params = [param for param in one.params if not param.is_request]
    if one.shape.takes_any or (len(params) == 1 and params[0].name not in columns and _takes_rows(params[0])):
        return
    names = [param.name for param in params]
    takes = f"{definition.name} takes {', '.join(map(repr, names))}"
    for param in params:
        if param.required and param.name not in columns:
            near = difflib.get_close_matches(param.name, columns, 1)
            hint = f"rename its column {near[0]!r}" if near else f"its columns are {', '.join(map(repr, columns))}"
            raise InferError(f"the table has no column {param.name!r}, and {takes}; {hint}")
    over = [name for name in columns if name not in names]
    if over:
        chosen = [name for name in columns if name in names]
        raise InferError(f"the table has a column {over[0]!r}, but {takes}; choose its columns: table[{chosen}]")


def _takes_rows(param: Param) -> bool:
    """Whether a parameter takes a whole row: an object, a model of pydantic, a frame."""
    hint = param.hint
    if inspect.isclass(hint) and container_for(hint) is None:
        return hint not in SCALARS
    return True
