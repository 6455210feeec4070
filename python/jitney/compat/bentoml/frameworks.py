"""`bentoml.pytorch`, `bentoml.sklearn` and the like: models are saved in the store, loaded from it, run by runners."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jitney.compat.bentoml import store
from jitney.compat.bentoml.exceptions import InvalidArgument, MissingDependencyException
from jitney.compat.bentoml.runner import Runnable, Runner
from jitney.compat.bentoml.store import StoredModel, Tag

SIGNATURE_KEYS = ("batchable", "batch_dim", "input_spec", "output_spec")


class Framework:
    """One framework: its file, and the methods that its models have unless `signatures` says otherwise."""

    name = ""
    file = "saved_model.pkl"
    methods: tuple[str, ...] = ("__call__",)
    needs = ""
    """The package that must be there."""

    def save_model(
        self,
        name: str | Tag,
        model: Any,
        *,
        signatures: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        external_modules: Any = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> StoredModel:
        """Keeps a model in the store, under a name or `name:version`; its tag has a version."""
        self._check()
        told = {method: _signature(method, one) for method, one in (signatures or self._signatures()).items()}

        def write(directory: Path) -> None:
            self.write(model, directory / self.file)
            if custom_objects:
                (directory / store.CUSTOM_OBJECTS).write_bytes(dumps(dict(custom_objects)))

        description = {
            "signatures": told, "labels": dict(labels or {}), "metadata": dict(metadata or {}), "options": options,
        }  # fmt: skip
        return store.save(name, self.name, write, description)

    def load_model(self, bento_model: str | Tag | StoredModel, *args: Any, **options: Any) -> Any:
        """The model that was saved."""
        self._check()
        found = store.get(bento_model)
        if found.module != self.name:
            raise InvalidArgument(f"{found.tag} was saved with bentoml.{found.module}; load it with that, too")
        return self.read(Path(found.path) / self.file, *args, **options)

    def get(self, tag: str | Tag) -> StoredModel:
        """A model of the store, for `.to_runner()` and what is known of it."""
        found = store.get(tag)
        if found.module != self.name:
            raise InvalidArgument(f"{found.tag} was saved with bentoml.{found.module}")
        return found

    def get_runnable(self, model: StoredModel) -> type[Runnable]:
        """The runnable of a model."""
        return _runnable_of(self, model)

    def runner_of(self, model: StoredModel, name: str, **options: Any) -> Runner:
        """A runner of a model in the store."""
        return Runner(_runnable_of(self, model), name=name, models=[model], **options)

    def write(self, model: Any, path: Path) -> None:
        """Writes the file."""
        path.write_bytes(dumps(model))

    def read(self, path: Path, *args: Any, **options: Any) -> Any:
        """Reads the file."""
        return pickle.loads(path.read_bytes())

    def call(self, model: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a method of a model in a runner."""
        return getattr(model, method)(*args, **kwargs)

    def _signatures(self) -> dict[str, Any]:
        return {method: {"batchable": False} for method in self.methods}

    def _check(self) -> None:
        if self.needs and importlib.util.find_spec(self.needs) is None:
            text = f"bentoml.{self.name} needs {self.needs}: pip install {self.needs}"
            raise MissingDependencyException(text)


def _runnable_of(owner: Framework, model: StoredModel) -> type[Runnable]:
    """A runnable with the methods that the model's signatures name."""

    class ModelRunnable(Runnable):
        """A model of the store."""

        def __init__(self) -> None:
            super().__init__()
            self.model = owner.load_model(model)
            if hasattr(self.model, "eval") and hasattr(self.model, "train"):
                self.model.eval()

    for method, one in model.signatures.items():
        dims = one.get("batch_dim", 0)
        ModelRunnable.add_method(
            _caller(owner, method), method, batchable=bool(one.get("batchable")),
            batch_dim=tuple(dims) if isinstance(dims, list) else dims,
        )  # fmt: skip
    ModelRunnable.__name__ = f"{model.tag.name}_runnable"
    return ModelRunnable


def _caller(owner: Framework, method: str) -> Any:
    """A method that takes one value, as most models do, or several by name."""

    def call(self: Any, x: Any = None, **others: Any) -> Any:
        args = () if x is None else (x,)
        return owner.call(self.model, method, args, others)

    return call


def _signature(method: str, given: Any) -> dict[str, Any]:
    told = dict(given) if isinstance(given, Mapping) else vars(given)
    unknown = next((key for key in told if key not in SIGNATURE_KEYS), None)
    if unknown is not None:
        raise InvalidArgument(f"the signature of {method} has no {unknown!r}; it may have {', '.join(SIGNATURE_KEYS)}")
    return {key: value for key, value in told.items() if key in ("batchable", "batch_dim")}


def pickling() -> Any:
    """cloudpickle where it is installed, which also keeps classes of the main program."""
    try:
        import cloudpickle
    except ImportError:
        return pickle
    return cloudpickle


def dumps(value: Any) -> bytes:
    """A value as bytes."""
    raw: bytes = pickling().dumps(value)
    return raw


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
