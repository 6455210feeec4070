"""TorchServe's wire format between its frontend and a worker: what a worker reads and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ts.handler_utils import utils
from ts.protocol.otf_reading import END_OF_LIST, LOAD_MSG, PREDICT_MSG, bool_size, int_size, retrieve_msg
from ts.protocol.otf_writing import create_load_model_response, create_predict_response, encode_response_headers
from ts.utils.util import deprecated

__all__ = [
    "END_OF_LIST",
    "LOAD_MSG",
    "PREDICT_MSG",
    "bool_size",
    "create_load_model_response",
    "create_predict_response",
    "encode_response_headers",
    "int_size",
    "retrieve_msg",
    "send_intermediate_predict_response",
]


@deprecated("0.9.0", "ts.handler_utils.utils.send_intermediate_predict_response")
def send_intermediate_predict_response(
    ret: Sequence[Any], request_ids: dict[int, str], message: str, code: int, context: Any
) -> None:
    """See `ts.handler_utils.utils.send_intermediate_predict_response`."""
    utils.send_intermediate_predict_response(ret, request_ids, message, code, context)
