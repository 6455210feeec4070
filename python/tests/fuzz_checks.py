"""What must hold for every file that a client sends and for every value of a handle. `make fuzz-python` looks for
counterexamples; the tests replay fuzz/corpus, so a find that is added there stays fixed."""

import sys
import warnings

import numpy as np
import pandas as pd
from PIL import Image

from jitney.call.errors import BadInput
from jitney.files.arrays import read_npz
from jitney.files.limits import FileRejected, limits
from jitney.values.convert import convert
from jitney.wire.values import ValueFormatError, decode, encode

HINTS = (np.ndarray, pd.DataFrame, pd.Series, Image.Image, None)
"""How a file is opened, by its first byte; None as the arrays of an npz file."""
EXPANDED_MAX, PIXELS_MAX = 1 << 20, 1 << 16


def client_files(data: bytes) -> None:
    """A file is opened, within the limits, or rejected with a sentence."""
    if not data:
        return
    hint, content = HINTS[data[0] % len(HINTS)], data[1:]
    limits.set(None, PIXELS_MAX, EXPANDED_MAX)
    try:
        opened = read_npz(content) if hint is None else convert("file", bytearray(content), hint)
    except (BadInput, FileRejected) as error:
        assert str(error)
        return
    if hint is np.ndarray:
        assert opened.nbytes <= max(EXPANDED_MAX, 8 * len(content))
    elif hint is pd.DataFrame:
        assert opened.size <= max(EXPANDED_MAX, len(content))
    elif hint is Image.Image:
        assert opened.width * opened.height <= PIXELS_MAX


def handle_values(data: bytes) -> None:
    """Bytes are rejected, or are a value that is written as the same again."""
    try:
        value = decode(data, imports=False)
        written = encode(value)
    except ValueFormatError as error:
        assert str(error)
        return
    assert encode(decode(written, imports=False)) == written
    assert len(written) <= 4 * len(data) + 64


CHECKS = {"client_files": client_files, "handle_values": handle_values}

# Libraries warn of what looks wrong to them; clients are told by errors.
warnings.simplefilter("ignore")
sys.set_int_max_str_digits(4300)
