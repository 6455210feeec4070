"""The methods of a deployment as endpoints: the same parameters, called as Python calls them.

A call by handle brings positions and names; what a method cannot be given by name (`*args`, parameters before a slash)
gets names here. Type hints are not enforced, as in Ray, except where they make an object whole again that travels as
its fields.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from jitney.call.request import Request
from jitney.compat.serve.handle import CALL, CALL_ENDPOINT
from jitney.compat.serve.replica import Replica, is_generator
from jitney.definition.decorators import NOTE, Note
from jitney.definition.options import Options

REQUEST = "jitney_request"
MORE = 16
"""Arguments that `*args` may have."""
LEFT_OUT = object()
NOT_CALLED = ("reconfigure", "check_health")


def methods(target: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """What can be called of a deployment: its public methods and `__call__`."""
    if not inspect.isclass(target):
        yield CALL, target
        return
    names = dict.fromkeys(name for one in reversed(target.__mro__[:-1]) for name in vars(one))
    for name in names:
        found = getattr(target, name, None)
        if inspect.isroutine(found) and (name == CALL or not name.startswith("_")) and name not in NOT_CALLED:
            yield name, found


def method_endpoint(name: str, function: Callable[..., Any], concurrency: int) -> Any:
    """A method as an endpoint: the same parameters, and the request of the call."""
    parameters = list(inspect.signature(function).parameters.values())
    takes_self = bool(parameters) and parameters[0].name == "self"
    own = parameters[takes_self:]
    endpoint: Any
    if is_generator(function):

        async def endpoint(self: Replica, **given: Any) -> Any:
            request, args, kwargs = _call_of(own, given)
            async for piece in self.stream(name, request, args, kwargs):
                yield piece

    else:

        async def endpoint(self: Replica, **given: Any) -> Any:
            request, args, kwargs = _call_of(own, given)
            return await self.call(name, request, args, kwargs)

    shown = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *_shown(own)]
    endpoint.__signature__ = inspect.Signature(shown)
    endpoint.__annotations__ = {**_hints(function), REQUEST: Request}
    endpoint.__name__ = endpoint.__qualname__ = name
    endpoint.__doc__ = inspect.getdoc(function)
    options = Options(name=CALL_ENDPOINT if name == CALL else name, concurrency=concurrency)
    setattr(endpoint, NOTE, Note(options, "endpoint"))
    return endpoint


def _shown(own: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Parameters that can be given by name: `*args` as so many that may be left out."""
    found = []
    for one in own:
        if one.kind is one.VAR_POSITIONAL:
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            found += [inspect.Parameter(f"{one.name}_{at}", kind, default=LEFT_OUT) for at in range(MORE)]
        elif one.kind is one.POSITIONAL_ONLY:
            found.append(one.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD))
        else:
            found.append(one)
    request = inspect.Parameter(REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    at = next((at for at, one in enumerate(found) if one.kind is one.VAR_KEYWORD), len(found))
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in found]
    return _ordered([*bare[:at], request, *bare[at:]])


def _ordered(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """A parameter without a default cannot come behind one with: Python's own rule."""
    seen_default, found = False, []
    for one in parameters:
        if one.kind is one.POSITIONAL_OR_KEYWORD:
            seen_default = seen_default or one.default is not one.empty
            one = one.replace(default=None) if seen_default and one.default is one.empty else one
        found.append(one)
    return found


def _call_of(own: list[inspect.Parameter], given: dict[str, Any]) -> tuple[Request, list[Any], dict[str, Any]]:
    """The arguments of the method itself."""
    request = given.pop(REQUEST)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = True
    for one in own:
        if one.kind is one.VAR_POSITIONAL:
            more = [given.pop(f"{one.name}_{at}", LEFT_OUT) for at in range(MORE)]
            args += [value for value in more if value is not LEFT_OUT]
        elif one.kind is one.VAR_KEYWORD:
            continue
        elif one.name not in given:
            by_position = False
        elif by_position and one.kind is not one.KEYWORD_ONLY:
            args.append(given.pop(one.name))
        else:
            kwargs[one.name] = given.pop(one.name)
    return request, args, {**kwargs, **given}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Hints that make an object whole again which travels as its fields; others are not enforced, as in Ray."""
    try:
        hints = get_type_hints(function)
    except Exception:  # A name that cannot be found counts for nothing.
        return {}
    return {name: hint for name, hint in hints.items() if name != "return" and _is_made_of_fields(hint)}


def _is_made_of_fields(hint: Any) -> bool:
    return isinstance(hint, type) and (
        is_dataclass(hint) or issubclass(hint, enum.Enum) or hasattr(hint, "model_validate")
    )


def http_endpoint(concurrency: int) -> Any:
    """The endpoint of everything that comes over HTTP."""

    async def http(self: Any, request: Any) -> Any:
        """Requests over HTTP, below the route prefix."""
        return await self.answer(request)

    setattr(http, NOTE, Note(Options(raw=True, concurrency=concurrency), "endpoint"))
    return http
