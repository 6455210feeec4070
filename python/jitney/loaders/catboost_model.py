"""Models of CatBoost in its own formats, `.cbm` and JSON: data, not code.

The answers are those of `predict`: values of a regression; of a classifier the classes, with their probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jitney.loaders.files import lone_file
from jitney.loaders.loader import FRAME, Loader, ModelTensors
from jitney.values.tensor import BYTES, Tensor

INPUT, PREDICT, PROBABILITY = "input", "predict", "predict_proba"


class CatboostLoader(Loader):
    """Runs CatBoost's models. Those with categories or texts take frames, with their columns by name."""

    format = "CatBoost"
    needs: ClassVar[Mapping[str, str]] = {"catboost": "catboost"}
    model: Any = None
    _labels = "INT64"

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By how it begins."""
        return _file(path) is not None

    def load(self, path: Path, device: str) -> None:
        """Reads it."""
        import catboost

        file = _file(path)
        self.model = catboost.CatBoost()
        self.model.load_model(str(file), format="json" if file is not None and file.suffix == ".json" else "cbm")
        classes = getattr(self.model, "classes_", ())
        self._labels = BYTES if any(isinstance(one, str) for one in classes) else "INT64"

    def tensors(self) -> ModelTensors:
        """The features in; values, or classes and probabilities out."""
        classes = len(getattr(self.model, "classes_", ()))
        outputs = {PREDICT: Tensor(self._labels if classes else "FP64", [-1])}
        if classes:
            outputs[PROBABILITY] = Tensor("FP64", [-1, classes])
        model = self.model
        if model._get_cat_feature_indices() or model._get_text_feature_indices():
            return ModelTensors({}, outputs, takes=FRAME)
        features = len(model.feature_names_)
        return ModelTensors({INPUT: Tensor("FP64", [-1, features])}, outputs)

    def run(self, batch: Any) -> Any:
        """Predicts."""
        value = batch[INPUT] if isinstance(batch, dict) else batch[self.model.feature_names_]
        if not len(getattr(self.model, "classes_", ())):
            return {PREDICT: self.model.predict(value)}
        labels = self.model.predict(value, prediction_type="Class").reshape(len(value))
        return {PREDICT: labels, PROBABILITY: self.model.predict(value, prediction_type="Probability")}


def _file(path: Path) -> Path | None:
    return lone_file(path, (".cbm",), lambda head: head.startswith(b"CBM1")) or lone_file(path, (".json",), _is_json)


def _is_json(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"features_info"' in head
