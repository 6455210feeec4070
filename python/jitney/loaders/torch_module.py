"""What all models of torch have in common: named tensors in, calls without gradients, named tensors out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.gpu.graphed import graphs
from jitney.loaders.loader import Loader, LoadOptions
from jitney.values.tensor import BF16, FORMATS

OUTPUT = "output"


class TorchLoader(Loader):
    """Runs a callable of torch on tensors."""

    captures = True

    def __init__(self, options: LoadOptions) -> None:
        super().__init__(options)
        self.function: Callable[[dict[str, Any]], Any] = lambda batch: batch
        """What is called with the tensors on the device."""
        self.device = "cpu"
        self.outputs: tuple[str, ...] = ()
        """The names of its outputs in their order, if it tells them."""

    def capture(self) -> None:
        """From here on graphs run it, on a GPU."""
        if self.device != "cpu":
            self.function = graphs(self.function)

    def run(self, batch: Any) -> Any:
        """Runs it."""
        import torch

        with torch.inference_mode():
            on_device = {name: one.to(self.device, non_blocking=True) for name, one in batch.items()}
            return named_outputs(self.function(on_device), self.outputs)


def named_outputs(value: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """The tensors of an answer by their names: those that are given, else the keys of dictionaries, or numbers."""
    found = dict(_named_tensors(value, ""))
    return dict(zip(names, found.values())) if len(names) == len(found) else found


def _named_tensors(value: Any, name: str) -> list[tuple[str, Any]]:
    if hasattr(value, "detach"):
        return [(name or OUTPUT, value)]
    if isinstance(value, Mapping):
        parts = [(str(key), one) for key, one in value.items()]
    elif isinstance(value, (list, tuple)):
        keys = getattr(value, "_fields", range(len(value)))
        parts = [
            (str(key) if isinstance(key, str) else f"{'' if name else OUTPUT}_{key}", one)
            for key, one in zip(keys, value)
        ]
    elif value is None:
        return []
    else:
        raise DefinitionError(f"it gives a {type(value).__name__}, which is no tensor")
    return [found for key, one in parts for found in _named_tensors(one, f"{name}_{key}".strip("_"))]


def datatype(dtype: Any) -> str:
    """How the Open Inference Protocol calls a dtype of torch."""
    name = str(dtype).removeprefix("torch.").upper()
    told = BF16 if name == "BFLOAT16" else name.replace("FLOAT", "FP")
    if told not in FORMATS:
        raise DefinitionError(f"a tensor of {dtype} has no datatype in the Open Inference Protocol")
    return told


def forbid_pickles() -> None:
    """From here on torch unpickles tensors and nothing else in this process."""
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
