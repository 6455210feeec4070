"""A definition: what is served under one name, for every kind of caller.

It is made from what the user wrote (a function, a class, an object) and knows names, options and
endpoints. It knows neither HTTP nor frames nor files: transports build on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition import expressions, hints
from jitney.definition.decorators import Note, note_of
from jitney.definition.expressions import Expression
from jitney.definition.hints import MISSING, FunctionShape, Param
from jitney.definition.options import BATCH_SIZE_DEFAULT, NAME, Options
from jitney.definition.signature import OUTPUT, Signature, array_type, signature
from jitney.gpu.shapes import AllowedShapes
from jitney.values.tensor import Tensor

SINGLE_ASYNC_CONCURRENCY = 100
"""Default limit of concurrent calls of a single-item `async` function in one worker."""

CLASS_ONLY = (
    "workers",
    "max_workers",
    "name",
    "version",
    "queue",
    "response_timeout_s",
    "startup_timeout_s",
    "mix_origins",
    "max_sequences",
    "max_sequence_queue",
    "sequence_max_idle_ms",
    "overlap",
    "device",
    "device_ids",
    "gpu_memory_fraction",
    "gpu_turns",
    "cpus",
    "ray",
    "mount",
    "health_routes",
)
"""Options that belong to a model and not to one of its endpoints."""

RETURN = "return"
SCALARS = (int, float, str, bool, bytes, dict)
"""Types of single values, which no parameter of a batch function has."""
HANDLE_NAMES = ("close", "configure", "management_url", "options", "remote", "stream", "submit", "url")
"""What `handle.NAME` is on a handle itself; no endpoint of such a name can be reached that way."""


@dataclass(frozen=True)
class Endpoint:
    """One way to call a model."""

    name: str
    attribute: str | None
    """The method's name; None if the definition is a function."""
    batched: bool
    is_async: bool
    streams: bool
    options: Options
    shape: FunctionShape
    doc: str
    tensors: Signature

    @cached_property
    def raw(self) -> bool:
        """Whether it takes requests as they came."""
        return bool(self.options.raw)

    @property
    def may_stream(self) -> bool:
        """Whether an answer may come in pieces; where a call is for one item, the answer decides."""
        return self.streams or not self.batched

    @cached_property
    def lists(self) -> frozenset[str]:
        """Parameters annotated as lists; arrays in them are not joined."""
        return frozenset(param.name for param in self.params if param.is_list)

    @cached_property
    def takes_lists(self) -> bool:
        """Whether items can share a call whatever their arguments are: list parameters only, and no bucket."""
        lists_only = all(param.is_list or param.is_request for param in self.params)
        return lists_only and not self.shape.takes_any and self.options.bucket is None

    @cached_property
    def is_plain(self) -> bool:
        """Whether all items can share a call: it takes lists, and items cost the same."""
        return self.takes_lists and self.options.cost is None

    def mistakes(self) -> list[str]:
        """What cannot be meant, as far as its hints tell."""
        if not self.batched:
            return []
        scalars = {param.name: param.hint for param in self.params if not param.is_list and param.hint in SCALARS}
        found = [
            f"parameter {name!r} is annotated {hint.__name__}, but arrives as a list: write list[{hint.__name__}]"
            for name, hint in scalars.items()
        ]
        if self.shape.gives_scalar:
            kind = self.shape.output.__name__
            found.append(f"it is annotated to return {kind}, but must return one output per item: write list[{kind}]")
        return found

    @cached_property
    def params(self) -> tuple[Param, ...]:
        """What it takes."""
        return self.shape.params

    @property
    def max_batch_size(self) -> int:
        """The most items, rows or cost of one call."""
        by_sizes = self.options.sizes[-1] if self.options.sizes and self.options.cost is None else None
        return (self.options.max_batch_size or by_sizes or BATCH_SIZE_DEFAULT) if self.batched else 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of items that it is run at, if not at any: up to the largest batch, which is one of them unless
        it is limited by something else than items."""
        sizes = tuple(self.options.sizes or ())
        if not sizes or self.options.cost is not None:
            return sizes
        most = self.max_batch_size
        return (*(size for size in sizes if size < most), most)

    @cached_property
    def shapes(self) -> AllowedShapes:
        """What its function is run at."""
        return AllowedShapes(self.sizes, tuple(self.options.lengths or ()), self.max_batch_size)

    @property
    def most_items(self) -> int:
        """The size of its batches to the server: the most items where sizes say how many, apart from what they cost."""
        return self.sizes[-1] if self.sizes else self.max_batch_size

    def resized(self, size: int) -> Endpoint:
        """The same with other largest batches."""
        options = self.options
        if not options.sizes or options.cost is None:
            return replace(self, options=replace(options, max_batch_size=size))
        sizes = (*(one for one in options.sizes if one < size), size)
        return replace(self, options=replace(options, sizes=sizes))

    def reshaped(self, sizes: tuple[int, ...], lengths: tuple[int, ...]) -> Endpoint:
        """The same with other sizes or lengths, where there are some; only what pads has lengths."""
        options = self.options
        if not self.batched:
            return self
        lengths = lengths if options.padded else ()
        told = replace(options, sizes=sizes or options.sizes, lengths=lengths or options.lengths)
        return replace(self, options=told)

    @property
    def concurrency(self) -> int:
        """Calls that may be under way in one worker."""
        alone = self.is_async and not self.batched
        return self.options.concurrency or (SINGLE_ASYNC_CONCURRENCY if alone else 1)

    @property
    def runs_beside(self) -> bool:
        """Whether its calls need no turn of the worker's: an `async` function that takes one item at a time."""
        return self.is_async and not self.batched and self.concurrency > 1


@dataclass(frozen=True)
class Definition:
    """Everything that is served under one name."""

    target: Any
    """What the user wrote."""
    name: str
    version: str
    doc: str
    endpoints: tuple[Endpoint, ...]
    options: Options
    bound: Any = None
    """What its object is made with, if it was bound (`jitney.Bound`)."""

    @property
    def default(self) -> Endpoint | None:
        """The endpoint of a call that names none: the only one, `__call__` or `predict`."""
        if len(self.endpoints) == 1:
            return self.endpoints[0]
        return next((one for one in self.endpoints if one.name in ("call", "predict")), None)

    def endpoint(self, name: str = "") -> Endpoint:
        """The endpoint of this name, or the default one."""
        found = next((one for one in self.endpoints if one.name == name), None) if name else self.default
        if found is None:
            known = ", ".join(one.name for one in self.endpoints)
            raise LookupError(f"{self.name} has no endpoint {name!r}; it has: {known}")
        return found

    def remarks(self) -> list[str]:
        """Warnings about legal but surprising choices."""
        hidden = (one.name for one in self.endpoints if one.name in HANDLE_NAMES)
        found = [
            f"handle.{name} is something else on every handle; call this endpoint with "
            f'handle.options(method_name="{name}").remote(...), or give it another name with name='
            for name in hidden
        ]
        if inspect.isroutine(self.target) and note_of(self.target) is None:
            found.append(
                "it has no decorator of jitney, so that it is called with one item at a time, as with "
                "@jitney.endpoint; @jitney.batch is for functions that take lists"
            )
        return found

    def mistakes(self) -> list[str]:
        """What cannot be meant, as far as reading tells."""
        return [f"{one.name}: {mistake}" for one in self.endpoints for mistake in one.mistakes()]

    @property
    def most_items(self) -> int:
        """The size of its batches to the server."""
        return max(one.most_items for one in self.endpoints)

    @property
    def max_batch_size(self) -> int:
        """The most items that any endpoint takes at a time."""
        return max(one.max_batch_size for one in self.endpoints)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of items that its endpoints are run at; none if one of them takes any."""
        return _together([one.sizes for one in self.endpoints if one.batched])

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that items are padded to; none if an endpoint takes any."""
        return _together([one.shapes.lengths for one in self.endpoints if one.batched])

    @property
    def shapes(self) -> AllowedShapes:
        """What its functions are run at."""
        return AllowedShapes(self.sizes, self.lengths, self.max_batch_size)

    def reshaped(self, sizes: Sequence[int], lengths: Sequence[int]) -> Definition:
        """The same at the sizes and lengths that the operator chose, where he chose any."""
        others = tuple(sizes) if tuple(sizes) != self.sizes else ()
        other_lengths = tuple(lengths) if tuple(lengths) != self.lengths else ()
        if not others and not other_lengths:
            return self
        return replace(self, endpoints=tuple(one.reshaped(others, other_lengths) for one in self.endpoints))

    @property
    def concurrency(self) -> int:
        """Calls that may be under way in one worker."""
        return max(one.concurrency for one in self.endpoints)

    @property
    def is_mixed(self) -> bool:
        """Whether some endpoints run side by side while batches of the others are planned one after another."""
        beside = [one.runs_beside for one in self.endpoints]
        return (
            any(beside) and not all(beside) and all(one.concurrency == 1 or one.runs_beside for one in self.endpoints)
        )


def _together(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({one for each in shapes for one in each})) if all(shapes) else ()


def define(target: Any, *, name: str | None = None) -> Definition:
    """Reads a definition from a function, a class or an object that can be called. `name` is for what has none."""
    if isinstance(target, Definition):
        return target if name is None else replace(target, name=name)
    application = None if isinstance(target, type) else getattr(target, "__jitney_application__", None)
    if application is not None:
        return define(application().definition, name=name)
    if not callable(target) and not _marked_methods(target) and not hasattr(target, "predict"):
        raise DefinitionError(f"{target!r} cannot be served: it is neither a function nor a class")
    marked = _marked_methods(target)
    note = note_of(target) or Note(Options(), "model" if marked else "endpoint")
    if inspect.isroutine(target):
        endpoints: tuple[Endpoint, ...] = (_endpoint("call", None, target, note),)
    elif marked:
        endpoints = tuple(_method(target, name, note) for name in marked)
    else:
        endpoints = (_method(target, _main_method(target), note),)
    name = name or note.options.name or _name_of(target)
    doc = inspect.getdoc(target) or ""
    return Definition(target, name, note.options.version or "1.0", doc, endpoints, note.options)


def _method(target: Any, attribute: str, outer: Note) -> Endpoint:
    """A method as an endpoint; options that it does not set come from the class."""
    function = getattr(target, attribute)
    note = note_of(function)
    if note is None:
        note = outer if outer.kind != "model" else Note(outer.options, "endpoint")
    else:
        misplaced = [name for name in CLASS_ONLY if getattr(note.options, name) is not None and name != "name"]
        if misplaced:
            raise DefinitionError(f"{attribute}: {', '.join(misplaced)} belongs to @jitney.model on the class")
        note = Note(note.options.over(outer.options), note.kind)
    own = note_of(function)
    name = (own.options.name if own else None) or attribute.strip("_")
    return _endpoint(name, attribute, function, note, skip_self=isinstance(target, type))


def _endpoint(
    name: str, attribute: str | None, function: Callable[..., Any], note: Note, skip_self: bool = False
) -> Endpoint:
    bare = inspect.unwrap(function)
    streams = inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare)
    is_async = inspect.iscoroutinefunction(bare) or inspect.isasyncgenfunction(bare)
    batched = note.kind == "batch"
    if not is_async and (note.options.concurrency or 1) > 1:
        raise DefinitionError(f"{name}: concurrency is for `async` functions; use workers for others")
    misplaced = [one for one in ("sizes", "lengths", "warm_up") if getattr(note.options, one) is not None]
    if not batched and misplaced:
        raise DefinitionError(f"{name}: {misplaced[0]} needs @jitney.batch; it takes one item at a time")
    if not batched and (note.options.max_batch_size or 1) > 1:
        raise DefinitionError(f"{name}: max_batch_size needs @jitney.batch; it takes one item at a time")
    shape = hints.read(function, batched, streams, skip_self)
    if note.options.raw:
        shape = _raw(name, shape, batched)
    inputs, outputs = _declared(shape, note.options)
    shape = _with_rest(name, _with_arrays(shape, inputs), inputs, batched)
    if batched and not any(not param.is_request for param in shape.params) and not shape.takes_any:
        raise DefinitionError(f"{name}: a batch function needs a parameter that arrives as a list")
    first = next((param.name for param in shape.params if not param.is_request), "")
    options, doc = note.options.about(first), inspect.getdoc(function) or ""
    for option, given in (("cost", options.cost), ("bucket", options.bucket)):
        if isinstance(given, Expression):
            expressions.check(name, option, given, shape.params)
    tensors = signature(name, batched, shape, inputs, outputs, options.dims[0])
    return Endpoint(name, attribute, batched, is_async, streams, options, shape, doc, tensors)


def _raw(name: str, shape: FunctionShape, batched: bool) -> FunctionShape:
    """A raw endpoint has one parameter, which takes whatever comes."""
    if len(shape.params) != 1 or shape.takes_any:
        raise DefinitionError(f"{name}: a raw endpoint has one parameter, the jitney.HttpRequest")
    return replace(shape, params=(replace(shape.params[0], hint=Any, is_request=False, is_list=batched),))


def _declared(shape: FunctionShape, options: Options) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs and outputs as the hints declare them, and the decorator before them."""
    inputs = {name: tensor for name, tensor in shape.tensors.items() if name != RETURN}
    outputs = {OUTPUT: shape.tensors[RETURN]} if RETURN in shape.tensors else {}
    return {**inputs, **(options.inputs or {})}, dict(options.outputs or outputs)


def _with_arrays(shape: FunctionShape, inputs: Mapping[str, Tensor]) -> FunctionShape:
    """The same with arrays for the declared parameters that have no hint."""
    bare = {param.name for param in shape.params if param.hint is Any and not param.is_list} & inputs.keys()
    if not bare:
        return shape
    import numpy

    params = (replace(param, hint=numpy.ndarray) if param.name in bare else param for param in shape.params)
    return replace(shape, params=tuple(params))


def _with_rest(name: str, shape: FunctionShape, inputs: Mapping[str, Tensor], batched: bool) -> FunctionShape:
    """The same with a parameter for each array of `**batch` that is declared."""
    known = {param.name for param in shape.params}
    declared = [one for one in inputs if one not in known]
    if not shape.takes_any or (not declared and (shape.any_hint is not MISSING or known or not batched)):
        return shape
    if not declared:
        raise DefinitionError(
            f"{name}: nothing says what **kwargs brings: write **batch: np.ndarray (or torch.Tensor) for arrays of any "
            "name, declare them with inputs={'x': jitney.Tensor('FP32', [-1, 3])}, or name the parameters"
        )
    hint = shape.any_hint if array_type(shape.any_hint) is not None else None
    if hint is None:
        import numpy

        hint = numpy.ndarray
    params = (*shape.params, *(Param(one, hint, MISSING) for one in declared))
    return replace(shape, params=params, takes_any=False)


def _marked_methods(target: Any) -> list[str]:
    if inspect.isroutine(target):
        return []
    owner = target if isinstance(target, type) else type(target)
    written = {name: None for one in reversed(owner.__mro__) for name in vars(one)}
    return [name for name in written if inspect.isroutine(one := getattr(owner, name, None)) and note_of(one)]


def _main_method(target: Any) -> str:
    owner = target if isinstance(target, type) else type(target)
    # Not `getattr` alone: every class can be called itself.
    written = {name: None for one in reversed(owner.__mro__[:-1]) for name in vars(one)}
    methods = [name for name in written if inspect.isroutine(getattr(owner, name))]
    for name in ("__call__", "predict"):
        if name in methods:
            return name
    example = next((name for name in methods if not name.startswith("_")), "predict")
    raise DefinitionError(
        f"{owner.__name__} has no endpoint: put @jitney.batch (it takes lists) or @jitney.endpoint (it takes one item) "
        f"before a method, for example before {example!r}, or name one __call__ or predict"
    )


def _name_of(target: Any) -> str:
    name = getattr(target, "__name__", None) or type(target).__name__
    if not NAME.fullmatch(name):
        what = "a lambda has no name for its model" if name == "<lambda>" else f"{name!r} cannot name a model"
        raise DefinitionError(f"{what}; set name= in the decorator or in jitney.run")
    return name
