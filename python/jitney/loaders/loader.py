"""What a loader is. One for each format says whether a path is of its format, which tensors the model takes and gives,
and runs it on batches. Loaders of other packages are classes of this kind too, so what is here changes with care."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from jitney.call.errors import DefinitionError
from jitney.definition.decorators import batch, endpoint
from jitney.definition.options import BATCH_SIZE_DEFAULT
from jitney.gpu.device import device, gpu_in_sight
from jitney.gpu.shapes import allowed_sizes
from jitney.http.float_fields import FloatFields
from jitney.values.array_formats import write_npy
from jitney.values.tensor import BF16, BYTES, FORMATS, Tensor

ARRAYS, TORCH, FRAME = "arrays", "torch", "frame"
"""What `run` gets: a dictionary of numpy arrays or of torch tensors, or one pandas frame."""
NO_ARRAYS = frozenset((BF16, BYTES))
"""Datatypes that files of numpy do not have, or not as numbers."""


class NotTrusted(DefinitionError):
    """Loading the model would run code that is part of it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; if you trust whoever made it, say --trust (in jitney.yaml: trust: true)")


@dataclass(frozen=True)
class LoadOptions:
    """What the user said about a file or folder."""

    trust: bool = False
    """Code that is part of the model may run."""
    task: str | None = None
    """What a model of several uses is for."""


@dataclass(frozen=True)
class ModelTensors:
    """What a model takes and gives."""

    inputs: Mapping[str, Tensor]
    """None of a frame means any columns."""
    outputs: Mapping[str, Tensor]
    batch_dim: int | None = 0
    """The dimension that has the items of a batch; None for a model that takes one request at a time."""
    takes: str = ARRAYS
    least_items: int = 1
    """The fewest items that it runs with; a smaller batch is filled up with copies of its last item."""
    most_items: int | None = None
    """The most items that it runs with; None where there is no limit."""

    def told(self) -> dict[str, Any]:
        """The same as JSON, which is written down with the packed model."""
        spelt = {
            side: [{"name": name, "datatype": one.datatype, "shape": list(one.shape)} for name, one in tensors.items()]
            for side, tensors in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        limits = {"least_items": self.least_items, "most_items": self.most_items}
        return {**spelt, "batch_dim": self.batch_dim, "takes": self.takes, **limits}

    @property
    def is_even(self) -> bool:
        """Whether all items have the same shape and come one after the other, as graphs want them."""
        free = [size for one in self.inputs.values() for size in one.shape[1:] if size == -1]
        return self.takes == TORCH and self.batch_dim == 0 and bool(self.inputs) and not free

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> ModelTensors:
        """What was written down."""
        inputs, outputs = (
            {one["name"]: Tensor(one["datatype"], one["shape"]) for one in told[side]} for side in ("inputs", "outputs")
        )
        return cls(inputs, outputs, told["batch_dim"], told["takes"], told["least_items"], told["most_items"])


class Loader(ABC):
    """Serves the files or folders of one format. One object is made for each model in each process. One whose models
    take and give tensors has `load`, `tensors` and `run`; any other has `describe` and `definition` instead."""

    format: ClassVar[str]
    """Its name, as in `scikit-learn`."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Modules that it imports, and what pip calls them."""
    captures: ClassVar[bool] = False
    """Whether CUDA graphs run its models, where all items have one shape."""

    def __init__(self, options: LoadOptions) -> None:
        self.options = options

    @classmethod
    @abstractmethod
    def finds(cls, path: Path) -> bool:
        """Whether a file or folder is of this format. It reads little, imports nothing and runs nothing."""

    @classmethod
    def runs_code(cls, path: Path) -> str | None:
        """Why loading this runs code that is part of the model, as a sentence; None where it does not."""
        return None

    def load(self, path: Path, device: str) -> None:
        """Loads the model; the device is as torch spells it, `cpu` or `cuda:0`."""
        raise NotImplementedError

    def tensors(self) -> ModelTensors:
        """What the loaded model takes and gives."""
        raise NotImplementedError

    def capture(self) -> None:
        """From here on graphs run the loaded model, where it lies on a GPU; for those with `captures`."""
        raise NotImplementedError

    def run(self, batch: Any) -> Any:
        """Runs the loaded model on a batch: all inputs in, a dictionary of all outputs out, with as many items."""
        raise NotImplementedError

    def describe(self, path: Path) -> dict[str, Any]:
        """What is known of the model before a worker loads it, as JSON. It runs in a process of its own."""
        self.load(path, "cpu")
        return self.tensors().told()

    def definition(self, path: Path, description: Mapping[str, Any]) -> Any:
        """What is served: a class with endpoints, which loads the model when it is made into an object."""
        return tensor_model(self, path, ModelTensors.read(description))

    @classmethod
    def missing(cls) -> list[str]:
        """What has to be installed first, as pip calls it."""
        return [package for module, package in cls.needs.items() if importlib.util.find_spec(module) is None]


def tensor_model(loader: Loader, path: Path, tensors: ModelTensors) -> type:
    """The class that is served for a model that takes and gives tensors."""
    options: dict[str, Any] = {"outputs": dict(tensors.outputs)}
    if tensors.inputs:
        options["inputs"] = dict(tensors.inputs)
    if tensors.most_items is not None and tensors.most_items < BATCH_SIZE_DEFAULT:
        options["max_batch_size"] = tensors.most_items
    if tensors.batch_dim:
        options["batch_dim"] = tensors.batch_dim
    if loader.captures and gpu_in_sight() and tensors.is_even:
        options |= graph_options(tensors)
    mark = endpoint(**options) if tensors.batch_dim is None else batch(**options)

    class FileModel:
        def setup(self) -> None:
            loader.load(path, device())
            if loader.captures and tensors.is_even:
                loader.capture()

    def on_frame(self: Any, frame: Any) -> Any:
        return FloatFields(loader.run(frame))

    def on_arrays(self: Any, **batch: Any) -> Any:
        return FloatFields(loader.run(batch) if tensors.least_items == 1 else _run_filled(loader, batch, tensors))

    function: Callable[..., Any] = on_frame if tensors.takes == FRAME else on_arrays
    given = "frame" if tensors.takes == FRAME else "batch"
    function.__annotations__ = {given: _array_type(tensors.takes), "return": dict[str, Any]}
    FileModel.predict = mark(function)  # type: ignore[attr-defined]
    return FileModel


def graph_options(tensors: ModelTensors) -> dict[str, Any]:
    """The sizes that a GPU runs a model at, and an item to warm it up with: a file of numpy for each input."""
    import numpy

    if any(one.datatype in NO_ARRAYS for one in tensors.inputs.values()):
        return {}
    chance = numpy.random.default_rng(0)
    item = {}
    for name, one in tensors.inputs.items():
        dtype, shape = numpy.dtype(FORMATS[one.datatype][1]), (1, *one.shape[1:])
        # Whole numbers may be those of rows in a table, so they are small ones.
        made = chance.standard_normal(shape) if dtype.kind == "f" else chance.integers(0, 2, shape)
        item[name] = write_npy(made.astype(dtype))
    most = min(tensors.most_items or BATCH_SIZE_DEFAULT, BATCH_SIZE_DEFAULT)
    return {"sizes": [one for one in allowed_sizes(most) if one >= tensors.least_items], "warm_up": [item]}


def _run_filled(loader: Loader, batch: dict[str, Any], tensors: ModelTensors) -> dict[str, Any]:
    """Runs a batch of at least as many items as the model needs, and answers those that were there."""
    dim = tensors.batch_dim or 0
    items = next(iter(batch.values())).shape[dim]
    if items >= tensors.least_items:
        return dict(loader.run(batch))
    order = [min(at, items - 1) for at in range(tensors.least_items)]
    before: list[Any] = [slice(None)] * dim
    all_of, some_of = (*before, order), (*before, slice(0, items))
    filled = loader.run({name: one[all_of] for name, one in batch.items()})
    return {name: one[some_of] for name, one in filled.items()}


def _array_type(takes: str) -> Any:
    if takes == FRAME:
        import pandas

        return pandas.DataFrame
    if takes == TORCH:
        import torch

        return torch.Tensor
    import numpy

    return numpy.ndarray
