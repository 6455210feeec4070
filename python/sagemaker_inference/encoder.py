"""From an array to a body."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from sagemaker_inference import content_types, errors


def _array_to_json(array_like: Any) -> str:
    return json.dumps(array_like, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: let output_fn return lists, numbers and text")


def _array_to_npy(array_like: Any) -> bytes:
    import numpy

    buffer = io.BytesIO()
    numpy.save(buffer, array_like)
    return buffer.getvalue()


def _array_to_csv(array_like: Any) -> str:
    import numpy

    stream = io.StringIO()
    numpy.savetxt(stream, array_like, delimiter=",", fmt="%s")
    return stream.getvalue()


_encoder_map: dict[str, Callable[[Any], Any]] = {
    content_types.NPY: _array_to_npy,
    content_types.CSV: _array_to_csv,
    content_types.JSON: _array_to_json,
}

SUPPORTED_CONTENT_TYPES = set(_encoder_map)


def encode(array_like: Any, content_type: str) -> Any:
    """The body of this content type."""
    encoder = _encoder_map.get(content_type)
    if encoder is None:
        raise errors.UnsupportedFormatError(content_type)
    return encoder(array_like)
