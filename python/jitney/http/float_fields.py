"""JSON objects with many numbers, such as vectors of texts. Python takes longer to write them than a model takes to
compute them; so the worker sends them as they lie in memory, and the server writes them."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote
from typing import Any

from jitney.http.response import encode_json

FLOATS = "<f4"
FITTING = frozenset(("float32", "float16", "bfloat16"))
"""Numbers that are `float32`, or become that without a loss."""


class FloatFields(dict[str, Any]):
    """A JSON object whose values may be arrays of numpy or tensors of torch, alone or in lists. Each number of at most
    single precision is written with as few digits as tell it from the next one. Callers of handles get the arrays."""

    def parts(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The object as JSON with its numbers taken out: a text, the numbers behind it, and so on; the last text."""
        found: list[tuple[bytes, bytes]] = []
        text, between = "", "{"
        for name, value in self.items():
            text = _put(value, f"{text}{between}{quote(name)}:", found)
            between = ","
        return found, (text + "}" if self else "{}").encode()


def _put(value: Any, text: str, found: list[tuple[bytes, bytes]]) -> str:
    """Puts a value behind a text; returns the text that nothing was taken out of yet."""
    fits = hasattr(value, "shape") and str(value.dtype).removeprefix("torch.") in FITTING
    if fits and value.ndim:
        value = value.detach().float().cpu().numpy() if hasattr(value, "detach") else value
        if value.ndim == 1:
            found.append(((text + "[").encode(), value.astype(FLOATS, copy=False).tobytes()))
            return "]"
        value = list(value)
    if type(value) is not list:
        return text + encode_json(value).decode()
    between = "["
    for one in value:
        text, between = _put(one, text + between, found), ","
    return text + ("]" if value else "[]")
