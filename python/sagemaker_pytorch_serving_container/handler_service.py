"""The handler of SageMaker's model directories: `code/inference.py`, and PyTorch's defaults where it says nothing."""

from __future__ import annotations

from sagemaker_inference import default_handler_service, transformer
from sagemaker_pytorch_serving_container import default_pytorch_inference_handler as defaults


class HandlerService(default_handler_service.DefaultHandlerService):
    """Runs the user's functions."""

    def __init__(self) -> None:
        handler = defaults.DefaultPytorchInferenceHandler()
        super().__init__(transformer=transformer.Transformer(default_inference_handler=handler))
