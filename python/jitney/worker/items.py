"""The items of REPLY and CHUNK frames as bytes: a table of lengths, then metas and bodies."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from jitney.torchserve.context import RequestProcessor
from jitney.values.tensor import RawTensor
from jitney.worker.protocol import FIELD, PARAM, REPLY_META, Bytes

ANSWERED, IN_TENSORS = 0, 2


def assemble(metas: dict[int, bytes], bodies: list[Bytes]) -> list[Bytes]:
    """Table, metas and bodies in the order of the wire; `metas` holds only those that are not empty."""
    lengths = [0] * (2 * len(bodies))
    lengths[1::2] = map(len, bodies)
    parts = bodies
    if metas:
        parts = []
        for idx, body in enumerate(bodies):
            meta = metas.get(idx, b"")
            lengths[2 * idx] = len(meta)
            parts += meta, body
    return [struct.pack(f"<{len(lengths)}I", *lengths), *parts]


def assemble_all(metas: list[bytes], bodies: list[Bytes]) -> list[Bytes]:
    """The same for items that all may have a meta."""
    lengths = [0] * (2 * len(bodies))
    lengths[::2], lengths[1::2] = map(len, metas), map(len, bodies)
    parts: list[Bytes] = [b""] * len(lengths)
    parts[::2], parts[1::2] = metas, bodies
    return [struct.pack(f"<{len(lengths)}I", *lengths), *parts]


def assemble_parts(items: Sequence[tuple[bytes, Sequence[Bytes]]]) -> list[Bytes]:
    """The same for items whose bodies are in parts, which are not copied."""
    lengths: list[int] = []
    parts: list[Bytes] = []
    for meta, body in items:
        lengths += len(meta), sum(map(len, body))
        parts += meta, *body
    return [struct.pack(f"<{len(lengths)}I", *lengths), *parts]


def table_of(items: Sequence[tuple[bytes, Bytes]]) -> list[Bytes]:
    """Table, metas and bodies of items that all have a meta."""
    return assemble_all([meta for meta, _ in items], [body for _, body in items])


def encode_meta(processor: RequestProcessor) -> bytes:
    """The meta of an answered item; empty for status 200 without phrase and headers."""
    status = processor.get_response_status_code()
    phrase = (processor.get_response_status_phrase() or "").encode()
    headers = processor.get_response_headers()
    if status == 200 and not phrase and not headers:
        return b""
    return _pack(int(status), phrase, headers)


def encode_fields(status: int, phrase: str, headers: Mapping[str, str] | Sequence[tuple[str, str]]) -> bytes:
    """The meta of an answered item from its parts."""
    return _pack(status, phrase.encode(), headers)


def encode_tensors(status: int, headers: Mapping[str, str], tensors: Sequence[tuple[str, RawTensor]]) -> bytes:
    """The meta of an item that is answered in tensors."""
    parts = [_pack(status, b"", headers, IN_TENSORS), struct.pack("<H", len(tensors))]
    for name, tensor in tensors:
        raw, shape = name.encode(), tensor.shape
        kind = struct.pack(f"<B{len(shape)}Q", len(shape), *shape) + tensor.datatype.encode()
        parts += PARAM.pack(len(raw), len(kind), len(tensor.data)), raw, kind
    return b"".join(parts)


def _pack(
    status: int, phrase: bytes, headers: Mapping[str, str] | Sequence[tuple[str, str]], outcome: int = ANSWERED
) -> bytes:
    parts = [REPLY_META.pack(outcome, 0, status, len(phrase), len(headers)), phrase]
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        name_bytes, value_bytes = str(name).encode(), str(value).encode()
        parts += FIELD.pack(len(name_bytes), len(value_bytes)), name_bytes, value_bytes
    return b"".join(parts)
