"""`Context` and `RequestProcessor`, which handlers are given and tests make."""

from jitney.torchserve.context import Context as Context
from jitney.torchserve.context import RequestProcessor as RequestProcessor
