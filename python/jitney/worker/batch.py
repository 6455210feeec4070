"""From a BATCH frame's payload to the rows a handler receives.

This is the hot path: one pass over the items, one `struct` call for the table, two per item, names and content types
decoded once per spelling. Most handlers never look at a header, so headers and request ids stay in the metas, which are
returned beside the rows, and are read on demand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from jitney.torchserve.bodies import Raw, Reader, reader_for
from jitney.values.rows import RepeatedRow
from jitney.values.tensor import BrokenTensor, RawTensor
from jitney.worker.protocol import FIELD, ITEM_HEAD_SIZE, ITEM_META, PARAM, Malformed, ReceivedItems

Row = dict[str, Any]

KNOWN_NAMES_LIMIT = 1024
"""Clients choose form field names, so the cache of names must not grow for ever."""

TensorHeads = tuple[list[tuple[str, str, tuple[int, ...], int]], list[str]]
"""Name, datatype, shape and length of each tensor of a request, and the outputs that it asks for."""

unpack_item_meta = ITEM_META.unpack_from
unpack_param = PARAM.unpack_from
read_lengths = struct.Struct("<2I").iter_unpack


class TensorRow(Row):
    """The tensors of a request, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[str] = []
        """Those that are asked for; all if there are none."""


class BatchDecoder:
    """Turns payloads into rows; one per worker, for its cache of parameter names."""

    def __init__(self, reader_for: Callable[[str], Reader] = reader_for) -> None:
        self._reader_for = reader_for
        self._known: dict[tuple[int, bytes], tuple[str, Reader]] = {}
        self._known_tensors: dict[bytes, TensorHeads] = {}

    def decode(self, payload: Raw | ReceivedItems, count: int) -> tuple[list[Row], list[bytes]]:
        """Returns one row and one meta per item."""
        try:
            if isinstance(payload, ReceivedItems):
                return list(map(self._read_item, payload.metas, payload.bodies)), payload.metas
            return self._decode(payload, count)
        except struct.error:
            raise Malformed("batch table or item meta is too short") from None

    def _decode(self, payload: Raw, count: int) -> tuple[list[Row], list[bytes]]:
        rows: list[Row] = []
        metas: list[bytes] = []
        known_names = self._known
        size = len(payload)
        at = 8 * count
        if at > size:
            raise Malformed("the table reaches past the payload")
        for meta_len, body_len in read_lengths(payload[:at]):
            body_at = at + meta_len
            end = body_at + body_len
            if end > size:
                raise Malformed("an item reaches past the payload")
            meta = bytes(payload[at:body_at])
            id_len, param_count, form, headers_len = unpack_item_meta(meta)
            params_at = ITEM_HEAD_SIZE + id_len + headers_len
            if form:
                rows.append(self._read_tensors(meta, params_at, param_count, _writable(payload, body_at, end)))
            elif param_count == 1:  # Nearly always; written out here, as a call costs a fifth of an item.
                name_len, type_len, value_len = unpack_param(meta, params_at)
                if params_at + 8 + name_len + type_len != meta_len or value_len != body_len:
                    raise Malformed("an item's parameter does not add up to its lengths")
                key = (name_len, meta[params_at + 8 :])
                known = known_names.get(key) or self._learn(key)
                rows.append({known[0]: known[1](payload[body_at:end])})
            else:
                rows.append(self._read_params(meta, params_at, param_count, payload, body_at, end))
            metas.append(meta)
            at = end
        if at != size:
            raise Malformed("bytes left over after the last item")
        return rows, metas

    def _read_item(self, meta: bytes, body: bytearray | memoryview) -> Row:
        """A row with a large value; a lone one that stays bytes is not copied."""
        id_len, param_count, form, headers_len = unpack_item_meta(meta)
        params_at = ITEM_HEAD_SIZE + id_len + headers_len
        if form:
            return self._read_tensors(meta, params_at, param_count, memoryview(body))
        if param_count != 1:
            return self._read_params(meta, params_at, param_count, memoryview(body), 0, len(body))
        name_len, type_len, value_len = unpack_param(meta, params_at)
        if params_at + 8 + name_len + type_len != len(meta) or value_len != len(body):
            raise Malformed("an item's parameter does not add up to its lengths")
        key = (name_len, meta[params_at + 8 :])
        name, reader = self._known.get(key) or self._learn(key)
        return {name: body if reader is bytearray else reader(body)}

    def _read_params(self, meta: bytes, meta_at: int, param_count: int, payload: Raw, at: int, end: int) -> Row:
        """Several parameters by name, the last of a name winning.

        Slices past an end are harmless: the lengths are checked last.
        """
        row = RepeatedRow()
        for _ in range(param_count):
            name_len, type_len, value_len = unpack_param(meta, meta_at)
            names_at = meta_at + 8
            meta_at = names_at + name_len + type_len
            key = (name_len, meta[names_at:meta_at])
            known = self._known.get(key) or self._learn(key)
            value_end = at + value_len
            row.add(known[0], known[1](payload[at:value_end]))
            at = value_end
        if meta_at != len(meta) or at != end:
            raise Malformed("an item's parameters do not add up to its lengths")
        return row if row.every else dict(row)

    def _read_tensors(self, meta: bytes, meta_at: int, count: int, values: memoryview) -> TensorRow:
        """Tensors by name, in the memory where they are, and the outputs that are asked for."""
        row = TensorRow()
        head, at = meta[meta_at:], 0
        try:
            tensors, outputs = self._known_tensors.get(head) or self._learn_tensors(head, count)
            for name, datatype, shape, value_len in tensors:
                row[name] = RawTensor(datatype, shape, values[at : at + value_len])
                at += value_len
        except (BrokenTensor, KeyError, IndexError, UnicodeDecodeError) as error:
            raise Malformed(f"an item's tensor is broken: {error}") from None
        if at != len(values):
            raise Malformed("an item's tensors do not add up to its lengths")
        row.outputs += outputs
        return row

    def _learn_tensors(self, head: bytes, count: int) -> TensorHeads:
        """Remembers what the heads of a request's tensors say; most requests to a model have the same."""
        tensors: list[tuple[str, str, tuple[int, ...], int]] = []
        outputs: list[str] = []
        at = 0
        for _ in range(count):
            name_len, type_len, value_len = unpack_param(head, at)
            type_at = at + 8 + name_len
            name, at = read_text(head[at + 8 : type_at]), type_at + type_len
            if not type_len:
                outputs.append(name)
                continue
            rank = head[type_at]
            shape = struct.unpack_from(f"<{rank}Q", head, type_at + 1)
            tensors.append((name, str(head[type_at + 1 + 8 * rank : at], "ascii"), shape, value_len))
        if at != len(head):
            raise Malformed("an item's tensors do not add up to its lengths")
        if len(self._known_tensors) >= KNOWN_NAMES_LIMIT:
            self._known_tensors.clear()
        self._known_tensors[head] = tensors, outputs
        return tensors, outputs

    def _learn(self, key: tuple[int, bytes]) -> tuple[str, Reader]:
        """Remembers which name, and which way to read the value, a parameter's raw names stand for."""
        name_len, names = key
        if len(self._known) >= KNOWN_NAMES_LIMIT:
            self._known.clear()
        known = self._known[key] = read_text(names[:name_len]), self._reader_for(read_text(names[name_len:]))
        return known


def _writable(payload: Raw, at: int, end: int) -> memoryview:
    """The values of an item; models may write into their arrays, so bytes that nobody may change are copied."""
    view = memoryview(payload)[at:end]
    return memoryview(bytearray(view)) if view.readonly else view


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
