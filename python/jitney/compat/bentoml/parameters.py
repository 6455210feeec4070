"""The parameters of an API as they are on the wire, and what is done to a value before the method gets it.

Most hints are the same in both worlds. A file is bytes on the wire and a `Path` in the method; a list of a batchable
API is rows; a root parameter is the whole body; a context is not on the wire at all.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jitney.compat.bentoml.answering import is_image_type
from jitney.compat.bentoml.context import Context
from jitney.compat.bentoml.exceptions import BadInput, BentoMLConfigException
from jitney.compat.bentoml.named_files import check_named_files, holds_paths
from jitney.definition.hints import LISTS, MISSING
from jitney.values.containers import container_for
from jitney.values.convert import UNIONS, convert
from jitney.values.rows import AnyRows, Rows

ROOT = "body"
"""The wire's name of a root parameter."""
CONTEXT_NAMES = ("ctx", "context")

Reader = Callable[[Any, Context], Any]


@dataclass(frozen=True)
class WireParam:
    """One parameter."""

    name: str
    """The method's."""
    wire_name: str
    hint: Any
    """Of the wire."""
    told: Any
    """The method's hint."""
    default: Any
    by_place: bool = False
    """It can only be given by position."""
    readers: tuple[Reader, ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether it comes as a file, and with it the others in a form."""
        args = typing.get_args(self.told)
        kinds = {self.told, *args} if typing.get_origin(self.told) in (*UNIONS, *LISTS) else {self.told}
        return any(kind is Path or kind is bytes or is_image_type(kind) for kind in kinds)


@dataclass(frozen=True)
class WireShape:
    """What an API takes and gives."""

    params: tuple[WireParam, ...]
    context: str | None
    """The parameter that gets the context."""
    output: Any
    """The hint of the answer, without what is said beside the type."""
    output_notes: tuple[Any, ...]
    takes_files: bool = False
    """Whether its requests may be forms, of which reading makes files or looks at the headers."""


def wire_shape(
    function: Callable[..., Any], batchable: bool, skip_self: bool = True, input_spec: Any = None
) -> WireShape:
    """Reads a method's signature. The fields of `input_spec`, a pydantic model, stand for its `**params`."""
    parameters = list(inspect.signature(function).parameters.values())[skip_self:]
    hints = _hints(function)
    context = next((one.name for one in parameters if _is_context(one, hints)), None)
    if input_spec is not None:
        parameters, more = _spelled_out(parameters, input_spec)
        hints.update(more)
    params = tuple(_param(one, hints.get(one.name, Any), batchable) for one in parameters if one.name != context)
    takes_files = any(one.is_file for one in params)
    if takes_files:
        params = tuple(one if one.is_file else _of_form(one) for one in params)
    if batchable and len(params) != 1:
        raise BentoMLConfigException(
            f"{function.__qualname__}: a batchable API takes one parameter, and this has {len(params)}; "
            "pack them into one, for example a list of pydantic models"
        )
    output, notes = stripped(hints.get("return", Any))
    return WireShape(params, context, output, notes, takes_files)


def _spelled_out(parameters: list[inspect.Parameter], spec: Any) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """The parameters with the fields of a pydantic model in the place of `**params`, and the fields' hints."""
    kind = inspect.Parameter.KEYWORD_ONLY
    fields = [inspect.Parameter(name, kind, default=field) for name, field in spec.model_fields.items()]
    hints = {name: field.annotation for name, field in spec.model_fields.items()}
    return [*(one for one in parameters if one.kind is not one.VAR_KEYWORD), *fields], hints


def _of_form(param: WireParam) -> WireParam:
    """A value beside a file: BentoML's clients send it as JSON, others as it is."""
    told = param.told
    is_text = told is str or told is Any or told == str | None

    def read(value: Any, context: Context) -> Any:
        is_form = str(context.request.headers.get("content-type", "")).startswith("multipart/")
        if is_form and isinstance(value, (str, bytes, bytearray)):
            with contextlib.suppress(ValueError):
                found = json.loads(value)
                is_meant = told is Any or isinstance(found, str) or (found is None and told is not str)
                value = found if is_meant else value
        return value if is_text else convert(param.name, value, told)

    return replace(param, hint=param.hint if is_text else Any, readers=(read, *param.readers))


def _hints(function: Any) -> dict[str, Any]:
    """Those hints that can be read; the others count as absent."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        known = {}
    for name, hint in function.__annotations__.items():
        try:
            known[name] = eval(hint, function.__globals__) if isinstance(hint, str) else hint
        except Exception:
            continue
    return known


def stripped(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A hint, and what `Annotated` says beside it."""
    if typing.get_origin(hint) is typing.Annotated:
        inner, notes = stripped(typing.get_args(hint)[0])
        return inner, (*notes, *hint.__metadata__)
    return hint, ()


def _is_context(parameter: inspect.Parameter, hints: dict[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    if hint is None:
        return parameter.name in CONTEXT_NAMES
    return isinstance(hint, type) and issubclass(hint, Context)


def _param(parameter: inspect.Parameter, hint: Any, batchable: bool) -> WireParam:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise BentoMLConfigException(f"*{parameter.name} has no names for requests to use; name the parameters")
    plain, notes = stripped(hint)
    default = parameter.default
    if _is_field(default):
        notes = (*notes, default)
        default = MISSING if default.is_required() else default.get_default(call_default_factory=True)
    by_place = parameter.kind is parameter.POSITIONAL_ONLY
    readers = tuple(one for one in (_reader(plain), *_checks(plain, notes)) if one is not None)
    wire_hint = _rows(plain) if batchable else _wire_hint(plain)
    return WireParam(parameter.name, ROOT if by_place else parameter.name, wire_hint, plain, default, by_place, readers)


def _rows(hint: Any) -> Any:
    """The hint of rows: lists are joined as arrays are."""
    origin = typing.get_origin(hint) or hint
    if origin in LISTS:
        args = typing.get_args(hint)
        return Rows[stripped(args[0])[0]] if args else Rows  # type: ignore[misc]
    return hint if container_for(origin) is not None else AnyRows


def _wire_hint(hint: Any) -> Any:
    if hint is Path:
        return bytes
    if typing.get_origin(hint) in UNIONS and Path in typing.get_args(hint):
        return bytes | None
    return hint


def _reader(hint: Any) -> Reader | None:
    is_file = hint is Path or (typing.get_origin(hint) in UNIONS and Path in typing.get_args(hint))
    return _file if is_file else check_named_files if holds_paths(hint) else None


def _file(value: Any, context: Context) -> Any:
    """A file of its own for what came."""
    if value is None or isinstance(value, Path):
        return value
    directory = Path(context.temp_dir)
    path = directory / f"upload-{len(list(directory.iterdir()))}"
    path.write_bytes(value)
    return path


def _is_field(value: Any) -> bool:
    info = getattr(sys.modules.get("pydantic.fields"), "FieldInfo", None)
    return info is not None and isinstance(value, info)


def _checks(hint: Any, notes: tuple[Any, ...]) -> list[Reader]:
    own = [one for one in notes if hasattr(one, "apply")]
    others = [one for one in notes if not hasattr(one, "apply") and not isinstance(one, str)]
    others = [one for one in others if type(one).__module__.partition(".")[0] in ("pydantic", "annotated_types")]
    readers = [_applied(one) for one in own]
    return [*readers, _validated(hint, others)] if others and hint is not Path else readers


def _applied(note: Any) -> Reader:
    return lambda value, context: note.apply(value)


def _validated(hint: Any, notes: list[Any]) -> Reader:
    """pydantic's own check of what an annotation or a `Field` says."""
    from pydantic import TypeAdapter, ValidationError

    annotated: Any = hint
    for note in notes:
        annotated = typing.Annotated[annotated, note]
    adapter: Any = TypeAdapter(annotated)

    def validate(value: Any, context: Context) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise BadInput("; ".join(str(one["msg"]) for one in error.errors())) from None

    return validate
