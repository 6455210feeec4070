"""Models of XGBoost in its own formats, JSON and UBJSON: data, not code. The answer is what `Booster.predict` gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jitney.loaders.files import lone_file
from jitney.loaders.loader import Loader, ModelTensors
from jitney.values.tensor import Tensor

INPUT, PREDICT = "input", "predict"
ENDINGS = (".json", ".ubj", ".bst", ".xgb")
LEARNER = re.compile(rb'^\{\s*"learner"\s*:|^\{[Li\x00-\x1f]*learner\{')
"""How both formats begin."""


class XgboostLoader(Loader):
    """Runs boosters."""

    format = "XGBoost"
    needs: ClassVar[Mapping[str, str]] = {"xgboost": "xgboost"}
    model: Any = None
    without_copy = False
    """Whether it predicts without a copy of the rows in its own form."""

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By how it begins."""
        return _file(path) is not None

    def load(self, path: Path, device: str) -> None:
        """Reads it."""
        import xgboost

        self.model = xgboost.Booster(model_file=str(_file(path)))
        self.model.set_param({"device": device})
        self.without_copy = self._same_without_copy()

    def _same_without_copy(self) -> bool:
        """Whether both calls of the library give the same; not all kinds of boosters and features have the second."""
        import numpy
        import xgboost

        sample = numpy.linspace(-3, 3, 4 * self.model.num_features(), dtype=numpy.float32).reshape(4, -1)
        try:
            return bool(numpy.array_equal(self.model.inplace_predict(sample), self._predicted(sample)))
        except (xgboost.core.XGBoostError, ValueError, TypeError):
            return False

    def tensors(self) -> ModelTensors:
        """The features in, one number or one for each class out."""
        import numpy

        features = self.model.num_features()
        sample = self.run({INPUT: numpy.zeros((1, features), numpy.float32)})[PREDICT]
        outputs = {PREDICT: Tensor("FP32", [-1, *sample.shape[1:]])}
        return ModelTensors({INPUT: Tensor("FP32", [-1, features])}, outputs)

    def run(self, batch: Any) -> Any:
        """Predicts."""
        value = batch[INPUT]
        return {PREDICT: self.model.inplace_predict(value) if self.without_copy else self._predicted(value)}

    def _predicted(self, value: Any) -> Any:
        import xgboost

        model = self.model
        matrix = xgboost.DMatrix(value, feature_names=model.feature_names, feature_types=model.feature_types,
                                 enable_categorical=True)  # fmt: skip
        return model.predict(matrix)


def _file(path: Path) -> Path | None:
    return lone_file(path, ENDINGS, lambda head: LEARNER.match(head) is not None)
