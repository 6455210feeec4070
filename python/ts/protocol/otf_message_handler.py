"""The old home of the streaming helper; TorchServe's wire format itself is not spoken here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ts.handler_utils import utils
from ts.utils.util import deprecated


@deprecated("0.9.0", "ts.handler_utils.utils.send_intermediate_predict_response")
def send_intermediate_predict_response(
    ret: Sequence[Any], request_ids: dict[int, str], message: str, code: int, context: Any
) -> None:
    """See `ts.handler_utils.utils.send_intermediate_predict_response`."""
    utils.send_intermediate_predict_response(ret, request_ids, message, code, context)
