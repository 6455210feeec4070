"""`bentoml.io` for arrays, frames and series."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from jitney.call.request import Request
from jitney.compat.bentoml.descriptor import IODescriptor, Posted
from jitney.compat.bentoml.exceptions import BadInput


class NumpyNdarray(IODescriptor):
    """A numpy array; nested lists in JSON."""

    def __init__(
        self, dtype: Any = None, enforce_dtype: bool = False, shape: Sequence[int] | None = None,
        enforce_shape: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._dtype, self._enforce_dtype = dtype, enforce_dtype
        self._shape, self._enforce_shape = shape, enforce_shape

    def read(self, posted: Posted) -> Any:
        import numpy

        try:
            array = numpy.array(posted.parsed(), dtype=self._dtype)
        except ValueError as error:
            if self._enforce_dtype or self._dtype is None:
                raise BadInput(f"the numbers do not fit: {error}") from None
            array = numpy.array(posted.parsed())
        if array.dtype.hasobject:
            raise BadInput("the rows differ in length or contain values that are not numbers")
        return self._shaped(array)

    def _shaped(self, array: Any) -> Any:
        if self._shape is None:
            return array
        fits = len(self._shape) == array.ndim and all(want in (-1, got) for want, got in zip(self._shape, array.shape))
        if fits:
            return array
        if self._enforce_shape:
            raise BadInput(f"expected an array of shape {tuple(self._shape)}, got {array.shape}")
        try:
            return array.reshape(self._shape)
        except ValueError:
            return array

    def write(self, value: Any, request: Request) -> Any:
        import numpy

        return super().write(numpy.asarray(value), request)


class PandasDataFrame(IODescriptor):
    """A pandas frame; in JSON (as `orient` says), CSV or Parquet."""

    def __init__(
        self, orient: str = "records", columns: Sequence[str] | None = None, apply_column_names: bool = False,
        dtype: Any = None, enforce_dtype: bool = False, shape: Sequence[int] | None = None, enforce_shape: bool = False,
        default_format: str = "json",
    ) -> None:  # fmt: skip
        super().__init__()
        self._orient, self._columns, self._apply = orient, columns, apply_column_names
        self._dtype, self._format = dtype, default_format

    def read(self, posted: Posted) -> Any:
        import pandas

        kind = posted.content_type
        try:
            if "csv" in kind:
                frame = pandas.read_csv(io.BytesIO(posted.raw()))
            elif "parquet" in kind or posted.raw()[:4] == b"PAR1":
                frame = pandas.read_parquet(io.BytesIO(posted.raw()))
            else:
                text = json.dumps(posted.parsed())
                frame = pandas.read_json(io.StringIO(text), orient=self._orient, dtype=self._dtype or True)
        except ValueError as error:
            raise BadInput(f"the frame cannot be read: {error}") from None
        if self._columns and self._apply:
            frame.columns = list(self._columns)
        return frame

    def write(self, value: Any, request: Request) -> Any:
        return self.typed(value.to_json(orient=self._orient), request)


class PandasSeries(PandasDataFrame):
    """A pandas series."""

    def read(self, posted: Posted) -> Any:
        import pandas

        return pandas.Series(posted.parsed(), dtype=self._dtype)
