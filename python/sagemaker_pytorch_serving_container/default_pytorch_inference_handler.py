"""What is done where the user's module has no function for it, for models of TorchScript."""

from __future__ import annotations

import os
from typing import Any

from sagemaker_inference import content_types, decoder, default_inference_handler, encoder, errors, utils

DEFAULT_MODEL_FILENAME = "model.pt"


class ModelLoadError(Exception):
    """The file holds no model of TorchScript."""


class DefaultPytorchInferenceHandler(default_inference_handler.DefaultInferenceHandler):
    """The functions for models of TorchScript. Torch is imported when one of them is called."""

    VALID_CONTENT_TYPES = (content_types.JSON, content_types.NPY)

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """`model.pt`, or the only file of its kind in the model directory."""
        import torch

        path = os.path.join(model_dir, DEFAULT_MODEL_FILENAME)
        if not os.path.exists(path):
            found = [name for name in os.listdir(model_dir) if is_model_file(os.path.join(model_dir, name))]
            if len(found) != 1:
                raise ValueError(
                    f"Exactly one .pth or .pt file is required for PyTorch models: {found}. Or write a model_fn in "
                    "code/inference.py that loads the model"
                )
            path = os.path.join(model_dir, found[0])
        try:
            model = torch.jit.load(path, map_location=device())
        except RuntimeError as error:
            raise ModelLoadError(f"Failed to load {path}. Please ensure model is saved using torchscript.") from error
        return model.to(device())

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The body as a tensor on the device."""
        import torch

        array = decoder.decode(input_data, content_type)
        is_text = content_type in content_types.UTF8_TYPES
        tensor = torch.FloatTensor(array) if is_text else torch.from_numpy(array)
        return tensor.to(device())

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """What the model makes of the tensor."""
        import torch

        with torch.no_grad():
            model = model.to(device())
            model.eval()
            return model(data.to(device()))

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The body in the first type of the client's that is known."""
        if hasattr(prediction, "detach"):
            prediction = prediction.detach().cpu().numpy().tolist()
        for content_type in utils.parse_accept(accept):
            if content_type in encoder.SUPPORTED_CONTENT_TYPES:
                encoded = encoder.encode(prediction, content_type)
                return encoded.encode("utf-8") if content_type == content_types.CSV else encoded
        raise errors.UnsupportedFormatError(accept)


def is_model_file(path: str) -> bool:
    """Whether a file may hold a model of torch."""
    return os.path.isfile(path) and os.path.splitext(path)[1] in (".pt", ".pth")


def device() -> Any:
    """The GPU if there is one."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
