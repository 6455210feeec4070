"""`bentoml.Runner`: a `bentoml.Runnable` in workers of its own, which the functions of a service call.

A service tells its runners which part they are; until then, or after `init_local`, the runnable runs in this process.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jitney.compat.bentoml import configuration
from jitney.compat.bentoml.dependencies import outside_loop
from jitney.compat.bentoml.exceptions import StateException
from jitney.compat.bentoml.served import ServedObject, make_class, mark, metric_labels
from jitney.definition.application import Bound
from jitney.definition.hints import MISSING
from jitney.values.rows import AnyRows

F = TypeVar("F", bound=Callable[..., Any])

NOTE = "__bentoml_runnable_method__"
OTHERS = "others"


@dataclass(frozen=True)
class RunnableMethod:
    """What `Runnable.method` says about a method."""

    batchable: bool = False
    batch_dim: int | tuple[int, int] = 0


class Runnable:
    """What a runner runs; subclass it, and load the model in `__init__`."""

    SUPPORTED_RESOURCES: tuple[str, ...] = ("cpu",)
    SUPPORTS_CPU_MULTI_THREADING = False

    @staticmethod
    def method(
        func: Any = None,
        *,
        batchable: bool = False,
        batch_dim: int | tuple[int, int] = 0,
        input_spec: Any = None,
        output_spec: Any = None,
    ) -> Any:
        """Makes a method of a runnable callable by its runner. A batchable one gets the rows of many callers at once:
        arrays, tensors and frames joined along `batch_dim`, everything else in a list."""

        def attach(function: F) -> F:
            setattr(function, NOTE, RunnableMethod(batchable, batch_dim))
            return function

        return attach if func is None else attach(func)

    @classmethod
    def add_method(
        cls, method: Callable[..., Any], name: str, *, batchable: bool = False, batch_dim: int | tuple[int, int] = 0,
        input_spec: Any = None, output_spec: Any = None,
    ) -> None:  # fmt: skip
        """The same for a function that is added to the class later."""
        setattr(method, NOTE, RunnableMethod(batchable, batch_dim))
        setattr(cls, name, method)


def methods_of(runnable: type) -> dict[str, RunnableMethod]:
    """The methods that a runner can call, by name."""
    names = {name: None for one in reversed(runnable.__mro__) for name in vars(one)}
    noted = ((name, getattr(inspect.getattr_static(runnable, name, None), NOTE, None)) for name in names)
    return {name: note for name, note in noted if isinstance(note, RunnableMethod)}


def endpoint_function(runnable: type, name: str, batchable: bool) -> Callable[..., Any]:
    """The function of the endpoint for a method."""
    method = inspect.getattr_static(runnable, name)
    bare = inspect.unwrap(method)
    own = list(inspect.signature(bare).parameters.values())[1:]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in own)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [one for one in own if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    signature = [
        inspect.Parameter("self", kind),
        *(inspect.Parameter(one.name, kind, default=one.default) for one in named),
    ]
    if takes_any:
        signature.append(inspect.Parameter(OTHERS, inspect.Parameter.VAR_KEYWORD))

    def call(self: Any, **given: Any) -> Any:
        others = {key: _as_array(value) for key, value in given.items()} if takes_any and batchable else given
        return getattr(self.made, name)(**others)

    async def call_async(self: Any, **given: Any) -> Any:
        others = {key: _as_array(value) for key, value in given.items()} if takes_any and batchable else given
        return await getattr(self.made, name)(**others)

    def stream(self: Any, **given: Any) -> Any:
        yield from getattr(self.made, name)(**given)

    async def stream_async(self: Any, **given: Any) -> Any:
        async for piece in getattr(self.made, name)(**given):
            yield piece

    made: Any = call
    if inspect.isasyncgenfunction(bare):
        made = stream_async
    elif inspect.isgeneratorfunction(bare):
        made = stream
    elif inspect.iscoroutinefunction(bare):
        made = call_async
    made.__signature__ = inspect.Signature(signature)
    names = {one.name for one in named} | ({OTHERS} if takes_any else set())
    made.__annotations__ = dict.fromkeys(names, AnyRows if batchable else Any)
    return made  # type: ignore[no-any-return]


def positions_of(runnable: type, name: str) -> list[str]:
    """The names of a method's parameters that can be given by position."""
    parameters = list(inspect.signature(inspect.unwrap(inspect.getattr_static(runnable, name))).parameters.values())[1:]
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _as_array(value: Any) -> Any:
    """Numbers that came as lists, as JSON has them, for `**batch` parameters: a tensor where torch is loaded, an array
    where numpy is. What is not numbers stays."""
    if not isinstance(value, list) or not _is_numbers(value):
        return value
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    try:
        if torch is not None:
            return torch.tensor(value)
        return numpy.asarray(value) if numpy is not None else value
    except ValueError:  # Rows of different lengths.
        return value


def _is_numbers(value: Any) -> bool:
    while isinstance(value, list):
        if not value:
            return False
        value = value[0]
    return isinstance(value, (int, float)) and value is not MISSING


METRIC, FIRST_METRIC = "bentoml_runner_adaptive_batch_size", "BENTOML_{runner}_{method}_adaptive_batch_size"
"""The histogram's name, and the one that it had at first."""
MAX_BATCH_SIZE = 100
MAIN = "__call__"


class Runner:
    """Runs a runnable. `run` and `async_run` call its `__call__`, or its only method; others are attributes."""

    def __init__(
        self,
        runnable_class: type,
        *,
        runnable_init_params: Mapping[str, Any] | None = None,
        name: str | None = None,
        scheduling_strategy: Any = None,
        models: Sequence[Any] | None = None,
        max_batch_size: int | None = None,
        max_latency_ms: float | None = None,
        method_configs: Mapping[str, Mapping[str, Any]] | None = None,
        embedded: bool = False,
    ) -> None:
        self.runnable_class = runnable_class
        self.runnable_init_params = dict(runnable_init_params or {})
        self.name = (name or runnable_class.__name__).lower()
        self.models = list(models or ())
        self._sizes = max_batch_size, max_latency_ms
        self._method_configs = dict(method_configs or {})
        self._handle: Any = None
        self._local: Any = None
        noted = methods_of(runnable_class)
        if not noted:
            raise StateException(f"{runnable_class.__name__} has no method; decorate one with @bentoml.Runnable.method")
        self.runner_methods = [RunnerMethod(self, method, note) for method, note in noted.items()]
        by_name = {one.name: one for one in self.runner_methods}
        for method, one in by_name.items():
            if method != MAIN:
                setattr(self, method, one)
        main = by_name.get(MAIN) or (self.runner_methods[0] if len(by_name) == 1 else None)
        if main is not None:  # ONNX models have a method that is called `run` itself.
            self.run = by_name.get("run") or main.run
            self.async_run, self.async_stream = main.async_run, main.async_stream

    def init_local(self, quiet: bool = False) -> None:
        """Makes the runnable in this process, for tests."""
        self._local = self.runnable_class(**self.runnable_init_params)

    def destroy(self) -> None:
        """Forgets what `init_local` made."""
        self._local = None

    def connect(self, handle: Any) -> None:
        """Calls go to this part from now on."""
        self._handle = handle

    @functools.cache  # noqa: B019 - one for each service, and runners live as long as their module.
    def part(self, service: str = "") -> Bound:
        """The runner as a part of a service."""
        config = configuration.for_runner(self.name)
        members: dict[str, Any] = {one.attribute: self._endpoint(one, config, service) for one in self.runner_methods}
        members.update(__doc__=self.runnable_class.__doc__, runner=self)
        options = configuration.options_of(self.name, config)
        return Bound(make_class(self.runnable_class.__name__, ServedRunner, members, {}, options), name=self.name)

    def _endpoint(self, method: RunnerMethod, config: Mapping[str, Any], service: str) -> Any:
        told = configuration.batching_of(config)
        own = self._method_configs.get(method.name, {})
        size = told.get("max_batch_size") or own.get("max_batch_size") or self._sizes[0] or MAX_BATCH_SIZE
        batching = {
            "max_batch_size": size if told.get("enabled", True) else 1,
            "max_latency_ms": told.get("max_latency_ms") or own.get("max_latency_ms") or self._sizes[1],
            "batch_dim": method.note.batch_dim,
            "metric_names": self._metrics(method, service),
        }  # fmt: skip
        function = endpoint_function(self.runnable_class, method.name, method.note.batchable)
        options = {"name": method.endpoint, **(batching if method.note.batchable else {})}
        return mark(function, batched=method.note.batchable, options=options)

    def _metrics(self, method: RunnerMethod, service: str) -> tuple[tuple[str, dict[str, str]], ...]:
        labels = metric_labels(method.name, self.name, service)
        first = FIRST_METRIC.format(runner=self.name, method=method.name).replace("-", "_").replace(".", "_")
        return (METRIC, labels), (first, {})


class RunnerMethod:
    """One method of a runner."""

    def __init__(self, runner: Runner, name: str, note: RunnableMethod) -> None:
        self._runner, self.name, self.note = runner, name, note
        self.endpoint = name.strip("_")
        self.attribute = f"run_{self.endpoint}"
        """Of the made class, where nothing else has this name."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it and waits."""
        if self._runner._local is not None:
            return getattr(self._runner._local, self.name)(*args, **kwargs)
        handle, alone, args, kwargs = self._prepared(args, kwargs)
        result = outside_loop(lambda: handle.remote(*args, **kwargs).result())
        return result[0] if alone else result

    __call__ = run

    async def async_run(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it, to be awaited."""
        if self._runner._local is not None:
            return await asyncio.to_thread(getattr(self._runner._local, self.name), *args, **kwargs)
        handle, alone, args, kwargs = self._prepared(args, kwargs)
        result = await handle.remote(*args, **kwargs)
        return result[0] if alone else result

    def async_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Calls a method that is a generator: `async for` over its pieces."""
        if self._runner._local is not None:
            return getattr(self._runner._local, self.name)(*args, **kwargs)
        return self._connected().stream(*args, **kwargs)

    def _prepared(self, args: Any, kwargs: Any) -> tuple[Any, bool, Any, Any]:
        """The handle, whether the call is one value that is no rows, and the arguments as rows."""
        handle = self._connected()
        if not self.note.batchable:
            return handle, False, args, kwargs
        names = positions_of(self._runner.runnable_class, self.name)
        named = {**dict(zip(names, args)), **kwargs}
        alone = bool(named) and not any(_is_rows(value) for value in named.values())
        return handle, alone, (), {name: [value] if alone else value for name, value in named.items()}

    def _connected(self) -> Any:
        if self._runner._handle is None:
            raise StateException(
                f"runner {self._runner.name!r} is not running: serve the service it belongs to with `jitney serve`, "
                "or call runner.init_local() in a test"
            )
        return self._runner._handle.options(method_name=self.endpoint)


class ServedRunner(ServedObject):
    """The object that a worker runs for a runner."""

    runner: Runner

    def make(self) -> Any:
        """The runnable."""
        return self.runner.runnable_class(**self.runner.runnable_init_params)


def _is_rows(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or hasattr(value, "shape")
