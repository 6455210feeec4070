"""What a handler can read about its model and its requests, and set about its answers.

The members are TorchServe's. These classes are plain, so handlers can be tested without a
server; the worker passes a subclass that parses request headers only when they are read.
"""

from __future__ import annotations

import os
from typing import Any


class RequestProcessor:
    """One request's headers, and the status and headers of its answer."""

    def __init__(self, request_header: dict[str, Any]) -> None:
        self._request_header = request_header
        self._reset_response()

    def _reset_response(self) -> None:
        self._status_code = 200
        self._reason_phrase: str | None = None
        self._response_header: dict[str, str] = {}

    def get_request_property(self, key: str) -> Any:
        """Returns a request header, or None."""
        return self._request_header.get(key)

    def get_request_properties(self) -> dict[str, Any]:
        """Returns all request headers."""
        return self._request_header

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        """Sets the status of the answer."""
        self._status_code = code
        self._reason_phrase = reason_phrase

    def get_response_status_code(self) -> int:
        """Returns the status code of the answer."""
        return self._status_code

    def get_response_status_phrase(self) -> str | None:
        """Returns the reason phrase of the answer."""
        return self._reason_phrase

    def add_response_property(self, key: str, value: str) -> None:
        """Sets a header of the answer."""
        self._response_header[key] = value

    def get_response_headers(self) -> dict[str, str]:
        """Returns all headers of the answer."""
        return self._response_header

    def get_response_header(self, key: str) -> str | None:
        """Returns a header of the answer, or None."""
        return self._response_header.get(key)


class Context:
    """The model, the server and the current batch. Handlers may add attributes of their own."""

    request_ids: dict[int, str] | None
    request_processor: list[RequestProcessor] | None

    def __init__(
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any],
        batch_size: int,
        gpu: int | None,
        mms_version: str,
        limit_max_image_pixels: bool = True,
        metrics: Any = None,
        model_yaml_config: dict[str, Any] | None = None,
    ) -> None:
        self.model_name = model_name
        self.manifest = manifest
        self.system_properties: dict[str, Any] = {
            "model_dir": model_dir,
            "gpu_id": gpu,
            "batch_size": batch_size,
            "server_name": "MMS",
            "server_version": mms_version,
            "limit_max_image_pixels": limit_max_image_pixels,
        }
        self.request_ids = None
        self.request_processor = None
        self.metrics = metrics
        self.model_yaml_config: dict[str, Any] = model_yaml_config or {}
        self.stopping_criteria: Any = None
        self.cl_socket: Any = None
        self.header_key_sequence_id = os.environ.get("TS_REQUEST_SEQUENCE_ID", "ts_request_sequence_id")
        self.header_key_sequence_start = os.environ.get("TS_REQUEST_SEQUENCE_START", "ts_request_sequence_start")
        self.header_key_sequence_end = os.environ.get("TS_REQUEST_SEQUENCE_END", "ts_request_sequence_end")

    def _request(self, idx: int) -> RequestProcessor:
        if self.request_processor is None:
            raise IndexError("the context is not bound to a batch")
        return self.request_processor[idx]

    def get_request_id(self, idx: int = 0) -> str | None:
        """Returns the id of a request of the batch."""
        return (self.request_ids or {}).get(idx)

    def get_request_header(self, idx: int, key: str) -> Any:
        """Returns a header of a request, or None."""
        return self._request(idx).get_request_property(key)

    def get_all_request_header(self, idx: int) -> dict[str, Any]:
        """Returns all headers of a request."""
        return self._request(idx).get_request_properties()

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Sets the content type of an answer."""
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int) -> str | None:
        """Returns the content type of an answer, or None."""
        return self._request(idx).get_response_header("content-type")

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Sets status code and reason phrase of one answer; its body stays the returned element."""
        self._request(idx).report_status(code, phrase)

    def get_response_status(self, idx: int) -> tuple[int, str | None]:
        """Returns status code and reason phrase of an answer."""
        request = self._request(idx)
        return request.get_response_status_code(), request.get_response_status_phrase()

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """Sets status code and reason phrase of every answer of the batch."""
        for request in self.request_processor or ():
            request.report_status(code, phrase)

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Sets a header of one answer."""
        self._request(idx).add_response_property(key, value)

    def get_response_headers(self, idx: int) -> dict[str, str]:
        """Returns the headers of one answer."""
        return self._request(idx).get_response_headers()

    def get_sequence_id(self, idx: int) -> Any:
        """Returns the id of the sequence a request belongs to, or None."""
        return self.get_request_header(idx, self.header_key_sequence_id)

    def cancelled(self, idx: int | None = None) -> bool:
        """Whether the client of this request has left; without an index, whether all clients of the batch have.
        Without a server nobody leaves."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self.__dict__ == other.__dict__
