"""A scikit-learn classifier: the rows of all callers are joined, and the answers are split again."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

import jitney


@jitney.model(workers=1)
class Digits:
    """Reads handwritten digits: 64 pixels from 0 to 16 each."""

    def setup(self) -> None:
        """Trains in a moment; a real model would be loaded here, once per worker."""
        digits = load_digits()
        self.model = GaussianNB(var_smoothing=0.01).fit(digits.data, digits.target)

    @jitney.batch(max_batch_size=100, max_latency_ms=500)
    def predict(self, pixels: np.ndarray) -> np.ndarray:
        """The digit of every row."""
        return self.model.predict(pixels)
