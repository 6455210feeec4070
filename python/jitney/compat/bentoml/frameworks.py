"""`bentoml.pytorch`, `bentoml.sklearn` and the like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jitney.compat.bentoml import store
from jitney.compat.bentoml.exceptions import InvalidArgument
from jitney.compat.bentoml.framework import Framework, pickling


class Sklearn(Framework):
    """scikit-learn."""

    name, methods, needs = "sklearn", ("predict",), "sklearn"


class Picklable(Framework):
    """Anything that can be pickled: an object, or a function."""

    name = "picklable_model"


class PyTorch(Framework):
    """Modules of torch, pickled whole."""

    name, file, needs = "pytorch", "saved_model.pt", "torch"

    def write(self, model: Any, path: Path) -> None:
        import torch

        if not isinstance(model, torch.nn.Module):
            raise InvalidArgument(f"bentoml.pytorch saves a torch.nn.Module, not {type(model).__name__}")
        torch.save(model, path, pickle_module=pickling())

    def read(self, path: Path, *args: Any, **options: Any) -> Any:
        import torch

        device = args[0] if args else options.get("device_id", "cpu")
        known = {"weights_only": False} if "weights_only" in torch.load.__code__.co_varnames else {}
        return torch.load(path, map_location=device, **known)

    def call(self, model: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import torch

        moved = [_tensor(one) for one in args]
        with torch.inference_mode():
            return getattr(model, method)(*moved, **{name: _tensor(one) for name, one in kwargs.items()})


class TorchScript(PyTorch):
    """Modules of TorchScript."""

    name = "torchscript"

    def write(self, model: Any, path: Path) -> None:
        import torch

        torch.jit.save(model, path)

    def read(self, path: Path, *args: Any, **options: Any) -> Any:
        import torch

        return torch.jit.load(path, map_location=args[0] if args else options.get("device_id", "cpu"))


class Onnx(Framework):
    """ONNX; runners use ONNX Runtime."""

    name, file, methods, needs = "onnx", "saved_model.onnx", ("run",), "onnx"

    def write(self, model: Any, path: Path) -> None:
        path.write_bytes(model.SerializeToString())

    def read(self, path: Path, *args: Any, **options: Any) -> Any:
        """An ONNX Runtime session of the file."""
        import onnxruntime

        providers = options.get("providers") or ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(str(path), providers=providers)

    def call(self, model: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import numpy

        wanted = [one.name for one in model.get_inputs()]
        values = {**dict(zip(wanted, args)), **kwargs}
        floats = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(int64)": "int64"}
        kinds = {one.name: floats.get(one.type) for one in model.get_inputs()}
        fed = {name: numpy.asarray(value, dtype=kinds.get(name)) for name, value in values.items()}
        outputs = model.run(None, fed)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


sklearn, picklable_model, pytorch, torchscript, onnx = Sklearn(), Picklable(), PyTorch(), TorchScript(), Onnx()
store.FRAMEWORKS.update({one.name: one for one in (sklearn, picklable_model, pytorch, torchscript, onnx)})


def _tensor(value: Any) -> Any:
    import torch

    return torch.as_tensor(value) if isinstance(value, list) or type(value).__module__ == "numpy" else value
