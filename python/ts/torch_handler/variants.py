"""The ways to compute a handler's model on a GPU, of which the fastest is kept for each batch size."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from jitney.gpu.compile_cache import CompileCache, machine_of, sources_of
from jitney.gpu.compiled import CompiledModel, can_compile, compile_into, inductor_options, load_from
from jitney.gpu.graphs import Progress, RunShape, SizedModel, Variant
from jitney.gpu.inputs import CannotCompile, ModelInput
from jitney.gpu.trees import tensors_of
from ts.torch_handler.compiling import CompilePlan
from ts.torch_handler.formats import is_script
from ts.torch_handler.model_graphs import Arguments
from ts.torch_handler.settings import need

TOO_OLD = "this torch cannot, which takes 2.8 or newer"
TICK_SECONDS = 5.0
"""How often it is told that compiling goes on, so that nobody takes it for a worker that hangs."""


def frozen(model: Any) -> list[Variant]:
    """A TorchScript program with its weights folded in: faster at small sizes, often slower at large ones."""
    if not is_script(model):
        return []
    try:
        return [Variant("frozen", need("torch", "a torch handler").jit.freeze(model))]
    except Exception:  # Some programs cannot be, for example those with attributes that change.
        return []


class CompilesAside(Protocol):
    """Compiles shapes of a model elsewhere, into the same cache."""

    def compile(self, shapes: Sequence[RunShape]) -> None:
        """Returns when all are compiled; raises CannotCompile if one is not."""


class CompiledShapes:
    """Compiled code by the shape of its input."""

    def __init__(self, by_shape: dict[tuple[int, ...], CompiledModel]) -> None:
        self.by_shape = by_shape

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls what was compiled for such an input."""
        shape = tuple(tensors_of((args, kwargs))[0].shape)
        if shape not in self.by_shape:
            raise CannotCompile("it could not be compiled for that")
        return self.by_shape[shape](*args, **kwargs)


class ModelCompiler:
    """Compiles a model for the sizes of its graphs, or finds it compiled in its cache."""

    def __init__(
        self, sized: SizedModel, plan: CompilePlan, cache: CompileCache, identity: list[str], aside: CompilesAside
    ) -> None:
        self.sized, self.plan, self.cache, self.identity, self.aside = sized, plan, cache, identity, aside
        self.notes: list[str] = []
        self.complete = False
        """Whether all sizes are compiled, so that it is known for good which variant is the fastest."""
        cache.use()

    def variant(self, batch: Arguments, progress: Progress) -> Variant:
        """The compiled model, for batches like this one; raises CannotCompile."""
        torch = need("torch", "pt2")
        given = ModelInput(*batch, bool(self.sized.lengths))
        with torch.inference_mode():
            answer = self.sized.model(*batch[0], **batch[1])
        if not can_compile():
            raise CannotCompile(TOO_OLD)
        started = time.perf_counter()
        missing = self.missing(batch)
        if missing:
            with ticking(progress, f"compiling {len(missing)} batch sizes"):
                self._compile_aside(missing)
        left = self.missing(batch)
        compiled = {shape: self._loaded(given, shape, answer) for shape in self._shapes(given) if shape not in left}
        if not compiled:
            raise CannotCompile("no batch size could be")
        self.complete = not left
        told = f"Compiled the model for {len(missing)} batch sizes" if missing else "Found the model compiled"
        self.notes.append(f"{told}, in {time.perf_counter() - started:.1f} s")
        by_shape = {tuple(given.room(*shape)[0].shape): call for shape, call in compiled.items()}
        return Variant("compiled", CompiledShapes(by_shape))

    def _compile_aside(self, shapes: list[RunShape]) -> None:
        try:
            self.aside.compile(shapes)
        except CannotCompile as error:
            self.notes.append(f"Compiling the model failed: {error}")

    def missing(self, batch: Arguments) -> list[RunShape]:
        """The shapes that were not compiled before, for batches like this one."""
        given = ModelInput(*batch, bool(self.sized.lengths))
        return [shape for shape in self._shapes(given) if not self._file(given, shape).exists()]

    def compile_here(self, batch: Arguments, shape: RunShape) -> None:
        """Compiles the model for one shape into its file, in this process."""
        given = ModelInput(*batch, bool(self.sized.lengths))
        if not can_compile():
            raise CannotCompile(TOO_OLD)
        file = self._file(given, shape)
        with self.cache.alone(file):
            if not file.exists():
                self._compile(given, shape, file)

    def _compile(self, given: ModelInput, shape: RunShape, file: Path) -> None:
        room = given.room(*shape)
        given.sample_into(room)
        example = ModelInput(*given.with_tensors(room), given.length is not None)
        compile_into(file, self.sized.model, example, inductor_options(self.plan.mode, self.plan.options))
        self.cache.trim()

    def _loaded(self, given: ModelInput, shape: RunShape, answer: Any) -> CompiledModel:
        file = self._file(given, shape)
        try:
            return load_from(file, self.sized.model, answer)
        except Exception:  # Broken, or of another build of torch: made anew.
            with self.cache.alone(file):
                self._compile(given, shape, file)
            return load_from(file, self.sized.model, answer)

    def _shapes(self, given: ModelInput) -> list[RunShape]:
        return self.sized.shapes(given.length is not None)

    def recall(self) -> None:
        """Has the graphs captured as they were the last time, where that is known."""
        with contextlib.suppress(OSError, ValueError):
            known = json.loads(self._choices().read_text())
            self.sized.preferred = {str(shape): str(name) for shape, name in known.items()}

    def remember(self) -> None:
        """Keeps which variant was the fastest at each size: measuring all of them takes as long as everything else."""
        if not self.complete:
            return
        with contextlib.suppress(OSError):
            fresh = self._choices().with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(self.sized.choices()))
            fresh.replace(self._choices())

    def _choices(self) -> Path:
        parts = [self.plan.mode or "", repr(self.plan.options), repr(self.sized.sizes), repr(self.sized.lengths)]
        return self.cache.file([*self.identity, *parts]).with_suffix(".choices")

    def _file(self, given: ModelInput, shape: RunShape) -> Path:
        parts = [repr(given.signature()), str(shape), self.plan.mode or "", repr(self.plan.options)]
        return self.cache.file([*self.identity, *parts])


def cache_of(context: Any, device: Any) -> CompileCache:
    """The directory of the model store for this archive; without one, of this process."""
    path = getattr(context, "compile_cache", None) or tempfile.mkdtemp(prefix="jitney-compiled-")
    return CompileCache(str(path), machine_of(device))


def identity_of(context: Any, settings: Any) -> list[str]:
    """What tells the model of one archive from another, and how it is shaped."""
    model_dir = context.system_properties.get("model_dir")
    return [*sources_of(model_dir), settings.precision, str(bool(settings.channels_last))]


@contextlib.contextmanager
def ticking(progress: Progress, what: str) -> Iterator[None]:
    """Inside, progress is told again and again."""
    done = threading.Event()

    def tick() -> None:
        started = time.perf_counter()
        while not done.wait(TICK_SECONDS):
            progress(0, 1, f"{what} for {time.perf_counter() - started:.0f} s")

    thread = threading.Thread(target=tick, name="compiling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
