"""The envelope `json`: `{"instances": [...]}` in, `{"predictions": [...]}` out, as text.

An instance `{"b64": "..."}`, or a field of one, stands for the bytes it encodes.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from jitney.torchserve.bodies import json_text
from ts.torch_handler.request_envelope.base import (
    BaseEnvelope,
    Rows,
    bad_request,
    instances_of,
    plain_or_error,
    share_out,
)


class JSONEnvelope(BaseEnvelope):
    """Unwraps the instances of all requests and shares the predictions out."""

    def parse_input(self, data: Rows) -> Rows:
        """The instances of all requests, one after the other."""
        instances, self._counts = instances_of(data)
        return [decoded_instance(instance) for instance in instances]

    def format_output(self, data: Any) -> Rows:
        """One JSON text per request."""
        shares = share_out(data, self._counts)
        return [json_text({"predictions": share}, plain_or_error) for share in shares]


def decoded_instance(instance: Any) -> Any:
    """The instance with its base64 values decoded."""
    if not isinstance(instance, dict) or list(instance) == ["b64"]:
        return decoded(instance)
    return {name: decoded(value) for name, value in instance.items()}


def decoded(value: Any) -> Any:
    """The bytes of `{"b64": "..."}`; anything else as it is."""
    if not isinstance(value, dict) or list(value) != ["b64"]:
        return value
    try:
        return base64.b64decode(value["b64"])
    except (TypeError, ValueError, binascii.Error) as error:
        raise bad_request(f'A value under "b64" is not base64: {error}') from error
