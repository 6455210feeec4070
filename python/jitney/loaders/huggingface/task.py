"""What classes of all tasks share: they are made for one folder, by `for_folder`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from jitney.call.context import context
from jitney.call.errors import BadInput, Error
from jitney.definition.decorators import NOTE, Note, default, note_of
from jitney.gpu.device import gpu_in_sight
from jitney.http.request import HttpRequest
from jitney.loaders.huggingface.folder import PretrainedFolder
from jitney.loaders.huggingface.lengths import SIZES, allowed_lengths

NOT_GIVEN: Any = default(None)
"""Of a request without parameters."""
ITEMS_MAX = 1024
"""The most texts of one request."""


class FolderTask:
    """A model of a folder."""

    folder: PretrainedFolder
    trust = False
    """Whether code of the folder may run."""
    example: ClassVar[dict[str, Any]] = {"inputs": "A text."}
    """A request, with which graphs are captured before the first one comes."""
    example_file: ClassVar[tuple[str, str] | None] = None
    """The media type and the name of a file that a request brings instead, where no text is a request."""
    batching: ClassVar[str | None] = None
    """How requests of `predict` share what runs, in words, where its options do not tell it."""

    @classmethod
    def example_request(cls) -> dict[str, Any]:
        """A request for people to try."""
        return cls.example

    @classmethod
    def for_folder(cls, folder: PretrainedFolder, trust: bool) -> type:
        """The class that is served. On a GPU it runs texts at a few lengths, of which the server is told."""
        told: dict[str, Any] = {"folder": folder, "trust": trust, "__doc__": cls.__doc__}
        for name in dir(cls):
            note = note_of(getattr(cls, name))
            if gpu_in_sight() and note is not None and note.options.padded and note.options.lengths is None:
                shapes = replace(note.options, sizes=SIZES, lengths=allowed_lengths(folder.longest))
                shapes = replace(shapes, examples=[cls.example]) if name == "predict" else shapes
                told[name] = _again(getattr(cls, name), Note(shapes, note.kind))
        return type(cls.__name__, (cls,), told)


def _again(function: Callable[..., Any], note: Note) -> Callable[..., Any]:
    """The same function with another note."""

    @functools.wraps(function)
    def same(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    setattr(same, NOTE, note)
    return same


def or_error(step: Callable[..., Any], *arguments: Any) -> Any:
    """What a step gives, or the error of the one request that it is about."""
    try:
        return step(*arguments)
    except Error as error:
        return error


def fields_of(request: HttpRequest) -> dict[str, Any]:
    """The JSON of a request on a path that several models may have, for the model that it names."""
    fields = request.json()
    if not isinstance(fields, dict):
        raise BadInput("the body must be a JSON object")
    here = context()
    if fields.get("model") not in (None, "", here.model):
        raise Error(
            f"{request.root_path or request.path} is answered by the model {here.model!r}; if there is a model "
            f"{fields['model']!r}, call /{fields['model']}/{here.endpoint}",
            status=404,
        )
    return {**fields, "model": here.model}


def checked(parameters: Any) -> dict[str, Any]:
    """A request's parameters."""
    if not isinstance(parameters, dict | None):
        raise BadInput(f"parameters must be an object, not {type(parameters).__name__}")
    return parameters or {}


def several(inputs: Any) -> tuple[list[Any], bool]:
    """The inputs of a request, and whether there was a list of them."""
    if not isinstance(inputs, list):
        return [inputs], False
    if not inputs or len(inputs) > ITEMS_MAX:
        raise BadInput(f"inputs must have 1 to {ITEMS_MAX} elements, not {len(inputs)}")
    return inputs, True


def text_of(value: Any, what: str = "inputs") -> str:
    """A text of a request."""
    if not isinstance(value, str):
        raise BadInput(f"{what} must be a text, not {type(value).__name__}")
    return value


def whole(parameters: dict[str, Any], name: str, otherwise: int, most: int) -> int:
    """A parameter that is a whole number from 1 on; what is more than the most counts as that."""
    value = parameters.get(name, otherwise)
    if type(value) is not int or value < 1:
        raise BadInput(f"{name} must be a whole number from 1 on, not {value!r}")
    return min(value, most)
