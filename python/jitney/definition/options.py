"""The options of a definition, checked where they are written down.

This class is their only declaration: type checkers read it too (see `decorators`), and a test compares bounds and words
with the settings of the server that they become. They are plain values: how a batch is formed is decided by the server,
what functions as `cost` and `bucket` mean for the items of a batch by `jitney.execution.grouping`. Expressions are read
here, and evaluated by both.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition import expressions
from jitney.definition.expressions import Expression
from jitney.values.tensor import Tensor

Dims = int | tuple[int, int]

BATCH_SIZE_DEFAULT = 32
BATCH_SIZE_MAX = 65535
LENGTH_MAX = 2**31 - 1
CONCURRENCY_MAX = 255
SHAPES_MAX = 64
"""So many sizes, or lengths, a function may have."""
GPUS_MAX = 1024
DEVICES = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu"}
"""Where workers run, as the server calls it."""

WHOLE_MAX = 2**31 - 1
WHOLE = {
    "max_batch_size": BATCH_SIZE_MAX,
    "concurrency": CONCURRENCY_MAX,
    "overlap": 8,
    **dict.fromkeys(("max_workers", "queue", "response_timeout_s", "startup_timeout_s"), WHOLE_MAX),
    **dict.fromkeys(("max_sequences", "max_sequence_queue"), WHOLE_MAX),
}
"""Options that are whole numbers, from 1 to this."""
WORDS = {
    "policy": ("adaptive", "window", "opportunistic"),
    "openai": ("embeddings",),
    "device": tuple(DEVICES),
}
"""Options that are one of some words."""
FLAGS = ("padded", "gpu_turns", "raw", "route_shared", "mix_origins", "task_routes")
FRACTION_MIN = 0.01
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
PATH = re.compile(r"/[^\s?#]*")
CPUS = re.compile(r"auto|none|\d+(-\d+)?(,\d+(-\d+)?)*")
METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
HEALTH = ("live", "ready")
"""What paths of `health_routes` answer: whether the server lives, or is ready."""


class UnknownOption(DefinitionError, TypeError):
    """A decorator was given an option that it does not have."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a decorator; None where not set."""

    max_batch_size: int | None = None
    max_latency_ms: float | None = None
    max_batch_delay_ms: float | None = None
    policy: str | None = None
    batch_dim: Dims | None = None
    cost: Callable[..., float] | str | None = None
    padded: bool | None = None
    sizes: Sequence[int] | None = None
    lengths: Sequence[int] | None = None
    bucket: Callable[..., Any] | str | None = None
    concurrency: int | None = None
    workers: int | None = None
    max_workers: int | None = None
    name: str | None = None
    version: str | None = None
    queue: int | None = None
    response_timeout_s: int | None = None
    startup_timeout_s: int | None = None
    mix_origins: bool | None = None
    max_sequences: int | None = None
    max_sequence_queue: int | None = None
    sequence_max_idle_ms: float | None = None
    overlap: int | None = None
    device: str | None = None
    device_ids: Sequence[int] | None = None
    gpu_memory_fraction: float | None = None
    gpu_turns: bool | None = None
    cpus: str | None = None
    ray: Mapping[str, Any] | None = None
    openai: str | None = None
    raw: bool | None = None
    route: str | None = None
    route_shared: bool | None = None
    task_routes: bool | None = None
    mount: str | None = None
    health_routes: Mapping[str, str] | None = None
    metric_names: Sequence[tuple[str, Mapping[str, str]]] | None = None
    examples: Sequence[Mapping[str, Any]] | None = None
    warm_up: Sequence[Mapping[str, Any]] | None = None
    inputs: Mapping[str, Tensor] | None = None
    outputs: Mapping[str, Tensor] | None = None

    def __post_init__(self) -> None:
        for name, most in WHOLE.items():
            _whole(self, name, 1, most)
        _whole(self, "workers", 0, WHOLE_MAX)
        if self.workers == 0 and self.max_workers is None:
            raise DefinitionError("workers=0 needs max_workers: how many workers requests may start")
        for name, words in WORDS.items():
            if (word := getattr(self, name)) is not None and word not in words:
                raise DefinitionError(f"{name} must be one of {', '.join(words)}, not {word!r}")
        for name in ("max_latency_ms", "max_batch_delay_ms", "sequence_max_idle_ms"):
            _time(self, name)
        if self.max_sequences is None and (self.max_sequence_queue or self.sequence_max_idle_ms):
            raise DefinitionError("options about sequences need max_sequences: how many there may be at a time")
        for name in ("cost", "bucket"):
            _measure(self, name)
        for name in ("sizes", "lengths"):
            _ascending(self, name)
        for name in FLAGS:
            _truth(self, name)
        if self.lengths is not None and self.padded is None:
            object.__setattr__(self, "padded", True)
        if self.lengths is not None and not self.padded:
            raise DefinitionError("lengths are for functions that pad their items; leave padded=False out")
        if self.padded and self.cost is None:
            what = "padded" if self.lengths is None else "lengths"
            raise DefinitionError(f"{what} needs cost: the length of an item, as a function or an expression")
        _gpu(self)
        if self.cpus is not None and not (isinstance(self.cpus, str) and CPUS.fullmatch(self.cpus)):
            raise DefinitionError(f"cpus must be auto, none, or processors such as 0-3,8, not {self.cpus!r}")
        _ray(self.ray)
        _paths(self)
        _metric_names(self.metric_names)
        for name in ("name", "version"):
            text = getattr(self, name)
            if text is not None and not (isinstance(text, str) and NAME.fullmatch(text)):
                raise DefinitionError(f"{name} must be letters, digits, '_', '-' and '.', not {text!r}")
        for name in ("examples", "warm_up"):
            for example in getattr(self, name) or ():
                if not isinstance(example, Mapping):
                    raise DefinitionError(f"{name} has dictionaries of one item's arguments, not {example!r}")
        for name in ("inputs", "outputs"):
            _tensors(name, getattr(self, name))
        _ = self.dims

    @property
    def route_methods(self) -> tuple[str, list[str]] | None:
        """The path of `route` and its methods; no methods for those of every prediction."""
        methods, _, path = (self.route or "").rpartition(" ")
        return (path, [one.strip().upper() for one in methods.split(",") if one.strip()]) if self.route else None

    @property
    def dims(self) -> tuple[int, int]:
        """The dimensions along which inputs are joined and outputs cut."""
        dims = 0 if self.batch_dim is None else self.batch_dim
        pair = (dims, dims) if isinstance(dims, int) else dims
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(type(dim) is int for dim in pair)):
            raise DefinitionError(f"batch_dim must be a number or a pair (input, output), not {dims!r}")
        return pair

    @cached_property
    def cost_of(self) -> Callable[[Mapping[str, Any]], float] | None:
        """The cost of one item, by its arguments."""
        if isinstance(self.cost, Expression):
            return self.cost.of
        return _of_arguments(self.cost) if callable(self.cost) else None

    @cached_property
    def bucket_of(self) -> Callable[[Mapping[str, Any]], Any] | None:
        """The group of one item, by its arguments."""
        if isinstance(self.bucket, Expression):
            return self.bucket.of
        return _of_arguments(self.bucket) if callable(self.bucket) else None

    def about(self, first: str) -> Options:
        """The same with expressions that name their parameters."""
        return replace(self, cost=_about(self.cost, first), bucket=_about(self.bucket, first))

    def over(self, lower: Options) -> Options:
        """These; unset ones come from `lower`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(lower, **{name: value for name, value in own.items() if value is not None})


def make_options(decorator: str, given: Mapping[str, Any]) -> Options:
    """The options of a decorator; an unknown name is an error with the nearest known one."""
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}"
            raise UnknownOption(f"@jitney.{decorator} has no option {name!r}; {hint}")
    return Options(**given)


def _of_arguments(function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Calls a function with an item's arguments by name, or in their order if it knows no names, as `len`."""
    try:
        params = inspect.signature(function).parameters.values()
        by_place = all(param.kind is param.POSITIONAL_ONLY for param in params)
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        by_place = True
    return (lambda item: function(*item.values())) if by_place else (lambda item: function(**item))


def _about(value: Any, first: str) -> Any:
    return value.about(first) if isinstance(value, Expression) else value


def _measure(options: Options, name: str) -> None:
    """A function of one item's arguments, or an expression."""
    value = getattr(options, name)
    if isinstance(value, str):
        object.__setattr__(options, name, expressions.parse(name, value))
    elif value is not None and not callable(value):
        raise DefinitionError(f"{name} must be a function of one item's arguments, or an expression such as 'len'")


def _tensors(name: str, given: Any) -> None:
    """Tensors by their names."""
    if given is None:
        return
    named = isinstance(given, Mapping) and all(isinstance(key, str) and key for key in given)
    if not named or not all(isinstance(one, Tensor) for one in given.values()):
        raise DefinitionError(f"{name} is a dictionary such as {{'x': jitney.Tensor('FP32', [-1, 3])}}, not {given!r}")


def _whole(options: Options, name: str, least: int, most: int) -> None:
    value = getattr(options, name)
    if value is None:
        return
    if isinstance(value, float) and value.is_integer():
        value = int(value)
        object.__setattr__(options, name, value)
    if type(value) is not int or not least <= value <= most:
        raise DefinitionError(f"{name} must be a whole number from {least} to {most}, not {value!r}")


def _ascending(options: Options, name: str) -> None:
    """Whole numbers, each larger than the one before."""
    given = getattr(options, name)
    if given is None:
        return
    most = BATCH_SIZE_MAX if name == "sizes" else LENGTH_MAX
    whole = isinstance(given, (list, tuple)) and all(type(one) is int and 1 <= one <= most for one in given)
    if not whole or not 1 <= len(given) <= SHAPES_MAX or list(given) != sorted(set(given)):
        raise DefinitionError(
            f"{name} must be up to {SHAPES_MAX} whole numbers from 1 to {most} in ascending order, not {given!r}"
        )
    object.__setattr__(options, name, tuple(given))


def _truth(options: Options, name: str) -> None:
    value = getattr(options, name)
    if value not in (None, True, False):
        raise DefinitionError(f"{name} must be True or False, not {value!r}")


RAY_KEYS = ("num_cpus", "num_gpus", "resources", "ship")
"""What may be said of the place of a worker in a Ray cluster."""


def _ray(place: Mapping[str, Any] | None) -> None:
    """What a worker needs of its node."""
    if place is None:
        return
    if not isinstance(place, Mapping) or not set(place) <= set(RAY_KEYS):
        raise DefinitionError(f"ray has {', '.join(RAY_KEYS)}, not {place!r}")
    resources = place.get("resources", {})
    amounts = [place.get("num_cpus", 1), place.get("num_gpus", 0)]
    amounts += resources.values() if isinstance(resources, Mapping) else ["?"]
    if not all(isinstance(amount, (int, float)) and amount >= 0 for amount in amounts):
        raise DefinitionError(f"num_cpus, num_gpus and each of resources in ray is a number from 0 on, not {place!r}")


def _gpu(options: Options) -> None:
    """What concerns GPUs."""
    ids, share = options.device_ids, options.gpu_memory_fraction
    if ids is not None:
        numbers = isinstance(ids, (list, tuple)) and all(type(one) is int and 0 <= one < GPUS_MAX for one in ids)
        if not numbers or not ids or len(set(ids)) < len(ids):
            raise DefinitionError(f"device_ids must be numbers of GPUs, as in [0, 1], not {ids!r}")
        if options.device == "cpu":
            raise DefinitionError("device_ids are GPUs, and device='cpu' wants none")
    if share is not None and (
        isinstance(share, bool) or not isinstance(share, (int, float)) or not FRACTION_MIN <= share <= 1
    ):
        raise DefinitionError(f"gpu_memory_fraction must be a number from {FRACTION_MIN} to 1, not {share!r}")


def _paths(options: Options) -> None:
    """The paths that a model answers beside those of its name."""
    routed = options.route_methods
    if options.route is not None and (routed is None or not PATH.fullmatch(routed[0]) or not _methods(routed[1])):
        raise DefinitionError(f"route is a path such as '/summarize' or 'POST /summarize', not {options.route!r}")
    if options.route_shared and options.route is None:
        raise DefinitionError("route_shared needs route: the path that other models may have, too")
    if options.task_routes and routed is None:
        raise DefinitionError("task_routes needs route: the path below which tasks are submitted and asked for")
    if options.mount is not None and not PATH.fullmatch(options.mount):
        raise DefinitionError(f"mount is the beginning of paths, such as '/' or '/shop', not {options.mount!r}")
    for path, answer in (options.health_routes or {}).items():
        if not PATH.fullmatch(path) or answer not in HEALTH:
            raise DefinitionError(
                f"health_routes has paths with 'live' or 'ready', as in {{'/livez': 'live'}}, not {path!r}: {answer!r}"
            )


def _methods(names: Sequence[str]) -> bool:
    return all(name.isalpha() for name in names)


def _metric_names(names: Any) -> None:
    for one in names or ():
        pair = isinstance(one, (tuple, list)) and len(one) == 2
        if not pair or not METRIC.fullmatch(str(one[0])) or not isinstance(one[1], Mapping):
            raise DefinitionError(f"metric_names has pairs of a metric's name and its labels, not {one!r}")


def _time(options: Options, name: str) -> None:
    value = getattr(options, name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise DefinitionError(f"{name} must be a number of milliseconds, 0 or more, not {value!r}")
