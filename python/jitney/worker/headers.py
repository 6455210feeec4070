"""Request headers as a handler sees them, parsed from an item's meta only when they are read.

Most handlers never look at a header, so a batch carries its metas as plain bytes and this
file turns one of them into a dictionary on demand.
"""

from __future__ import annotations

import struct
from typing import Any

from jitney.worker.protocol import FIELD, ITEM_HEAD_SIZE, ITEM_META, PARAM, Malformed

unpack_field = FIELD.unpack_from


class Headers(dict[str, Any]):
    """A dictionary that also finds a header under another spelling of its name.

    An exact match wins; otherwise the last entry whose name differs only in case is found.
    Keys keep the spelling that was sent, and `json.dumps` writes it like any dictionary.
    """

    def _spelling(self, key: object) -> str | None:
        if isinstance(key, str):
            size, folded = len(key), key.lower()
            for name in reversed(self):
                if len(name) == size and name.lower() == folded:
                    return name
        return None

    def __missing__(self, key: str) -> Any:
        name = self._spelling(key)
        if name is None:
            raise KeyError(key)
        return dict.__getitem__(self, name)

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or self._spelling(key) is not None

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the header's value, or `default`."""
        name = key if dict.__contains__(self, key) else self._spelling(key)
        return default if name is None else dict.__getitem__(self, name)


def read_request_id(meta: bytes) -> str:
    """The request id of an item's meta."""
    return str(meta[ITEM_HEAD_SIZE : ITEM_HEAD_SIZE + meta[0]], "latin-1")


def read_headers(meta: bytes) -> Headers:
    """All headers of an item, followed by one entry per parameter with its content type."""
    headers = Headers()
    try:
        id_len, param_count, form, headers_len = ITEM_META.unpack_from(meta)
        params_at = ITEM_HEAD_SIZE + id_len + headers_len
        _read_fields(meta[ITEM_HEAD_SIZE + id_len : params_at], headers)
        if form:  # Tensors have no content types.
            return headers
        end = _read_content_types(meta, params_at, param_count, headers)
    except struct.error:
        raise Malformed("item meta is too short") from None
    if end != len(meta):
        raise Malformed("item meta has the wrong length")
    return headers


def read_pairs(meta: bytes) -> list[tuple[str, str]]:
    """All headers of an item, those of one name side by side."""
    id_len, _, _, headers_len = ITEM_META.unpack_from(meta)
    at, end = ITEM_HEAD_SIZE + id_len, ITEM_HEAD_SIZE + id_len + headers_len
    pairs: list[tuple[str, str]] = []
    while at < end:
        name_len, value_len = unpack_field(meta, at)
        value_at = at + FIELD.size + name_len
        pairs.append((read_text(meta[at + FIELD.size : value_at]), read_text(meta[value_at : value_at + value_len])))
        at = value_at + value_len
    if at != end:
        raise Malformed("a header reaches past its block")
    return pairs


def _read_fields(block: bytes, headers: Headers) -> None:
    """Adds the headers of a block; all of them are cut from one string if that is plain ASCII."""
    text = str(block, "latin-1")
    plain = text.isascii()
    at, end = 0, len(block)
    while at < end:
        name_len, value_len = unpack_field(block, at)
        at += 6
        value_at = at + name_len
        value_end = value_at + value_len
        if plain:
            headers[text[at:value_at]] = text[value_at:value_end]
        else:
            headers[read_text(block[at:value_at])] = read_text(block[value_at:value_end])
        at = value_end
    if at != end:
        raise Malformed("a header reaches past its block")


def _read_content_types(meta: bytes, at: int, param_count: int, headers: Headers) -> int:
    """Adds one entry per parameter; returns where the last one ends."""
    for _ in range(param_count):
        name_len, type_len, _ = PARAM.unpack_from(meta, at)
        name_at = at + PARAM.size
        type_at = name_at + name_len
        at = type_at + type_len
        headers[read_text(meta[name_at:type_at])] = {"content-type": read_text(meta[type_at:at])}
    return at


def read_text(raw: bytes) -> str:
    """UTF-8, or latin-1 for the old bytes HTTP still allows in header values."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        return str(raw, "latin-1")
