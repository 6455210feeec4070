"""TorchScript files, and weights in safetensors beside the Python file of their model.

Neither says which tensors it takes: `jitney.loaders.declared` finds that. A TorchScript file is a program of
TorchScript's own interpreter; the Python file beside weights is code like any other.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jitney.call.errors import DefinitionError
from jitney.loaders.declared import declared_tensors
from jitney.loaders.loader import ModelTensors
from jitney.loaders.program_check import program_files
from jitney.loaders.torch_module import TorchLoader

ENDINGS = (".pt", ".pth", ".ts", ".torchscript")
BUILD = "build"


class ModuleLoader(TorchLoader):
    """Runs modules whose tensors are declared beside them."""

    needs: ClassVar[Mapping[str, str]] = {"torch": "torch", "numpy": "numpy"}
    _path: Path
    _names: list[str]

    def serve(self, path: Path, module: Any, names: list[str], device: str) -> None:
        """Takes the loaded module and the names of its arguments."""
        self._path, self._names, self.device = path, names, device
        known = set(names)
        # Those that are not arguments by name come in their order.
        self.function = lambda batch: module(**batch) if batch.keys() <= known else module(*batch.values())

    def tensors(self) -> ModelTensors:
        """What is declared beside it."""
        return declared_tensors(self._path, self._names, self.run)


class ScriptLoader(ModuleLoader):
    """Runs TorchScript."""

    format = "TorchScript"

    @classmethod
    def finds(cls, path: Path) -> bool:
        """An archive of torch with code of TorchScript."""
        return path.suffix in ENDINGS and any("/code/" in name for name in program_files(path))

    def load(self, path: Path, device: str) -> None:
        """Loads it onto the device."""
        import torch

        module = torch.jit.load(str(path), map_location=device).eval()
        names = [one.name for one in module.forward.schema.arguments if one.name != "self"]
        self.serve(path, module, names, device)


class SafetensorsLoader(ModuleLoader):
    """Runs a module of a Python file with the weights beside it."""

    format = "safetensors with a model file"
    needs: ClassVar[Mapping[str, str]] = {**ModuleLoader.needs, "safetensors": "safetensors"}

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By its ending."""
        return path.is_file() and path.suffix == ".safetensors"

    @classmethod
    def runs_code(cls, path: Path) -> str | None:
        """The Python file is code."""
        return f"{path.with_suffix('.py').name} beside it is run to build the model"

    def load(self, path: Path, device: str) -> None:
        """Builds the module and gives it the weights."""
        from safetensors.torch import load_file

        module = _build(path.with_suffix(".py"))
        try:
            module.load_state_dict(load_file(str(path), device="cpu"))
        except RuntimeError as error:
            raise DefinitionError(f"the weights do not fit the module of {path.stem}.py: {error}") from None
        code = module.forward.__code__
        names = list(code.co_varnames[1 : code.co_argcount])
        self.serve(path, module.eval().to(device), names, device)


def _build(file: Path) -> Any:
    if not file.is_file():
        raise DefinitionError(
            f"it holds weights and no model: write {file.name} beside it, with a function {BUILD}() that returns the "
            "torch.nn.Module they belong to"
        )
    spec = importlib.util.spec_from_file_location(f"_jitney_model_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{file.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, BUILD, None)):
        raise DefinitionError(f"{file.name} has no function {BUILD}() that returns the torch.nn.Module")
    return module.build()
