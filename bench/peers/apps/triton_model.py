"""Triton's Python backend: the file `model.py` of its repository."""

import numpy as np
import triton_python_backend_utils as backend
import work


class TritonPythonModel:
    """The model behind Triton; each request has one row."""

    def initialize(self, args):
        self.model = work.load()

    def execute(self, requests):
        rows = [backend.get_input_tensor_by_name(request, "INPUT").as_numpy()[0] for request in requests]
        inputs = rows if rows[0].dtype == np.uint8 else [row[0] for row in rows]
        return [
            backend.InferenceResponse([backend.Tensor("OUTPUT", np.array([[one]], dtype=np.int32))])
            for one in self.model(inputs)
        ]
