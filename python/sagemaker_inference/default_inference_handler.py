"""What is done where the user's module has no function for it: bodies are read and written, models are not known."""

from __future__ import annotations

from typing import Any

from sagemaker_inference import decoder, encoder, errors, utils


class DefaultInferenceHandler:
    """The functions of containers that know no framework."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """Nothing is known of the model."""
        raise NotImplementedError("write a model_fn(model_dir) in inference.py that returns the loaded model")

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The body as an array."""
        return decoder.decode(input_data, content_type)

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """Nothing is known of the model."""
        raise NotImplementedError("write a predict_fn(data, model) in inference.py that returns the prediction")

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The body, and the first type of the client's that is known."""
        for content_type in utils.parse_accept(accept):
            if content_type in encoder.SUPPORTED_CONTENT_TYPES:
                return encoder.encode(prediction, content_type), content_type
        raise errors.UnsupportedFormatError(accept)
