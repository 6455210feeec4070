"""Tensors of a model whose file does not tell them: from a file beside it, or from an example input.

    net.pt  net.tensors.json    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}
    net.pt  net.example.npy     one input, or net.example.npz for several by name

What the model gives is found by running it once, unless the first file has `outputs` too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.execution.tensor_answers import DATATYPES
from jitney.loaders.loader import TORCH, ModelTensors
from jitney.values.tensor import BYTES, FORMATS, Tensor

SAMPLE_ITEMS = 2
"""The size of dimensions that may have any, in the batch that is made up."""
Run = Callable[[dict[str, Any]], Mapping[str, Any]]


def declared_tensors(path: Path, names: Sequence[str], run: Run) -> ModelTensors:
    """The tensors of a model, whose inputs have these names in this order as far as it tells."""
    import numpy
    import torch

    beside = path.with_name(path.name.partition(".")[0])
    declaration = beside.with_name(f"{beside.name}.tensors.json")
    told: dict[str, Any] = {}
    if declaration.is_file():
        told = _read(declaration)
        inputs = _tensors(declaration, told, "inputs")
        sample: dict[str, Any] = {
            name: numpy.zeros(_sizes(one), FORMATS[one.datatype][1]) for name, one in inputs.items()
        }
    else:
        sample = _example(beside, names)
        inputs = {name: Tensor(datatype_of(one), [-1, *one.shape[1:]]) for name, one in sample.items()}
    try:
        answer = run({name: torch.from_numpy(one) for name, one in sample.items()})
    except Exception as error:
        raise DefinitionError(f"it does not run on its example input: {error}") from error
    found = {name: one.cpu().numpy() for name, one in answer.items()}
    outputs = {name: Tensor(datatype_of(one), [-1, *one.shape[1:]]) for name, one in found.items()}
    rows = {one.shape[0] if one.ndim else 0 for one in (*sample.values(), *found.values())}
    free = all(one.shape and one.shape[0] == -1 for one in inputs.values())
    batched = len(rows) == 1 and free
    if not batched:
        outputs = {name: Tensor(datatype_of(one), one.shape) for name, one in found.items()}
    if told.get("outputs"):
        outputs = _tensors(declaration, told, "outputs")
    return ModelTensors(inputs, outputs, 0 if batched else None, TORCH)


def _example(beside: Path, names: Sequence[str]) -> dict[str, Any]:
    import numpy

    lone, several = beside.with_name(f"{beside.name}.example.npy"), beside.with_name(f"{beside.name}.example.npz")
    if several.is_file():
        with numpy.load(several, allow_pickle=False) as arrays:
            return dict(arrays)
    if lone.is_file():
        return {names[0] if names else "input": numpy.load(lone, allow_pickle=False)}
    raise DefinitionError(
        "its file does not say which tensors it takes: write them into "
        f'{beside.name}.tensors.json beside it, such as {{"inputs": [{{"name": "{names[0] if names else "x"}", '
        f'"datatype": "FP32", "shape": [-1, 4]}}]}}, or put an example input there as {lone.name}'
    )


def _read(declaration: Path) -> dict[str, Any]:
    try:
        told = json.loads(declaration.read_text())
    except ValueError as error:
        raise DefinitionError(f"{declaration.name} is no JSON: {error}") from None
    if not isinstance(told, dict) or not told.get("inputs"):
        raise DefinitionError(f"{declaration.name} has no list `inputs` of objects with name, datatype and shape")
    return told


def _tensors(declaration: Path, told: Mapping[str, Any], side: str) -> dict[str, Tensor]:
    try:
        return {str(one["name"]): Tensor(one["datatype"], one["shape"]) for one in told[side]}
    except (KeyError, TypeError, AttributeError) as error:
        raise DefinitionError(f"{declaration.name}: each of {side} needs name, datatype and shape: {error}") from None


def _sizes(one: Tensor) -> list[int]:
    if one.datatype == BYTES:
        raise DefinitionError("a tensor of BYTES cannot be given to torch")
    return [SAMPLE_ITEMS if size == -1 else size for size in one.shape]


def datatype_of(array: Any) -> str:
    """The datatype of a numpy array."""
    return DATATYPES.get(array.dtype.str.lstrip("<|=>").replace("b1", "?"), BYTES)
