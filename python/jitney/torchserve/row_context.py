"""The context of one request of a batch: there it is the only one, at index 0.

For code that was written for one request at a time. What it sets about its answer is set for this request alone;
attributes that it invents are the whole context's, as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jitney.torchserve.context import Context, RequestProcessor


class RowContext(Context):
    """What a context says about one of its requests."""

    def __init__(self, whole: Any, at: int) -> None:
        self.__dict__.update(_whole=whole, _at=at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_whole"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._whole, name, value)

    def _request(self, idx: int) -> RequestProcessor:
        if idx not in (0, -1):
            raise IndexError(f"this context has one request, at index 0, not at {idx}")
        request: RequestProcessor = self._whole._request(self._at)
        return request

    @property
    def request_processor(self) -> list[RequestProcessor]:  # type: ignore[override]  # An attribute of the base.
        """The one processor."""
        return [self._request(0)]

    @property
    def request_ids(self) -> dict[int, str]:  # type: ignore[override]  # An attribute of the base.
        """The one id."""
        return {0: self._whole.get_request_id(self._at)}

    def cancelled(self, idx: int | None = None) -> bool:
        """Whether the client has left."""
        left: bool = self._whole.cancelled(self._at)
        return left

    def send_intermediate(self, outputs: Sequence[Any], positions: Iterable[int]) -> None:
        """Sends a piece of the answer to the client, now."""
        for at in positions:
            self._whole.send_intermediate({self._at: outputs[at]}, [self._at])
