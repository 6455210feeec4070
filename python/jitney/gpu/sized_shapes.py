"""Graphs of exactly the shapes that calls come to. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitney.gpu.capture import Capture, CudaCapture
from jitney.gpu.graphs import RunShape, SizedModel
from jitney.gpu.shapes import AllowedShapes
from jitney.gpu.trees import torch


class ShapedModel(SizedModel):
    """Graphs of a model whose calls are limited by items times length, so that some shapes never come."""

    def __init__(self, model: Callable[..., Any], capture: Capture, allowed: AllowedShapes) -> None:
        super().__init__(model, capture, allowed.graph_sizes(), allowed.lengths)
        self.allowed = allowed

    def shapes(self, ragged: bool) -> list[RunShape]:
        """Those that calls come to, the largest first."""
        found = super().shapes(ragged)
        return [one for one in found if one.length is None or self.allowed.comes(one.size, one.length)]


def make_sized_model(model: Callable[..., Any], allowed: AllowedShapes, place: Any) -> SizedModel:
    """The model on a CUDA device. It runs on the stream that is current now, which is the one of the function's own
    tensors, so nobody has to wait for another stream."""
    return ShapedModel(model, CudaCapture(place, torch.cuda.current_stream(place)), allowed)
