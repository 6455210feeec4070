"""Models of scikit-learn: files of skops, which are data, and pickles (joblib too), which are programs.

The answers are those of `predict`, and of `predict_proba` where the model has it. Models that choose columns by their
names take frames, those that begin with a vectorizer take texts, all others take one array of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from jitney.call.errors import DefinitionError
from jitney.execution.tensor_answers import DATATYPES
from jitney.loaders.files import lone_file
from jitney.loaders.loader import FRAME, Loader, ModelTensors, NotTrusted
from jitney.values.tensor import BYTES, Tensor

INPUT = "input"
PREDICT, PROBABILITY = "predict", "predict_proba"
PICKLES = (".joblib", ".pkl", ".pickle")


class EstimatorLoader(Loader):
    """Runs estimators, however they were saved."""

    model: Any = None

    def tensors(self) -> ModelTensors:
        """One array, one list of texts or a frame in, predictions and probabilities out."""
        import numpy

        features = getattr(self.model, "n_features_in_", -1)
        texts, columns = _takes_texts(self.model), _chooses_columns(self.model)
        sample = None if columns or features < 0 else numpy.zeros((1, features))
        outputs = {PREDICT: _predictions(self.model, ["text"] if texts else sample)}
        if _gives_probabilities(self.model):
            outputs[PROBABILITY] = Tensor("FP64", [-1, len(self.model.classes_)])
        if texts:
            return ModelTensors({INPUT: Tensor(BYTES, [-1])}, outputs)
        if columns:
            return ModelTensors({}, outputs, takes=FRAME)
        return ModelTensors({INPUT: Tensor("FP64", [-1, features])}, outputs)

    def run(self, batch: Any) -> Any:
        """Predicts."""
        value = batch[INPUT] if isinstance(batch, dict) else batch  # A frame has no name.
        if str(getattr(value, "dtype", "")) == "object":
            value = [one.decode() if isinstance(one, bytes) else one for one in value]
        if not _gives_probabilities(self.model):
            return {PREDICT: self.model.predict(value)}
        if _is_forest(self.model):  # Its `predict` is this, after it has computed the probabilities once more.
            probabilities = _of_trees(self.model, value)
            return {PREDICT: self.model.classes_.take(probabilities.argmax(axis=1)), PROBABILITY: probabilities}
        return {PREDICT: self.model.predict(value), PROBABILITY: self.model.predict_proba(value)}


class SkopsLoader(EstimatorLoader):
    """Files of skops."""

    format = "scikit-learn (skops)"
    needs: ClassVar[Mapping[str, str]] = {"sklearn": "scikit-learn", "skops": "skops"}

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By its ending."""
        return path.suffix == ".skops"

    def load(self, path: Path, device: str) -> None:
        """Reads it; types that skops does not know are the user's to trust."""
        from skops import io

        unknown = io.get_untrusted_types(file=path)
        if unknown and not self.options.trust:
            raise NotTrusted(f"it has types that skops does not know to be safe: {', '.join(unknown)}")
        self.model = _checked(io.load(path, trusted=unknown))


class PickleLoader(EstimatorLoader):
    """Pickles of estimators, as joblib and pickle write them."""

    format = "scikit-learn (pickle)"
    needs: ClassVar[Mapping[str, str]] = {"sklearn": "scikit-learn", "joblib": "joblib"}

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By its ending, or a folder with one such file, as KServe mounts them."""
        return _pickle(path) is not None

    @classmethod
    def runs_code(cls, path: Path) -> str | None:
        """Always."""
        return f"{path.name} is a pickle, and loading a pickle runs whatever it says"

    def load(self, path: Path, device: str) -> None:
        """Unpickles it."""
        import joblib

        self.model = _checked(joblib.load(_pickle(path)))


def _pickle(path: Path) -> Path | None:
    return lone_file(path, PICKLES)


def _checked(model: Any) -> Any:
    if not callable(getattr(model, "predict", None)):
        raise DefinitionError(f"it is a {type(model).__name__}, which has no method predict")
    return model


def _steps(model: Any) -> Iterator[Any]:
    """A model and, of a pipeline, all its steps."""
    yield model
    for _, step in getattr(model, "steps", ()):
        yield from _steps(step)


def _takes_texts(model: Any) -> bool:
    first = next((one for one in _steps(model) if not hasattr(one, "steps")), model)
    return type(first).__module__ == "sklearn.feature_extraction.text" and hasattr(first, "build_analyzer")


def _chooses_columns(model: Any) -> bool:
    by_name = (getattr(one, "transformers", None) for one in _steps(model))
    named = any(isinstance(name, str) for found in by_name for _, _, names in found or () for name in names)
    return named and hasattr(model, "feature_names_in_")


def _gives_probabilities(model: Any) -> bool:
    # Several outputs have a list of probabilities, one array for each.
    single = hasattr(getattr(model, "classes_", None), "shape")
    return single and hasattr(model, "predict_proba")


def _is_forest(model: Any) -> bool:
    return type(model).__module__ == "sklearn.ensemble._forest"


def _of_trees(model: Any, value: Any) -> Any:
    """The mean over a forest's trees. `predict_proba` gives the same, and hands each tree to a pool of threads first,
    which costs a batch more than the trees do."""
    rows = model._validate_X_predict(value)
    total = sum(tree.predict_proba(rows, check_input=False) for tree in model.estimators_)
    return total / len(model.estimators_)


def _predictions(model: Any, sample: Any) -> Tensor:
    """What `predict` gives: by one made-up row where there can be one, else by the classes."""
    import numpy

    given = numpy.zeros(1) if sample is None else model.predict(sample)
    values = model.classes_ if sample is None and hasattr(model, "classes_") else numpy.asarray(given)
    kind = values.dtype.str.lstrip("<|=>").replace("b1", "?")
    return Tensor(DATATYPES.get(kind, BYTES), [-1, *given.shape[1:]])
