"""PyTorch 2's packages, `.pt2`: programs of torch.export, and those that AOTInductor has compiled.

A program tells names, datatypes and shapes, and which dimensions may have any size: one that all inputs and outputs
share is the dimension of the batch. A compiled package tells none of that, so a file beside it does, unless it holds
the program too.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from jitney.call.errors import DefinitionError
from jitney.gpu.device import device
from jitney.loaders.convolutions import fold_batch_norms, lay_out_by_channel
from jitney.loaders.loader import TORCH, ModelTensors
from jitney.loaders.program_check import more_than_data, program_files
from jitney.loaders.torch_module import TorchLoader, datatype, forbid_pickles, named_outputs
from jitney.loaders.torch_script import ModuleLoader
from jitney.values.tensor import Tensor

ENDINGS = (".pt2", ".ep")
COMPILED, PROGRAM = re.compile(r"data/aotinductor/"), re.compile(r"models/[^/]+\.json$")


class ExportedLoader(TorchLoader):
    """Runs programs of torch.export."""

    format = "PyTorch program (torch.export)"
    needs: ClassVar[Mapping[str, str]] = {"torch": "torch", "numpy": "numpy"}
    _tensors: ModelTensors

    @classmethod
    def finds(cls, path: Path) -> bool:
        """A package with a program and nothing compiled."""
        files = program_files(path) if path.suffix in ENDINGS else []
        return _has(files, PROGRAM) and not _has(files, COMPILED)

    @classmethod
    def runs_code(cls, path: Path) -> str | None:
        """Where the program is more than operators of torch and plain expressions."""
        more = more_than_data(path)
        return more and f"torch would evaluate more than a program's operators while it loads {path.name}: {more}"

    def load(self, path: Path, device: str) -> None:
        """Loads the program onto the device."""
        import torch

        if not self.options.trust:
            forbid_pickles()
        if _uses_tensorrt(path):
            import_tensorrt()
        program = torch.export.load(path)
        if device != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
        # Its guards are code of the file; the server has checked the same shapes.
        module = program.module(check_guards=False)
        fold_batch_norms(module)
        if device == "cpu":
            lay_out_by_channel(module)
        calls = _Calls(program)
        self.device, self.outputs = device, tuple(name for name, _ in calls.outputs)
        self._tensors = _told(program, calls)

        def call(batch: dict[str, Any]) -> Any:
            positional, keywords = calls.arguments(batch)
            return module(*positional, **keywords)

        self.function = call

    def tensors(self) -> ModelTensors:
        """What the program says."""
        return self._tensors


class CompiledLoader(ModuleLoader):
    """Runs packages of AOTInductor."""

    format = "PyTorch package (AOTInductor)"
    captures = False
    """Its code starts few kernels by itself, and the process ended when they were captured (torch 2.11, H200)."""

    @classmethod
    def finds(cls, path: Path) -> bool:
        """A package with something compiled."""
        return path.suffix in ENDINGS and _has(program_files(path), COMPILED)

    @classmethod
    def runs_code(cls, path: Path) -> str | None:
        """Always."""
        return f"{path.name} holds compiled code (AOTInductor), which runs as it is"

    def load(self, path: Path, device: str) -> None:
        """Loads the compiled code, which runs on the device that it was compiled for."""
        import torch
        from torch.utils import _pytree

        index = int(device.partition(":")[2] or 0) if device != "cpu" else -1
        package = torch._inductor.aoti_load_package(str(path), device_index=index)
        made_for = package.get_metadata().get("AOTI_DEVICE_KEY", "cpu")
        if made_for != "cpu" and device == "cpu":
            raise DefinitionError(f"it was compiled for {made_for}, and there is none here")
        self.device = "cpu" if made_for == "cpu" else device
        self._path = path
        spec = _pytree.treespec_loads(package.loader.get_call_spec()[0])
        positional, keywords = _pytree.tree_unflatten(range(spec.num_leaves), spec)
        self._names = [] if positional else list(keywords)
        self.function = lambda batch: package(
            *(one for name, one in batch.items() if name not in keywords), **{name: batch[name] for name in keywords}
        )

    def describe(self, path: Path) -> dict[str, Any]:
        """What it tells on the device that it was compiled for: its code runs nowhere else."""
        self.load(path, device())
        return self.tensors().told()


class _Calls:
    """How a program is called: its arguments and answers in their order, by name."""

    def __init__(self, program: Any) -> None:
        from torch.utils import _pytree

        self._tree = _pytree
        self._spec = program.call_spec.in_spec
        values = {node.name: node.meta.get("val") for node in program.graph.nodes}
        names = [str(name) for name in program.graph_signature.user_inputs]
        self.inputs: list[tuple[str, Any]] = [(name, values.get(name)) for name in names]
        out = program.graph_signature.user_outputs
        self.outputs = list(
            named_outputs(
                _pytree.tree_unflatten([values.get(str(one)) for one in out], program.call_spec.out_spec)
            ).items()
        )

    def arguments(self, batch: Mapping[str, Any]) -> Any:
        """The arguments and keyword arguments of a call; what is no tensor is as it was exported."""
        return self._tree.tree_unflatten([batch.get(name, value) for name, value in self.inputs], self._spec)


def _told(program: Any, calls: _Calls) -> ModelTensors:
    """What a program says of its tensors."""
    inputs = {name: value for name, value in calls.inputs if hasattr(value, "dtype")}
    everything = [*inputs.values(), *(value for _, value in calls.outputs)]
    batch_dim = _shared(everything)
    told = [
        {name: Tensor(datatype(one.dtype), _shape(one)) for name, one in side}
        for side in (inputs.items(), calls.outputs)
    ]
    least, most = _range(program, everything[0], batch_dim)
    return ModelTensors(told[0], told[1], batch_dim, TORCH, least_items=least, most_items=most)


def _shared(tensors: Sequence[Any]) -> int | None:
    """The dimension that is free in all tensors and the same in all."""
    for dim in range(min((len(one.shape) for one in tensors), default=0)):
        sizes = {str(one.shape[dim]) for one in tensors}
        if len(sizes) == 1 and not isinstance(tensors[0].shape[dim], int):
            return dim
    return None


def _shape(one: Any) -> list[int]:
    return [size if isinstance(size, int) else -1 for size in one.shape]


def _range(program: Any, one: Any, dim: int | None) -> tuple[int, int | None]:
    """The fewest and the most items that the program was exported for."""
    if dim is None:
        return 1, None
    bounds = program.range_constraints.get(one.shape[dim].node.expr)
    if bounds is None:
        return 1, None
    least, most = (int(end) if str(end).lstrip("-").isdigit() else None for end in (bounds.lower, bounds.upper))
    return max(least or 1, 1), most


def _has(files: Sequence[str], what: re.Pattern[str]) -> bool:
    return any(what.search(name) for name in files)


def _uses_tensorrt(path: Path) -> bool:
    with zipfile.ZipFile(path) as package:
        programs = [name for name in package.namelist() if PROGRAM.search(name)]
        return any(b"torch.ops.tensorrt." in package.read(name) for name in programs)


def import_tensorrt() -> None:
    """Registers the operators of Torch-TensorRT. This way has not been tested, for want of the library here."""
    try:
        __import__("torch_tensorrt")
    except ImportError:
        raise DefinitionError(
            "it has parts for TensorRT, and this Python lacks what runs them: pip install torch-tensorrt"
        ) from None
