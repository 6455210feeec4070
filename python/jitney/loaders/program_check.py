"""Whether a program of torch.export is only data. torch evaluates parts of such a file: the names of operators are
looked up, expressions about shapes are evaluated, and what is not plain tensors is unpickled. A file is data if it
names operators of torch and plain expressions and nothing else; a file with anything more is for those who trust it."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM_BYTES_MAX = 256 << 20
OPERATORS = "getitem add sub mul floordiv truediv mod neg pow eq ne lt le gt ge and_ or_ not_"
TARGET = re.compile(
    r"torch\.ops\.[a-z]\w*\.\w+(\.\w+)?|torch\.sym_[a-z]+|math\.[a-z0-9]+|_operator\.("
    + "|".join(OPERATORS.split())
    + ")"
)
FUNCTIONS = """
    Symbol Integer Rational Float Add Mul Pow Max Min Mod Abs Piecewise Tuple And Or Not Eq Ne Lt Le Gt Ge Equality
    Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan FloorDiv ModularIndexing Where PythonMod CleanDiv
    CeilToInt FloorToInt CeilDiv LShift RShift PowByNatural FloatPow FloatTrueDiv IntTrueDiv TruncToFloat TruncToInt
    RoundToInt RoundDecimal ToFloat Identity IsNonOverlappingAndDenseIndicator Infinity NegativeInfinity BooleanTrue
    BooleanFalse positive nonnegative integer real finite precision evaluate true false True False None oo int_oo
"""
WORDS = frozenset(FUNCTIONS.split())
"""What expressions about shapes are made of, beside symbols."""
WORD = re.compile(r"[A-Za-z_]\w*|\.(?!\d)|[^\w\s(),.='+*/<>&|~-]")
NAME = re.compile(r"'[A-Za-z]\w{0,40}'|'-?[0-9.]+(e[+-]?\d+)?'")
SYMBOL = re.compile(r"[a-z]{1,3}\d+")


def program_files(path: Path) -> list[str]:
    """The names of the parts of a package; none if it is no package."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as package:
        return package.namelist()


def more_than_data(path: Path) -> str | None:
    """What a file of torch.export has beside data, as the end of a sentence; None if there is nothing."""
    with zipfile.ZipFile(path) as package:
        for one in package.infolist():
            if not re.search(r"models/[^/]+\.json$", one.filename):
                continue
            if one.file_size > PROGRAM_BYTES_MAX:
                return f"a program of {one.file_size} bytes, which is too long to be checked"
            for key, text in _texts("", json.loads(package.read(one))):
                if not _is_plain(key, text):
                    return f"the {key} {text[:80]!r}"
    return None


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text of a document, with the key that it stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _texts(name, one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(key, one)


def _is_plain(key: str, text: str) -> bool:
    if key == "target":
        return TARGET.fullmatch(text) is not None
    if key == "expr_str":
        words = WORD.findall(NAME.sub("", text))
        return all(word in WORDS or SYMBOL.fullmatch(word) for word in words)
    if key in ("in_spec", "out_spec"):
        return "__enum__" not in text and "default_factory" not in text
    return True
