"""`Context` and `RequestProcessor`, which handlers are given and tests make."""

from jitney.torchserve.context import Context, RequestProcessor

__all__ = ["Context", "RequestProcessor"]
