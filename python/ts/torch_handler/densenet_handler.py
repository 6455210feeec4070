"""Stock handler `densenet_handler` of TorchServe's workflow example: a saved tensor in, a tensor out."""

from __future__ import annotations

from typing import Any

from jitney.files.limits import FileRejected
from jitney.files.saved_tensors import read_saved_tensor
from ts.torch_handler.base_handler import BaseHandler, torch
from ts.torch_handler.profiling import timed
from ts.torch_handler.rows import value_of
from ts.utils.util import PredictionException


class DenseNetHandler(BaseHandler):
    """Takes and gives what `torch.save` writes."""

    @timed
    def preprocess(self, data: Any) -> Any:
        """The tensors of the requests, one batch of them."""
        tensors = [self._read(row) for row in data]
        return torch.cat([tensor if tensor.dim() == 4 else tensor.unsqueeze(0) for tensor in tensors])

    def _read(self, row: Any) -> Any:
        try:
            return read_saved_tensor(bytes(value_of(row)), self.device)
        except FileRejected as error:
            raise PredictionException(f"the tensor cannot be read: {error}", 400) from error

    @timed
    def postprocess(self, data: Any) -> Any:
        """One tensor per request."""
        return [row.clone() for row in data]
