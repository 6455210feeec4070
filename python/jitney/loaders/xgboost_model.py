"""Models of XGBoost in its own formats, JSON and UBJSON: data, not code. The answer is what `Booster.predict` gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jitney.loaders.files import lone_file
from jitney.loaders.loader import Loader, LoadOptions, ModelTensors
from jitney.values.tensor import Tensor

INPUT, PREDICT = "input", "predict"
ENDINGS = (".json", ".ubj", ".bst", ".xgb")
LEARNER = re.compile(rb'^\{\s*"learner"\s*:|^\{[Li\x00-\x1f]*learner\{')
"""How both formats begin."""


class XgboostLoader(Loader):
    """Runs boosters."""

    format = "XGBoost"
    needs: ClassVar[Mapping[str, str]] = {"xgboost": "xgboost"}

    def __init__(self, options: LoadOptions) -> None:
        super().__init__(options)
        self.model: Any = None

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By how it begins."""
        return _file(path) is not None

    def load(self, path: Path, device: str) -> None:
        """Reads it."""
        import xgboost

        self.model = xgboost.Booster(model_file=str(_file(path)))
        self.model.set_param({"device": device})

    def tensors(self) -> ModelTensors:
        """The features in, one number or one for each class out."""
        import numpy

        features = self.model.num_features()
        sample = self.run({INPUT: numpy.zeros((1, features), numpy.float32)})[PREDICT]
        outputs = {PREDICT: Tensor("FP32", [-1, *sample.shape[1:]])}
        return ModelTensors({INPUT: Tensor("FP32", [-1, features])}, outputs)

    def run(self, batch: Any) -> Any:
        """Predicts."""
        import xgboost

        model, value = self.model, batch[INPUT]
        matrix = xgboost.DMatrix(value, feature_names=model.feature_names, feature_types=model.feature_types,
                                 enable_categorical=True)  # fmt: skip
        return {PREDICT: model.predict(matrix)}


def _file(path: Path) -> Path | None:
    return lone_file(path, ENDINGS, lambda head: LEARNER.match(head) is not None)
