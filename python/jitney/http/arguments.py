"""From a request's parameters, as the worker reads them, to an endpoint's arguments.

A JSON object is keyword arguments; any other body is the one argument there is. Query and form
fields are arguments by name. Unknown fields are errors, so that a misspelt name is noticed.
"""

from __future__ import annotations

import json
from typing import Any, get_origin

from jitney.call.errors import BadInput
from jitney.definition.definition import Endpoint
from jitney.definition.hints import LISTS, MISSING, Param
from jitney.files.arrays import read_npz
from jitney.values import array_formats
from jitney.values.convert import convert, converter_for
from jitney.values.rows import RepeatedRow
from jitney.wire.calls import decode_call

BODY = "body"
SOLE_TYPES = (list, str, int, float, bool, type(None))
"""Bodies that can be nothing but the one argument there is."""


class BrokenJson(bytearray):
    """A body whose content type says JSON, and which is none."""

    problem = ""

    @classmethod
    def of(cls, raw: bytes | bytearray | memoryview, error: Exception) -> BrokenJson:
        """The body that a parser refused, with what is wrong and where."""
        broken = cls(raw)
        if isinstance(error, json.JSONDecodeError):
            why = error.msg if raw else "the body is empty"
            broken.problem = f"invalid JSON at line {error.lineno}, column {error.colno}: {why}"
        else:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else "it is not UTF-8"
            broken.problem = f"invalid JSON: {why}"
        return broken


class ArgumentReader:
    """Reads the arguments of one endpoint's items. What the endpoint decides is decided once; rows in one of the
    usual forms cost a lookup and a conversion per argument, and `read` deals with all others."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        params = [param for param in endpoint.params if not param.is_request]
        self._converters = {param.name: converter_for(param.hint) for param in params}
        self._in_order = tuple(self._converters.items())
        self._sole = params[0].name if len(params) == 1 else None
        self._sole_types = (*SOLE_TYPES, bytearray) if self._sole and params[0].hint is bytes else SOLE_TYPES

    def read(self, row: dict[str, Any]) -> dict[str, Any]:
        """One item's arguments."""
        if len(row) == 1 and BODY in row:
            try:
                named = self._usual(row[BODY])
            except Exception:  # `read` says what is wrong.
                named = None
            if named is not None:
                return named
        try:
            return read(self._endpoint, row)
        except RecursionError:
            raise BadInput("the request is nested too deeply") from None

    def read_call(self, raw: bytes) -> dict[str, Any]:
        """One item's arguments of a call through a handle."""
        try:
            positional, named = decode_call(raw)
            if not named and len(positional) <= len(self._in_order):
                return {name: converter(value) for (name, converter), value in zip(self._in_order, positional)}
        except Exception:  # `read_call` says what is wrong.
            pass
        return read_call(self._endpoint, raw)

    def _usual(self, body: Any) -> dict[str, Any] | None:
        converters = self._converters
        if BODY in converters:
            _check_json(body)
            return {BODY: converters[BODY](body)}
        if type(body) is dict:
            if body and converters.keys() >= body.keys():
                return {name: converters[name](value) for name, value in body.items()}
        elif self._sole is not None and type(body) in self._sole_types and body != "":
            return {self._sole: converters[self._sole](body)}
        return None


def read(endpoint: Endpoint, row: dict[str, Any]) -> dict[str, Any]:
    """One item's arguments."""
    params = [param for param in endpoint.params if not param.is_request]
    named = dict(row)
    if isinstance(row, RepeatedRow):
        _gather(params, row, named)
    if BODY in named and not any(param.name == BODY for param in params):
        _open_body(endpoint, params, named)
    found: dict[str, Any] = {}
    failed: list[BadInput] = []
    for name, value in named.items():
        try:
            found[name] = _one(endpoint, params, name, value)
        except BadInput as error:
            failed.append(error)
    if failed:
        missing = [param.name for param in params if param.required and param.name not in named]
        raise BadInput.joined(failed + [BadInput.missing(missing)] * bool(missing))
    return found


def _gather(params: list[Param], row: RepeatedRow, named: dict[str, Any]) -> None:
    """Several files or fields of one name are a list where the parameter is one; of others the last counts."""
    for param in params:
        if param.name in row.every and (get_origin(param.hint) or param.hint) in LISTS:
            named[param.name] = row.every[param.name]


def read_call(endpoint: Endpoint, raw: bytes) -> dict[str, Any]:
    """One item's arguments of a call through a handle: positions and names, as Python has them."""
    try:
        positional, named = decode_call(raw)
    except ValueError as error:
        raise BadInput(str(error)) from None
    params = [param for param in endpoint.params if not param.is_request]
    if len(positional) > len(params):
        raise BadInput(f"{endpoint.name} takes {len(params)} arguments ({_list(params)}), got {len(positional)}")
    found = {param.name: convert(param.name, value, param.hint) for param, value in zip(params, positional)}
    for name, value in named.items():
        if name in found:
            raise BadInput(f"parameter {name!r} was given twice")
        found[name] = _one(endpoint, params, name, value)
    return found


def _open_body(endpoint: Endpoint, params: list[Param], named: dict[str, Any]) -> None:
    """Adds the contents of the body to the other fields."""
    body = named.pop(BODY)
    if isinstance(body, bytearray) and body[:1] == b"{":
        body = _object_of(params, body)
    missing = [param for param in params if param.name not in named]
    if _is_empty(body) and (named or not any(param.required for param in missing)):
        return
    _check_json(body)
    hints = [param.hint for param in missing] + [endpoint.shape.any_hint] * endpoint.shape.takes_any
    if array_formats.is_npz(body) and any(map(array_formats.takes_arrays, hints)):
        body = _arrays_of(body)
    if isinstance(body, dict) and _is_keywords(endpoint, params, missing, body):
        named.update({name: value for name, value in body.items() if name not in named})
        return
    target = _sole(params, missing)
    if target is None:
        raise BadInput(f"send a JSON object with {_list(params)}" if params else "this endpoint takes no body")
    named[target.name] = body


def _check_json(value: Any) -> None:
    """Refuses what claims to be JSON and is not; for a parameter that takes text or bytes, too."""
    if isinstance(value, BrokenJson):
        raise BadInput(value.problem)


def _arrays_of(body: bytearray) -> dict[str, Any]:
    try:
        return read_npz(body)
    except ValueError as error:
        raise BadInput(f"the npz file cannot be read: {error}") from None


def _object_of(params: list[Param], body: bytearray) -> Any:
    """A body without a type that is an object with the arguments by name, as `curl -d` and `curl -T` send it."""
    try:
        value = json.loads(body)
    except ValueError:
        return body
    names = {param.name for param in params}
    return value if isinstance(value, dict) and value and value.keys() <= names else body


def _is_keywords(endpoint: Endpoint, params: list[Param], missing: list[Param], body: dict[str, Any]) -> bool:
    """An object is the arguments by name, unless the one parameter takes an object itself."""
    names = {param.name for param in params}
    if len(missing) != 1 or endpoint.shape.takes_any:
        return True
    if not body:  # No arguments at all, where none is needed and none is an object.
        hint = missing[0].hint
        return not missing[0].required and (get_origin(hint) or hint) not in (dict, Any)
    return bool(body.keys() & names) and body.keys() <= names


def _sole(params: list[Param], missing: list[Param]) -> Param | None:
    required = [param for param in missing if param.required]
    if len(required) == 1:
        return required[0]
    return missing[0] if len(missing) == 1 else None


def _one(endpoint: Endpoint, params: list[Param], name: str, value: Any) -> Any:
    _check_json(value)
    for param in params:
        if param.name == name:
            return convert(name, value, param.hint)
    if not endpoint.shape.takes_any:
        message = f"there is no parameter {name!r}; {endpoint.name} takes {_list(params) or 'none'}"
        raise BadInput(message, errors=[(name, "there is no such parameter")])
    hint = endpoint.shape.any_hint
    return convert(name, value, Any if hint is MISSING else hint)


def _is_empty(body: Any) -> bool:
    return isinstance(body, (bytes, bytearray, str)) and not len(body)


def _list(params: list[Param]) -> str:
    return ", ".join(repr(param.name) for param in params)
