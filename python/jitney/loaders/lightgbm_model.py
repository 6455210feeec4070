"""Models of LightGBM in its own format, a text: data, not code. The answer is what `Booster.predict` gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jitney.loaders.files import lone_file
from jitney.loaders.loader import Loader, ModelTensors
from jitney.values.tensor import Tensor

INPUT, PREDICT = "input", "predict"
ENDINGS = (".txt", ".bst", ".lgb", ".lightgbm")
BEGINNING = b"tree\nversion="


class LightgbmLoader(Loader):
    """Runs boosters."""

    format = "LightGBM"
    needs: ClassVar[Mapping[str, str]] = {"lightgbm": "lightgbm"}
    model: Any = None

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By how it begins."""
        return _file(path) is not None

    def load(self, path: Path, device: str) -> None:
        """Reads it."""
        import lightgbm

        self.model = lightgbm.Booster(model_file=str(_file(path)))

    def tensors(self) -> ModelTensors:
        """The features in, one number or one for each class out."""
        classes = self.model.num_model_per_iteration()
        features = self.model.num_feature()
        outputs = {PREDICT: Tensor("FP64", [-1] if classes == 1 else [-1, classes])}
        return ModelTensors({INPUT: Tensor("FP64", [-1, features])}, outputs)

    def run(self, batch: Any) -> Any:
        """Predicts."""
        return {PREDICT: self.model.predict(batch[INPUT])}


def _file(path: Path) -> Path | None:
    return lone_file(path, ENDINGS, lambda head: head.replace(b"\r\n", b"\n").startswith(BEGINNING))
