"""A model captured once per allowed batch size, and length where there are some, and replayed.

A batch is run at the next larger size and length, and the rows that are too many are dropped. What was captured was
checked: it answers as the model does, and no row depends on another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jitney.gpu.capture import Capture, Captured, is_out_of_memory
from jitney.gpu.inputs import CannotCapture, ModelInput
from jitney.gpu.report import MeasuredSize
from jitney.gpu.shapes import next_size
from jitney.gpu.trees import constants_of, difference, rebuilt, tensors_of, torch

CHECKED_ROWS = 8
"""Rows whose answers are compared when a graph is captured."""
SIGNATURES_MAX = 4
"""Inputs of so many different kinds are captured at most; more would be memory for inputs that hardly come again."""

Progress = Callable[[int, int, str], None]


class Variant(NamedTuple):
    """One way to compute what a model computes."""

    name: str
    call: Callable[..., Any]


class RunShape(NamedTuple):
    """Rows, and their length where there are lengths."""

    size: int
    length: int | None = None

    def __str__(self) -> str:
        return f"batch size {self.size}" + (f" at length {self.length}" if self.length is not None else "")


@dataclass
class SizedGraph:
    """What was captured for one shape."""

    shape: RunShape
    variant: str
    inputs: list[Any]
    captured: Captured
    model_us: int
    call: Callable[..., Any]
    """What was captured. The graph reads its weights, so they must stay."""
    ragged: list[bool] = field(default_factory=list)
    """Which of the outputs have the input's length as their second dimension."""

    def run(self, given: ModelInput, to_single: bool) -> Any:
        """Copies a batch in, replays, and copies its rows of the outputs out, before another replay can change them."""
        given.copy_into(self.inputs)
        self.captured.replay()
        ragged = iter(self.ragged)
        return rebuilt(self.captured.outputs, lambda output: copied(output, given, next(ragged, False), to_single))


class SizedModel:
    """The graphs of one model. `variants` are the ways to compute it, of which the fastest is kept for each shape."""

    def __init__(
        self,
        model: Callable[..., Any],
        capture: Capture,
        sizes: Sequence[int],
        lengths: Sequence[int] = (),
        to_single: bool = False,
        variants: Sequence[Variant] | None = None,
    ) -> None:
        self.model = model
        self.recorder = capture
        self.sizes = sorted(sizes)
        self.lengths = sorted(lengths)
        self.to_single = to_single
        self.variants = list(variants) if variants is not None else [Variant("as it is", model)]
        self.graphs: dict[Any, dict[RunShape, SizedGraph]] = {}
        self.rooms: dict[Any, dict[int | None, list[Any]]] = {}
        self.preferred: dict[str, str] = {}
        """The variant that was the fastest before, by shape: the others are tried only where it fails now."""
        self.bytes = 0
        self.notes: list[str] = []
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return sum(map(len, self.graphs.values()))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's answer: replayed where there is a graph for it, else by the model."""
        replay = self.find(args, kwargs)
        return self.model(*args, **kwargs) if replay is None else replay()

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
        """How to answer by a graph; None if there is none for such a batch."""
        given = ModelInput(args, kwargs, bool(self.lengths))
        graphs = self.graphs.get(given.signature())
        shape = self.shape_for(given)
        graph = graphs.get(shape) if graphs and shape is not None else None
        return None if graph is None else lambda: self._run(graph, given)

    def shape_for(self, given: ModelInput) -> RunShape | None:
        """The shape that a batch is run at."""
        size = next_size(self.sizes, given.count or 0)
        if size is None or not given.count:
            return None
        if given.length is None:
            return RunShape(size)
        length = next_size(self.lengths, given.length)
        return None if length is None else RunShape(size, length)

    def _run(self, graph: SizedGraph, given: ModelInput) -> Any:
        with torch.inference_mode(), self.lock, self.recorder.running():
            return graph.run(given, self.to_single)

    # -- capturing --------------------------------------------------------------------------------

    def knows(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether inputs of this kind are captured already, or no more kinds are."""
        signature = ModelInput(args, kwargs, bool(self.lengths)).signature()
        return signature in self.graphs or len(self.graphs) >= SIGNATURES_MAX

    def capture(self, args: tuple[Any, ...], kwargs: dict[str, Any], progress: Progress) -> None:
        """Captures every shape for inputs like these, the largest first, since all share its memory.

        Raises CannotCapture, and drops what was captured for such inputs, if the model cannot be. A size that there
        is no memory for is left out.
        """
        example = ModelInput(args, kwargs, bool(self.lengths))
        example.check()
        signature = example.signature()
        with torch.inference_mode():
            try:
                self._capture_all(example, signature, progress)
                self._check_padding(example, signature)
            except CannotCapture:
                self.graphs.pop(signature, None)
                self.rooms.pop(signature, None)
                raise
            self.bytes = self.recorder.memory()

    def shapes(self, ragged: bool) -> list[RunShape]:
        """All shapes, the largest first."""
        lengths: list[int | None] = [*reversed(self.lengths)] if ragged else [None]
        return [RunShape(size, length) for length in lengths for size in reversed(self.sizes)]

    def _capture_all(self, example: ModelInput, signature: Any, progress: Progress) -> None:
        shapes = self.shapes(example.length is not None)
        found = self.graphs.setdefault(signature, {})
        for done, shape in enumerate(shapes, 1):
            try:
                found[shape] = self.captured(example, shape, self.variants)
            except CannotCapture:
                raise
            except Exception as error:
                if not is_out_of_memory(error):
                    raise CannotCapture(one_line(error)) from error
                self.notes.append(f"No CUDA graph for {shape}: the GPU has too little memory left")
            progress(done, len(shapes), f"captured {shape}" if shape in found else f"no memory for {shape}")
        if not found:
            raise CannotCapture("the GPU has too little memory left")

    def room(self, example: ModelInput, shape: RunShape) -> list[Any]:
        """The inputs of a graph: the first rows of those of the largest one."""
        rooms = self.rooms.setdefault(example.signature(), {})
        if shape.length not in rooms or len(rooms[shape.length][0]) < shape.size:
            rooms[shape.length] = example.room(shape.size, shape.length)
        return [tensor[: shape.size] for tensor in rooms[shape.length]]

    def captured(self, example: ModelInput, shape: RunShape, variants: Sequence[Variant]) -> SizedGraph:
        """The fastest variant of those that answer as the model does, for one shape."""
        room = self.room(example, shape)
        args, kwargs = example.with_tensors(room)
        example.sample_into(room)
        answer = self.recorder.warm(lambda: self.model(*args, **kwargs), runs=1)
        wanted = rebuilt(first_rows(answer, shape), lambda tensor: tensor.clone())
        del answer
        known = [variant for variant in variants if variant.name == self.preferred.get(str(shape))]
        best = self._best(known, shape, room, example, wanted) if known else None
        if not isinstance(best, SizedGraph):
            best = self._best([each for each in variants if each not in known], shape, room, example, wanted)
        if not isinstance(best, SizedGraph):
            raise best
        return best

    def _best(
        self, variants: Sequence[Variant], shape: RunShape, room: list[Any], example: ModelInput, wanted: Any
    ) -> SizedGraph | Exception:
        """The fastest of the variants, or why the model itself is none of them."""
        best: SizedGraph | None = None
        cause: Exception = CannotCapture("there is no way to compute it")
        for variant in variants:
            try:
                graph = self._capture_variant(variant, shape, room, example, wanted)
            except Exception as error:
                if variant.call is self.model or is_out_of_memory(error):
                    cause = error
                else:
                    self.notes.append(f"The model {variant.name} is not used at {shape}: {one_line(error)}")
                continue
            if best is None or graph.model_us < best.model_us:
                best = graph
        return best or cause

    def _capture_variant(
        self, variant: Variant, shape: RunShape, room: list[Any], example: ModelInput, wanted: Any
    ) -> SizedGraph:
        args, kwargs = example.with_tensors(room)

        def call() -> Any:
            return variant.call(*args, **kwargs)

        self.recorder.warm(call)
        captured = self.recorder.record(call)
        self._check_rows(captured, shape, room, example, wanted, variant.call is self.model)
        with self.lock:
            taken = self.recorder.microseconds(captured.replay)
        return SizedGraph(shape, variant.name, room, captured, taken, variant.call)

    def _check_rows(
        self, captured: Captured, shape: RunShape, room: list[Any], example: ModelInput, wanted: Any, is_model: bool
    ) -> None:
        with self.lock, self.recorder.running():
            example.sample_into(room)
            captured.replay()
            full = rebuilt(first_rows(captured.outputs, shape), lambda tensor: tensor.clone())
            for tensor in room:
                tensor[1:].zero_()
            captured.replay()
            alone = rebuilt(captured.outputs, lambda tensor: tensor[:1].clone())
        told = difference(full, wanted, other_way=not is_model)
        if told is not None:
            raise CannotCapture(f"its answers differ when they are replayed: {told}")
        told = difference(alone, rebuilt(full, lambda tensor: tensor[:1]))
        if told is not None:
            raise CannotCapture(f"the answer for an item depends on the other items of its batch: {told}")

    def _check_padding(self, example: ModelInput, signature: Any) -> None:
        """Where there are lengths: an item answers the same when it is padded. Also finds out which outputs are as
        long as the input."""
        if example.length is None:
            return
        shorter = example.shortened(self.lengths)
        shape = self.shape_for(shorter) if shorter is not None else None
        graph = self.graphs[signature].get(shape) if shape is not None else None
        if shorter is None or graph is None:
            raise CannotCapture("the sample is too short to check whether inputs may be padded")
        args, kwargs = shorter.value
        wanted = self.recorder.warm(lambda: self.model(*args, **kwargs))
        pairs = zip(tensors_of(graph.captured.outputs), tensors_of(wanted))
        ragged = [ours.dim() > 1 and ours.shape[1:2] != theirs.shape[1:2] for ours, theirs in pairs]
        for one in self.graphs[signature].values():
            one.ragged = ragged
        with self.lock, self.recorder.running():
            found = graph.run(shorter, to_single=False)
        told = difference(found, wanted, other_way=True)
        if told is not None:
            raise CannotCapture(f"its answers change when inputs are padded to {shape}: {told}")

    # -- replacing graphs while they are in use -----------------------------------------------------

    def twin(self, variants: Sequence[Variant]) -> SizedModel:
        """Another one for the same model and sizes, to be captured while this one answers, with inputs of its own."""
        other = SizedModel(self.model, self.recorder.aside(), self.sizes, self.lengths, self.to_single, variants)
        other.lock = self.lock
        return other

    def take(self, other: SizedModel) -> int:
        """Takes over the graphs of a twin that are faster; returns how many. A batch has the one or the other."""
        taken = 0
        for signature, graphs in other.graphs.items():
            ours = dict(self.graphs.get(signature, {}))
            faster = {
                shape: one
                for shape, one in graphs.items()
                if one.model_us < getattr(ours.get(shape), "model_us", one.model_us + 1)
            }
            self.graphs[signature] = {**ours, **faster}
            taken += len(faster)
        self.bytes = max(self.bytes, other.bytes)
        return taken

    def choices(self) -> dict[str, str]:
        """The variant in use, by shape."""
        return {str(shape): one.variant for graphs in self.graphs.values() for shape, one in graphs.items()}

    # -- what there is ----------------------------------------------------------------------------

    def captured_sizes(self) -> list[int]:
        """The batch sizes that there are graphs for."""
        return sorted({shape.size for graphs in self.graphs.values() for shape in graphs})

    def measured(self) -> list[MeasuredSize]:
        """What the model takes at each size, at the longest length."""
        taken: dict[int, int] = {}
        for graphs in self.graphs.values():
            for shape, graph in graphs.items():
                taken[shape.size] = max(graph.model_us, taken.get(shape.size, 0))
        return [MeasuredSize(size, 0, taken[size]) for size in sorted(taken)]


def copied(output: Any, given: ModelInput, ragged: bool, to_single: bool) -> Any:
    """The rows of an output that belong to the batch, in memory of their own."""
    rows = output[: given.count, : given.length] if ragged else output[: given.count]
    if to_single and rows.is_floating_point():
        return rows.to(torch.float32, copy=True)
    return rows.clone()


def first_rows(outputs: Any, shape: RunShape) -> Any:
    """The outputs of the rows that are compared; raises where outputs are not one row per item."""
    tensors = tensors_of(outputs)
    if not tensors or constants_of(outputs):
        raise CannotCapture("it does not answer with tensors only")
    if any(not tensor.dim() or len(tensor) != shape.size for tensor in tensors):
        raise CannotCapture("its answer does not have one row per item")
    return rebuilt(outputs, lambda tensor: tensor[:CHECKED_ROWS])


def one_line(error: BaseException) -> str:
    """The first line of an error."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
