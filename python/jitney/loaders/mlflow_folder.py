"""MLflow's folders, which say in `MLmodel` what they hold. Models that scikit-learn, XGBoost and LightGBM saved are run
by these libraries alone; all others by MLflow's `pyfunc`, which is Python code of the folder's choice. The signature
becomes the types: columns make a frame, tensors make arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from jitney.call.errors import DefinitionError
from jitney.loaders.lightgbm_model import LightgbmLoader
from jitney.loaders.loader import ARRAYS, FRAME, Loader, LoadOptions, ModelTensors
from jitney.loaders.scikit_learn import EstimatorLoader, PickleLoader, SkopsLoader
from jitney.loaders.xgboost_model import XgboostLoader
from jitney.values.tensor import BYTES, Tensor

DESCRIPTION = "MLmodel"
INPUT, PREDICT = "input", "predict"
DATATYPES = {"boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64"}
"""By MLflow's names of columns; all others are texts."""


class MlflowLoader(Loader):
    """Runs what an MLflow folder holds."""

    format = "MLflow"
    needs: ClassVar[Mapping[str, str]] = {"yaml": "pyyaml", "pandas": "pandas"}

    def __init__(self, options: LoadOptions) -> None:
        super().__init__(options)
        self._content = MlflowContent(Path())
        self._model: Any = None

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By its description."""
        return (path / DESCRIPTION).is_file()

    @classmethod
    def runs_code(cls, path: Path) -> str | None:
        """Where it is not the data of a library."""
        content = MlflowContent(path)
        library, file = content.library
        if library is None:
            return f"its flavours ({', '.join(content.flavors)}) are loaded by MLflow, which runs code of the folder"
        return library.runs_code(file)

    def load(self, path: Path, device: str) -> None:
        """Loads it with its library, or with MLflow."""
        self._content = MlflowContent(path)
        library, file = self._content.library
        if library is None:
            self._model = _mlflow().load_model(str(path))
            return
        if missing := library.missing():
            raise DefinitionError(f"it is a {library.format} model: pip install {' '.join(missing)}")
        self._model = library(self.options)
        self._model.load(file, device)

    def describe(self, path: Path) -> dict[str, Any]:
        """What MLflow runs is told by its folder, and need not be loaded for it."""
        content = MlflowContent(path)
        if content.library[0] is not None:
            return super().describe(path)
        _mlflow()
        self._content = content
        return self.tensors().told()

    def tensors(self) -> ModelTensors:
        """What the signature says; without one what the library says."""
        inputs, takes = self._content.inputs
        if isinstance(self._model, Loader):
            told = self._model.tensors()
            return told if inputs is None else ModelTensors(inputs, told.outputs, takes=takes)
        if inputs is None:
            return ModelTensors({}, {}, takes=FRAME)
        return ModelTensors(inputs, self._content.outputs, takes=takes)

    def run(self, batch: Any) -> Any:
        """Predicts."""
        if isinstance(self._model, EstimatorLoader):
            return self._model.run(_only(batch))
        if isinstance(self._model, Loader):
            value = _only(batch)
            return self._model.run({INPUT: value.to_numpy() if hasattr(value, "to_numpy") else value})
        answer = self._model.predict(_only(batch))
        if hasattr(answer, "columns"):
            return {str(name): answer[name].to_numpy() for name in answer.columns}
        return answer if isinstance(answer, dict) else {next(iter(self._content.outputs), PREDICT): answer}


class XgboostEstimatorLoader(EstimatorLoader):
    """XGBoost's models with scikit-learn's methods, in XGBoost's own format."""

    format = "XGBoost (scikit-learn)"
    needs: ClassVar[Mapping[str, str]] = {"xgboost": "xgboost", "sklearn": "scikit-learn"}
    estimator: ClassVar[str] = "XGBModel"

    @classmethod
    def finds(cls, path: Path) -> bool:
        """What the folder's description says decides."""
        return False

    def load(self, path: Path, device: str) -> None:
        """Reads it."""
        import xgboost

        self.model = getattr(xgboost, self.estimator)()
        self.model.load_model(str(path))


class MlflowContent:
    """What the description of a folder says."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _told(self) -> dict[str, Any]:
        import yaml

        told = yaml.safe_load((self._path / DESCRIPTION).read_text())
        if not isinstance(told, dict) or not isinstance(told.get("flavors"), dict):
            raise DefinitionError(f"its file {DESCRIPTION} names no flavors")
        return told

    @property
    def flavors(self) -> dict[str, Any]:
        """Its forms, by the name of the library."""
        flavors: dict[str, Any] = self._told["flavors"]
        return flavors

    @cached_property
    def library(self) -> tuple[type[Loader] | None, Path]:
        """The loader that runs it without MLflow, if there is one, and the file for it."""
        sklearn, xgboost, lightgbm = (self.flavors.get(name) or {} for name in ("sklearn", "xgboost", "lightgbm"))
        if sklearn:
            kind = SkopsLoader if sklearn.get("serialization_format") == "skops" else PickleLoader
            return kind, self._inside(sklearn.get("pickled_model", "model.pkl"))
        name = str(xgboost.get("model_class", ""))
        if name.endswith("core.Booster"):
            return XgboostLoader, self._inside(xgboost["data"])
        if name.startswith("xgboost.sklearn.XGB"):
            estimator = {"estimator": name.rpartition(".")[2]}
            return type("NamedEstimatorLoader", (XgboostEstimatorLoader,), estimator), self._inside(xgboost["data"])
        if str(lightgbm.get("model_class", "")) == "lightgbm.basic.Booster":
            return LightgbmLoader, self._inside(lightgbm["data"])
        return None, self._path

    def _inside(self, name: str) -> Path:
        file = (self._path / name).resolve()
        if not file.is_relative_to(self._path.resolve()):
            raise DefinitionError(f"its file {DESCRIPTION} names {name}, which is not inside the folder")
        return file

    @cached_property
    def inputs(self) -> tuple[dict[str, Tensor] | None, str]:
        """The inputs by name, and whether they are columns or arrays; None without a signature."""
        columns = self._signature("inputs")
        if not columns:
            return None, ARRAYS
        is_tensor = columns[0].get("type") == "tensor"
        return _tensors(columns, INPUT), ARRAYS if is_tensor else FRAME

    @cached_property
    def outputs(self) -> dict[str, Tensor]:
        """The outputs by name."""
        return _tensors(self._signature("outputs"), PREDICT)

    def _signature(self, side: str) -> list[dict[str, Any]]:
        told = (self._told.get("signature") or {}).get(side)
        read = json.loads(told) if isinstance(told, str) else told
        return [one for one in read or () if isinstance(one, dict)]


def _tensors(columns: list[dict[str, Any]], otherwise: str) -> dict[str, Tensor]:
    found = {}
    for at, one in enumerate(columns):
        name = one.get("name") or (otherwise if len(columns) == 1 else f"{otherwise}_{at}")
        spec = one.get("tensor-spec")
        if spec is not None:
            known = {"bool": "BOOL", "str": BYTES, "object": BYTES}
            found[str(name)] = Tensor(
                known.get(spec["dtype"]) or spec["dtype"].upper().replace("FLOAT", "FP"), spec["shape"]
            )
        else:
            found[str(name)] = Tensor(DATATYPES.get(str(one.get("type")), BYTES), [-1])
    return found


def _only(batch: Any) -> Any:
    """A frame, or the only array; several arrays stay together."""
    return next(iter(batch.values())) if isinstance(batch, dict) and len(batch) == 1 else batch


def _mlflow() -> Any:
    try:
        from mlflow import pyfunc
    except ImportError:
        raise DefinitionError(
            "it is an MLflow model, and this Python lacks what runs it: pip install mlflow-skinny"
        ) from None
    return pyfunc
