"""The envelope `body`: rows are the bare values, without the dictionary around them."""

from __future__ import annotations

from typing import Any

from ts.torch_handler.request_envelope.base import BaseEnvelope, Rows
from ts.torch_handler.rows import value_of


class BodyEnvelope(BaseEnvelope):
    """Hands the values of the requests over and the results back, as they are."""

    def parse_input(self, data: Rows) -> Rows:
        """One value per request."""
        return [value_of(row) for row in data]

    def format_output(self, data: Any) -> Rows:
        """The results."""
        rows: Rows = data
        return rows
