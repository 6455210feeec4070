"""ONNX files written by hand, field by field: graphs that no exporter makes, without the onnx package."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

FLOAT, INT32, INT64, TEXT = 1, 6, 7, 8
"""`TensorProto.DataType`."""


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _whole(field: int, value: int) -> bytes:
    return _number(field << 3) + _number(value)


def _block(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return _number(field << 3 | 2) + _number(len(content)) + content


def value(name: str, kind: int, shape: Sequence[int | str] | None) -> bytes:
    """A ValueInfoProto; text for an open dimension, no shape where the file does not tell."""
    tensor = _whole(1, kind)
    if shape is not None:
        dims = (_block(1, _block(2, dim) if isinstance(dim, str) else _whole(1, dim)) for dim in shape)
        tensor += _block(2, b"".join(dims))
    return _block(1, name) + _block(2, _block(1, tensor))


def tensor(kind: int, dims: Sequence[int], raw: bytes, name: str = "") -> bytes:
    """A TensorProto."""
    return b"".join(_whole(1, dim) for dim in dims) + _whole(2, kind) + _block(8, name) + _block(9, raw)


CLASSICAL = "ai.onnx.ml"
"""The operators of classical machine learning, as scikit-learn's converter uses them."""


def node(operator: str, inputs: Sequence[str], output: str, *attributes: bytes, domain: str = "") -> bytes:
    """A NodeProto."""
    names = b"".join(_block(1, name) for name in inputs) + _block(2, output)
    return names + _block(4, operator) + b"".join(_block(5, attribute) for attribute in attributes) + _block(7, domain)


def whole_attribute(name: str, number: int) -> bytes:
    """An AttributeProto of a whole number."""
    return _block(1, name) + _whole(3, number) + _whole(20, 2)


def whole_list_attribute(name: str, numbers: Sequence[int]) -> bytes:
    """An AttributeProto of several whole numbers."""
    return _block(1, name) + b"".join(_whole(8, number) for number in numbers) + _whole(20, 7)


def tensor_attribute(name: str, content: bytes) -> bytes:
    """An AttributeProto of a tensor."""
    return _block(1, name) + _block(5, content) + _whole(20, 4)


def write(
    path: Path, nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes], weights: Sequence[bytes] = ()
) -> Path:
    """Writes a model of these nodes."""
    graph = b"".join(_block(1, it) for it in nodes) + _block(2, "graph")
    graph += b"".join(_block(5, it) for it in weights)
    graph += b"".join(_block(11, it) for it in inputs) + b"".join(_block(12, it) for it in outputs)
    operators = (("", 13), (CLASSICAL, 1))
    sets = b"".join(_block(8, _block(1, domain) + _whole(2, version)) for domain, version in operators)
    path.write_bytes(_whole(1, 8) + _block(7, graph) + sets)
    return path


def filler(path: Path) -> Path:
    """`y` is as large as the numbers of `x` say: a request decides how much memory it takes."""
    return write(path, [node("ConstantOfShape", ["x"], "y")], [value("x", INT64, [2])], [value("y", FLOAT, None)])


def projection(path: Path) -> Path:
    """`y = x w`, of rows of three numbers; all dimensions of `x` bear the name of Paddle's unknown ones."""
    weights = tensor(FLOAT, [3, 1], struct.pack("<3f", 1, 2, 3), "w")
    given, made = value("x", FLOAT, ["?", "?", "?"]), value("y", FLOAT, ["?", "?", 1])
    return write(path, [node("MatMul", ["x", "w"], "y")], [given], [made], [weights])


def echo(path: Path) -> Path:
    """`y = x`, of texts."""
    return write(path, [node("Identity", ["x"], "y")], [value("x", TEXT, ["n"])], [value("y", TEXT, ["n"])])


def binarizer(path: Path) -> Path:
    """`y` is 1 where `x` is positive: a model as scikit-learn's are."""
    step = node("Binarizer", ["x"], "y", domain=CLASSICAL)
    return write(path, [step], [value("x", FLOAT, ["n", 2])], [value("y", FLOAT, ["n", 2])])


def greedy(path: Path) -> Path:
    """`y = x`, row by row; a batch takes as much memory as its largest number says, and time with its cube."""
    largest = node("ReduceMax", ["x"], "largest", whole_attribute("keepdims", 1))
    square = node("Concat", ["largest", "largest"], "pair", whole_attribute("axis", 0))
    zeros = node("ConstantOfShape", ["size"], "zeros")
    return write(
        path,
        [
            largest,
            square,
            node("Reshape", ["pair", "two"], "size"),
            zeros,
            node("MatMul", ["zeros", "zeros"], "product"),
            node("MatMul", ["product", "zeros"], "further"),
            node("MatMul", ["further", "zeros"], "last"),
            node("ReduceSum", ["last"], "nothing", whole_attribute("keepdims", 0)),
            node("Cast", ["nothing"], "none", whole_attribute("to", INT64)),
            node("Add", ["x", "none"], "y"),
        ],
        [value("x", INT64, ["n", 1])],
        [value("y", INT64, ["n", 1])],
        [tensor(INT64, [1], (2).to_bytes(8, "little"), "two")],
    )
