"""JSON schemas of type hints, as OpenAPI 3.1 has them. A class is described once, by its name, so that classes may
hold each other; `classes` has those that were met."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import io
import re
import typing
from typing import Any

from jitney.values.containers import container_for
from jitney.values.convert import UNIONS, has_no_default
from jitney.values.rows import Rows

Schema = dict[str, Any]
COMPONENTS, DEFINITIONS = "#/components/schemas/", "#/$defs/"
"""Where the classes of an OpenAPI document stand, and those of a schema by itself."""
SIMPLE: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    bytes: {"type": "string", "format": "binary"},
    bytearray: {"type": "string", "format": "binary"},
    io.BytesIO: {"type": "string", "format": "binary"},
    dict: {"type": "object"},
    list: {"type": "array", "items": {}},
    type(None): {"type": "null"},
}


class Schemas:
    """The schemas of one document."""

    def __init__(self, place: str = COMPONENTS) -> None:
        self._place = place
        self.classes: dict[str, Schema] = {}
        self._names: dict[type, str] = {}

    def of(self, hint: Any) -> Schema:
        """The schema of a hint; empty, which means anything, for an unknown hint."""
        try:
            if hint in SIMPLE:
                return dict(SIMPLE[hint])
        except TypeError:
            return {}
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if container_for(origin or hint) is not None:
            return {"type": "array", "items": self.of(args[0]) if origin is Rows and args else {}}
        if origin in UNIONS:
            return {"anyOf": [self.of(arg) for arg in args]}
        if origin is typing.Literal:
            return _choice(list(args))
        if origin is typing.Annotated:
            return self.of(args[0])
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if origin is tuple and args and args[-1] is not Ellipsis:
            return {**_array({}, len(args)), "prefixItems": [self.of(arg) for arg in args]}
        if origin in (list, set, frozenset, tuple):
            return {"type": "array", "items": self.of(args[0])}
        return self._class(hint) if isinstance(hint, type) else {}

    def _class(self, hint: type) -> Schema:
        if issubclass(hint, enum.Enum):
            return _choice([member.value for member in hint])
        known = self._names.get(hint)
        if known is not None:
            return {"$ref": self._place + known}
        if dataclasses.is_dataclass(hint):
            name = self._name(hint)
            self.classes[name] = {}  # Its place among the others, while it is being read.
            self.classes[name] = self._dataclass(hint)
        elif hasattr(hint, "model_json_schema"):
            name = self._pydantic(hint)
        else:
            return {}
        return {"$ref": self._place + name}

    def _name(self, hint: type) -> str:
        """The class's own name, with a number where another class has it already."""
        plain = re.sub(r"[^\w.-]", "_", hint.__name__)
        name = next(one for one in (plain, *(f"{plain}{at}" for at in range(2, 1000))) if one not in self.classes)
        self._names[hint] = name
        return name

    def _dataclass(self, hint: Any) -> Schema:
        hints = typing.get_type_hints(hint)
        fields = [field for field in dataclasses.fields(hint) if field.init]
        needed = [field.name for field in fields if has_no_default(field)]
        described: Schema = {
            "type": "object",
            "title": hint.__name__,
            "properties": {field.name: self.of(hints.get(field.name, Any)) for field in fields},
            "additionalProperties": False,
        }
        return {**described, "required": needed} if needed else described

    def _pydantic(self, hint: Any) -> str:
        """A model of pydantic, with those that it holds."""
        schema: Schema = hint.model_json_schema(ref_template=self._place + "{model}")
        others: dict[str, Schema] = schema.pop("$defs", {})
        name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else self._name(hint)
        self.classes.update(others if "$ref" in schema else {**others, name: schema})
        self._names[hint] = name
        return name


def schema_of(hint: Any) -> Schema:
    """The schema of a hint by itself, with the classes that it holds."""
    schemas = Schemas(DEFINITIONS)
    found = schemas.of(hint)
    own = schemas.classes.get(found.get("$ref", "").rpartition("/")[2], found)
    return {**own, "$defs": schemas.classes} if DEFINITIONS in str(own) else own


def is_binary(hint: Any) -> bool:
    """Whether values of the hint are sent as files."""
    return hint in (bytes, bytearray, io.BytesIO) or (inspect.isclass(hint) and hint.__module__.startswith("PIL"))


def _array(items: Schema, length: int) -> Schema:
    return {"type": "array", "items": items, "minItems": length, "maxItems": length}


def _choice(values: list[Any]) -> Schema:
    kinds = {type(value) for value in values}
    kind = SIMPLE.get(kinds.pop(), {}) if len(kinds) == 1 else {}
    return {**kind, "enum": values}
