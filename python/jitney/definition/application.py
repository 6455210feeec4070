"""Applications made of parts: definitions that call each other, each with workers and batches of its own.

`depends` says what a definition calls, `bind` what its object is made with; both only keep what they are
given. `graph` finds all parts of an application, in the order in which they start. How calls travel is not
known here: whoever makes an object (`construction`) says what stands for its parts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.definition import CLASS_ONLY, Definition, Endpoint, define
from jitney.definition.options import NAME, Options, make_options

ENCODINGS = ("value", "json", "bytes")
BEING_MADE: ContextVar[Mapping[str, Any] | None] = ContextVar("jitney_being_made", default=None)
"""What stands for the dependencies of the object whose constructor runs, by slot."""
PARTS_MAX = 256

View = Callable[[Any], Any]
"""Makes of a handle what the calling code gets instead of it."""


class Dependency:
    """What a definition calls: another definition, or a model of the same server by its name.

    As an attribute of a class, or as the default of a parameter of its constructor, it is a handle wherever the
    object runs as a part of an application.
    """

    slot = ""
    """The attribute of the class that it is, if it is one."""

    def __init__(self, target: Any, *, version: str = "", encoding: str = "value") -> None:
        if encoding not in ENCODINGS:
            raise DefinitionError(f"encoding must be one of {', '.join(ENCODINGS)}, not {encoding!r}")
        if isinstance(target, str) and not NAME.fullmatch(target):
            raise DefinitionError(f"{target!r} cannot be the name of a model")
        if not isinstance(target, str) and (version or encoding != "value"):
            raise DefinitionError("version and encoding are for models that are given by name")
        self.target, self.version, self.encoding = target, version, encoding

    def view(self, handle: Any) -> Any:
        """What the calling code gets: the handle itself, unless a subclass says otherwise."""
        return handle

    def __set_name__(self, owner: type, name: str) -> None:
        self.slot = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        being_made = BEING_MADE.get()
        if being_made is not None and self.slot in being_made:
            return being_made[self.slot]
        raise RuntimeError(
            f"{type(instance).__name__}.{self.slot} is a part of an application, and nothing serves it here: "
            "start it with `jitney serve` or jitney.run, or load it in a test with jitney.testing.load"
        )

    def __repr__(self) -> str:
        target = self.target if isinstance(self.target, (str, Bound)) else getattr(self.target, "__name__", "...")
        return f"jitney.depends({target!r})"


@dataclass(frozen=True, eq=False)
class Bound:
    """A definition with what its object is made with. `Bound`s and `Dependency`s among the arguments, also inside
    lists, tuples and dictionaries, are parts: the object gets handles in their place."""

    target: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    """The part's name, if not that of the definition."""
    options: Options | None = None
    """Options that override those of the definition and of its endpoints."""
    view: View | None = None
    """What the code that calls this part gets instead of a plain handle."""
    numbered: bool = False
    """Whether a name that another part has already gets a number, as in `Model_1`, instead of being an error."""

    def with_options(self, *, name: str | None = None, **options: Any) -> Bound:
        """The same with other options, as `workers=4`; those left out stay as they are."""
        merged = make_options("bind", options).over(self.options or Options()) if options else self.options
        return replace(self, name=name or self.name, options=merged)

    def __jitney_application__(self) -> Bound:
        return self

    @cached_property
    def definition(self) -> Definition:
        """The definition with the name and the options that were given here."""
        plain = define(self.target)
        options = self.options or Options()
        name = self.name or options.name or plain.name
        if not NAME.fullmatch(name):
            raise DefinitionError(f"{name!r} cannot name a model: letters, digits, '_', '-' and '.' can")
        endpoints = tuple(_with_options(one, options) for one in plain.endpoints)
        options = options.over(plain.options)
        version = options.version or plain.version
        return replace(plain, name=name, version=version, endpoints=endpoints, options=options, bound=self)

    def __repr__(self) -> str:
        return f"jitney.bind({getattr(self.target, '__name__', type(self.target).__name__)}, ...)"


def _with_options(endpoint: Endpoint, given: Options) -> Endpoint:
    """An endpoint with the given options that concern endpoints."""
    for_batches = ("max_batch_size", "sizes", "lengths", "cost", "padded", "bucket", "warm_up")
    dropped = [*CLASS_ONLY, *(() if endpoint.batched else for_batches)]
    if not endpoint.is_async:
        dropped.append("concurrency")
    own = replace(given, **dict.fromkeys(dropped))
    if own == Options():
        return endpoint
    first = next((param.name for param in endpoint.params if not param.is_request), "")
    return replace(endpoint, options=own.over(endpoint.options).about(first))


def depends(target: Any, *, version: str = "", encoding: str = "value") -> Any:
    """Another definition, or a model of the same server, that this one calls.

    Write it as an attribute of a class, or as the default of a parameter of its constructor; there it is a handle,
    whose calls go through the batches of that part. A text names a model of the same server; `encoding` is how its
    arguments are sent if it is not written with this package: "json" or "bytes".
    """
    return Dependency(target, version=version, encoding=encoding)


def bind(target: Any, /, *args: Any, name: str | None = None, **kwargs: Any) -> Bound:
    """A definition with the arguments of its constructor: `jitney serve app.py:app` serves it.

    Arguments that are bound themselves, or `jitney.depends(...)`, are parts of the application. `name` is the name
    under which it is served. `.with_options(workers=2, ...)` overrides options of its decorators.
    """
    if isinstance(target, Bound):
        raise DefinitionError(f"{target!r} is bound already")
    return Bound(target, args, kwargs, name)


def bound_of(target: Any) -> Bound:
    """What is to be served, as a `Bound`."""
    if isinstance(target, Definition):
        return target.bound if isinstance(target.bound, Bound) else Bound(target)
    hook = None if isinstance(target, type) else getattr(target, "__jitney_application__", None)
    if hook is None:
        return Bound(target)
    found = hook()
    if not isinstance(found, Bound):
        raise DefinitionError(f"{target!r} gave {found!r} for its application, which is not a jitney.Bound")
    return found


@dataclass(frozen=True)
class Link:
    """One thing that a part calls."""

    slot: str
    """Where its object has it: an attribute, or a parameter with what leads into its value, as in `models[0]`."""
    model: str
    """The name of another part, or of a model that is not of this application."""
    is_part: bool
    version: str = ""
    """The version of a model that is not of this application; empty for its default one."""
    encoding: str = "value"
    view: View | None = None
    endpoints: tuple[str, ...] = ()
    """The endpoints of a part, so that a wrong name is found out where it is written."""


@dataclass(frozen=True)
class Part:
    """One definition of an application."""

    name: str
    definition: Definition
    bound: Bound
    links: tuple[Link, ...] = ()

    @property
    def depends(self) -> dict[str, str]:
        """The names of the parts that it calls, by slot."""
        return {link.slot: link.model for link in self.links if link.is_part}


@dataclass(frozen=True)
class Application:
    """Definitions that call each other."""

    parts: tuple[Part, ...]
    """Those that are called come first, the one that was asked for last."""

    @property
    def root(self) -> Part:
        """The part that was asked for."""
        return self.parts[-1]

    def part(self, name: str) -> Part:
        """The part of this name."""
        found = next((one for one in self.parts if one.name == name), None)
        if found is None:
            raise DefinitionError(f"there is no part {name!r}; there are: {', '.join(one.name for one in self.parts)}")
        return found


def graph(target: Any) -> Application:
    """All parts of an application."""
    return Application(_in_order(_Collector().collect(bound_of(target))))


class _Collector:
    """Finds the parts behind one of them."""

    def __init__(self) -> None:
        self._names: dict[str, Bound] = {}
        self._found: dict[str, list[tuple[str, Any]]] = {}

    def collect(self, root: Bound) -> dict[str, Part]:
        self._add(root)
        return {name: self._part(name, bound) for name, bound in self._names.items()}

    def _add(self, bound: Bound) -> None:
        """Keeps a part and all that it calls, once."""
        if self._name_of(bound) is not None:
            return
        name = self._free_name(bound)
        if len(self._names) >= PARTS_MAX:
            raise DefinitionError(f"an application has at most {PARTS_MAX} parts")
        self._names[name] = bound
        self._found[name] = list(dependencies(bound))
        for _, one in self._found[name]:
            if not (isinstance(one, Dependency) and isinstance(one.target, str)):
                self._add(_target(one))

    def _name_of(self, bound: Bound) -> str | None:
        return next((name for name, known in self._names.items() if _same(bound, known)), None)

    def _free_name(self, bound: Bound) -> str:
        name = first = bound.definition.name
        number = 0
        while bound.numbered and name in self._names:
            number += 1
            name = f"{first}_{number}"
        if name in self._names:
            raise DefinitionError(
                f"two different parts are called {name!r}; give one of them another name: "
                f'jitney.bind({getattr(bound.target, "__name__", "...")}, name="...")'
            )
        return name

    def _part(self, name: str, bound: Bound) -> Part:
        definition = bound.definition if bound.definition.name == name else replace(bound.definition, name=name)
        return Part(name, definition, bound, tuple(self._link(slot, one) for slot, one in self._found[name]))

    def _link(self, slot: str, one: Any) -> Link:
        view = one.view
        if isinstance(one, Dependency) and isinstance(one.target, str):
            part = self._names.get(one.target)
            endpoints = () if part is None else _endpoints(part)
            return Link(slot, one.target, part is not None, one.version, one.encoding, view, endpoints)
        bound = _target(one)
        name = self._name_of(bound)
        assert name is not None
        outer = bound.view
        both = view if view is None or outer is None or one is bound else lambda handle: view(outer(handle))
        return Link(slot, name, True, view=both or outer, endpoints=_endpoints(bound))


def _endpoints(bound: Bound) -> tuple[str, ...]:
    return tuple(one.name for one in bound.definition.endpoints)


def _target(one: Any) -> Bound:
    """The part that a dependency, or a bound argument, means."""
    return one if isinstance(one, Bound) else bound_of(one.target)


def dependencies(bound: Bound) -> Iterator[tuple[str, Any]]:
    """Every `Dependency` and `Bound` that an object made of `bound` would get, with its slot."""
    given = dict(arguments_of(bound))
    for slot, one in class_dependencies(bound.target).items():
        yield slot, given.pop(slot, one)
    for name, value in given.items():
        yield from inside(name, value)


def class_dependencies(target: Any) -> dict[str, Dependency]:
    """Dependencies that are attributes of a class, or of an object's class."""
    if inspect.isroutine(target) or isinstance(target, Definition):
        return class_dependencies(target.target) if isinstance(target, Definition) else {}
    owner = target if isinstance(target, type) else type(target)
    names = dict.fromkeys(name for one in reversed(owner.__mro__) for name in vars(one))
    found = ((name, inspect.getattr_static(owner, name, None)) for name in names)
    return {name: one for name, one in found if isinstance(one, Dependency)}


def arguments_of(bound: Bound) -> Iterator[tuple[str, Any]]:
    """The arguments that its object is made with, by parameter: given ones, and defaults that are dependencies."""
    target = bound.target.target if isinstance(bound.target, Definition) else bound.target
    if not isinstance(target, type):
        _check_function(target, bound)
        return
    attributes = class_dependencies(target)
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        yield from ((str(at), value) for at, value in enumerate(bound.args))
        yield from bound.kwargs.items()
        return
    overridden = {name for name in bound.kwargs if name in attributes and name not in signature.parameters}
    try:
        own = {name: value for name, value in bound.kwargs.items() if name not in overridden}
        given = signature.bind(*bound.args, **own)
    except TypeError as error:
        raise DefinitionError(f"{target.__name__} cannot be made with these arguments: {error}") from None
    yield from ((name, bound.kwargs[name]) for name in overridden)
    for name, parameter in signature.parameters.items():
        if name in given.arguments:
            yield name, given.arguments[name]
        elif isinstance(parameter.default, (Dependency, Bound)):
            yield name, parameter.default


def _check_function(target: Any, bound: Bound) -> None:
    if bound.args or bound.kwargs:
        raise DefinitionError(f"{bound!r}: only a class is made with arguments")
    if inspect.isroutine(target):
        defaults = (parameter.default for parameter in inspect.signature(target).parameters.values())
        if any(isinstance(one, (Dependency, Bound)) for one in defaults):
            raise DefinitionError(
                f"{target.__name__} is a function, and only a class can depend on others: write a class with "
                "an attribute `jitney.depends(...)` and a method marked with @jitney.endpoint"
            )


def inside(slot: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The dependencies in an argument, with what leads to each."""
    if isinstance(value, (Dependency, Bound)):
        yield slot, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from inside(f"{slot}[{key!r}]", one)
    elif isinstance(value, (list, tuple)):
        for at, one in enumerate(value):
            yield from inside(f"{slot}[{at}]", one)


def _same(one: Any, other: Any) -> bool:
    """Whether two values make the same part."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Bound):
        return (
            one.target is other.target
            and (one.name, one.options, one.numbered) == (other.name, other.options, other.numbered)
            and not (one.numbered and (one.args or one.kwargs))
            and _same(one.args, other.args)
            and _same(dict(one.kwargs), dict(other.kwargs))
        )
    if isinstance(one, Dependency):
        same_target = one.target is other.target or _same(one.target, other.target)
        return same_target and (one.version, one.encoding) == (other.version, other.encoding)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    try:
        return bool(one == other)
    except Exception:  # Arrays, for example, have no single answer.
        return False


def _in_order(parts: Mapping[str, Part]) -> tuple[Part, ...]:
    """Those that are called before those that call them; a circle is an error."""
    ordered: dict[str, Part] = {}
    path: list[str] = []

    def put(name: str) -> None:
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise DefinitionError(f"parts call each other in a circle: {circle}; one of them must do without the other")
        if name in ordered:
            return
        path.append(name)
        for called in parts[name].depends.values():
            put(called)
        path.pop()
        ordered[name] = parts[name]

    put(next(iter(parts)))
    return tuple(ordered.values())
