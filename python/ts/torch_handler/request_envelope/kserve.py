"""The envelope `kserve`: version 1 of KServe's protocol.

`{"instances": [...]}` in; `{"predictions": [...]}` out, or `{"explanations": [...]}` where an explanation
was requested.
"""

from __future__ import annotations

from typing import Any

from ts.torch_handler.request_envelope.base import BaseEnvelope, Rows, instances_of, plain, share_out


class KServeEnvelope(BaseEnvelope):
    """Unwraps the instances of all requests and shares the results out."""

    def parse_input(self, data: Rows) -> Rows:
        """The instances of all requests, one after the other."""
        instances, self._counts = instances_of(data)
        return instances

    def format_output(self, data: Any) -> Rows:
        """One object per request."""
        shares = share_out(plain(data), self._counts)
        return [{self._key(idx): share} for idx, share in enumerate(shares)]

    def _key(self, idx: int) -> str:
        explains = self.context.get_request_header(idx, "explain") == "True"
        return "explanations" if explains else "predictions"
