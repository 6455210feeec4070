"""What `jitney.infer` gives: one output per row, as an iterator, a list or a table."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Any

from jitney.call.errors import InferError

OUTPUT, ERROR = "output", "error"


class Outputs(Iterator[Any]):
    """The outputs of a job, in the order of its rows. A failed row's output is its `jitney.Error`.

    The job ends when all outputs were read, or with `close`. A table has the outputs that are dictionaries by their
    keys, any others in the column `output`; if rows failed, their messages are in the column `error`.
    """

    def __init__(self, outputs: Generator[Any, None, None], index: Any = None) -> None:
        self._outputs = outputs
        self._index = index
        self._begun = False

    def __next__(self) -> Any:
        self._begun = True
        return next(self._outputs)

    def close(self) -> None:
        """Ends the job."""
        self._outputs.close()

    def to_pandas(self) -> Any:
        """All outputs as a pandas DataFrame, with the index of the frame or series that the rows came from."""
        self._check_unread()
        pandas = _library("pandas")
        records = _records(list(self))
        return pandas.DataFrame.from_records(records, index=self._index if records else None)

    def to_arrow(self) -> Any:
        """All outputs as an Arrow table."""
        self._check_unread()
        return _library("pyarrow").Table.from_pylist(_records(list(self)))

    def _check_unread(self) -> None:
        if self._begun:
            raise InferError("some outputs were read already, and a table has all of them; call jitney.infer again")

    def __repr__(self) -> str:
        return "<jitney.infer: outputs to iterate over, or .to_pandas(), .to_arrow()>"


def _records(outputs: list[Any]) -> list[dict[str, Any]]:
    """Rows of a table, all with the same columns."""
    outputs = [one[0] if _is_row_of_frame(one) else one for one in outputs]
    good = [one for one in outputs if not isinstance(one, BaseException)]
    by_key = bool(good) and all(isinstance(one, dict) for one in good)
    keys = list(dict.fromkeys(key for one in good for key in one)) if by_key else [OUTPUT]
    failed = len(good) < len(outputs)

    def record(one: Any) -> dict[str, Any]:
        bad = isinstance(one, BaseException)
        found = {} if bad else one if by_key else {OUTPUT: one}
        cells = {key: found.get(key) for key in keys}
        return {**cells, ERROR: str(one) if bad else None} if failed else cells

    return [record(one) for one in outputs]


def _is_row_of_frame(output: Any) -> bool:
    """Whether a function that returns frames gave it: a list with one record."""
    return isinstance(output, list) and len(output) == 1 and isinstance(output[0], dict)


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"this needs {name}: {sys.executable} -m pip install {name}") from None
