"""JSON objects with many numbers, such as vectors of texts. Python takes longer to write them than a model takes to
compute them; so the worker sends them as they lie in memory, and the server writes them."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote
from typing import Any

from jitney.http.response import encode_json

FLOATS, FLOAT_BYTES = "<f4", 4
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
    if hasattr(value, "shape"):
        fits = str(value.dtype).removeprefix("torch.") in FITTING and value.ndim and 0 not in value.shape
        return _put_rows(value, text, found) if fits else text + encode_json(value).decode()
    if type(value) is not list:
        return text + encode_json(value).decode()
    between = "["
    for one in value:
        text, between = _put(one, text + between, found), ","
    return text + ("]" if value else "[]")


def _put_rows(array: Any, text: str, found: list[tuple[bytes, bytes]]) -> str:
    """The same for an array, of which each innermost row is taken out."""
    if hasattr(array, "detach"):
        array = array.detach().float().cpu().numpy()
    depths: int = array.ndim
    numbers = array.astype(FLOATS, copy=False).tobytes()
    if depths == 1:
        found.append(((text + "[").encode(), numbers))
        return "]"
    step = array.shape[-1] * FLOAT_BYTES
    rows = len(numbers) // step
    between = [b"],["] * rows
    together = 1
    for depth, size in enumerate(reversed(array.shape[1:-1]), 2):
        together *= size
        between[::together] = [b"]" * depth + b"," + b"[" * depth] * len(between[::together])
    between[0] = (text + "[" * depths).encode()
    found += zip(between, (numbers[at : at + step] for at in range(0, len(numbers), step)))
    return "]" * depths
