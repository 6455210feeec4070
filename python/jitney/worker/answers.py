"""The answers of a batch of a definition, as their callers read them: values for handles, HTTP's bodies for others.

An answer may choose its status and headers, come in pieces, or be the failure of its item alone; failures of clients
are not logged. Whether an item failed is decided elsewhere.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from jitney.call.errors import BadInput, WrongLength, describe, status_of
from jitney.execution.grouping import Item
from jitney.execution.splitting import STREAMED
from jitney.http.float_fields import FloatFields
from jitney.http.response import BYTES, JSON, PLAIN_TYPES, TEXT, Response, encode
from jitney.wire.calls import STREAM_TYPE, VALUE_TYPE, encode_failure
from jitney.wire.values import encode as encode_value
from jitney.worker.batch import read_headers, read_request_id
from jitney.worker.protocol import Bytes
from jitney.worker.requests import UNSEEN
from jitney.worker.writer import WITH_NUMBERS, encode_failed, encode_fields, encode_numbers

logger = logging.getLogger(__name__)

CAUSE_RAISED, CAUSE_STATED = 1, 7
_PLAIN_HEADS = {kind: encode_fields(200, "", {"Content-Type": kind}) for kind in (JSON, TEXT, BYTES, VALUE_TYPE)}
"""What nearly every answer begins with."""
_NUMBERS_HEAD = encode_fields(200, "", {"Content-Type": JSON}, WITH_NUMBERS)


class AnswerEncoder:
    """Writes the answers of one batch."""

    __slots__ = ("_calls", "_debug_errors", "_items", "_metas", "streamed")

    def __init__(self, items: Mapping[int, Item], metas: Sequence[bytes], calls: set[int], debug_errors: bool) -> None:
        self._items = items
        self._metas = metas
        self._calls = calls
        """Items that came through a handle."""
        self._debug_errors = debug_errors
        self.streamed: set[int] = set()
        """Items of whose answer a piece was sent."""

    def answer(self, at: int, outcome: Any) -> tuple[bytes, Bytes]:
        """Head and body of an item's answer."""
        if isinstance(outcome, BaseException):
            return self.failed(at, outcome)
        if outcome is STREAMED:
            nothing = STREAM_TYPE if at in self._calls else TEXT
            empty = b"" if at in self.streamed else self._head(at, nothing)
            return empty, b""
        try:
            if isinstance(outcome, Response):
                return self._respond(at, outcome)
            if type(outcome) is FloatFields and at not in self._calls and self._is_untouched(at):
                parts, last = outcome.parts()
                return _NUMBERS_HEAD + encode_numbers(parts), b"".join([one for part in parts for one in part] + [last])
            content_type, body = self._spell(at, outcome)
            return self._head(at, content_type), body
        except Exception as error:
            return self.failed(at, error)

    def piece(self, at: int, piece: Any) -> tuple[bytes, Bytes]:
        """A piece of an answer, with the head of the answer if it is the first."""
        begun = at in self.streamed
        if isinstance(piece, Response):
            head, body = self._respond(at, piece, whole=False)
            return (b"" if begun else head), body
        content_type, body = self._spell(at, piece, whole=False)
        return (b"" if begun else self._head(at, content_type)), body

    def _respond(self, at: int, response: Response, whole: bool = True) -> tuple[bytes, Bytes]:
        """An answer with a status and headers of its own; callers of handles get its body."""
        content_type, body = self._spell(at, response.body, whole)
        if at in self._calls:
            return self._head(at, content_type), body
        request = self._items[at].request
        others = () if request is UNSEEN or request.is_untouched else request.response_headers.items()
        return encode_fields(response.status, "", [*response.head(content_type), *others]), body

    def failed(self, at: int, error: BaseException) -> tuple[bytes, Bytes]:
        """An item that failed alone. Mistakes of clients are not logged."""
        status = status_of(error)
        if status >= 500:
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            logger.error("request %s failed\n%s", read_request_id(self._metas[at]), trace)
        cause = CAUSE_RAISED if isinstance(error, WrongLength) else CAUSE_STATED
        message = encode_failure(error, self._debug_errors) if at in self._calls else describe(error)
        fields = error.errors if isinstance(error, BadInput) else ()
        return encode_failed(cause, status, fields), message.encode(errors="replace")

    def _spell(self, at: int, output: Any, whole: bool = True) -> tuple[str, Bytes]:
        """An output, or a piece of one, as its caller reads it."""
        if at in self._calls:
            return VALUE_TYPE, encode_value(output)
        return encode(output, self._accept(at, output) if whole else "")

    def _accept(self, at: int, output: Any) -> str:
        """The client's Accept header; only read for outputs that have more than one form."""
        if type(output) in PLAIN_TYPES or not hasattr(output, "shape"):
            return ""
        return str(read_headers(self._metas[at]).get("accept", ""))

    def _is_untouched(self, at: int) -> bool:
        """Whether nothing was said of the answer's status and headers."""
        request = self._items[at].request
        return request is UNSEEN or request.is_untouched

    def _head(self, at: int, content_type: str) -> bytes:
        request = self._items[at].request
        if content_type in _PLAIN_HEADS and self._is_untouched(at):
            return _PLAIN_HEADS[content_type]
        others = dict(request.response_headers)
        chosen = [others.pop(name) for name in tuple(others) if name.lower() == "content-type"]
        if chosen and at not in self._calls:  # A handle always reads values.
            content_type = chosen[-1]
        return encode_fields(request.status or 200, "", {"Content-Type": content_type, **others})
