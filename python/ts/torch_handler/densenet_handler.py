"""Stock handler `densenet_handler` of TorchServe's workflow example: a saved tensor in, a tensor out."""

from __future__ import annotations

import io
from typing import Any

from ts.torch_handler.base_handler import BaseHandler, torch
from ts.torch_handler.profiling import timed
from ts.torch_handler.rows import value_of


class DenseNetHandler(BaseHandler):
    """Takes and gives what `torch.save` writes."""

    @timed
    def preprocess(self, data: Any) -> Any:
        """The tensors of the requests, one batch of them."""
        tensors = [torch.load(io.BytesIO(bytes(value_of(row))), map_location=self.device) for row in data]
        return torch.cat([tensor if tensor.dim() == 4 else tensor.unsqueeze(0) for tensor in tensors])

    @timed
    def postprocess(self, data: Any) -> Any:
        """One tensor per request."""
        return [row.clone() for row in data]
