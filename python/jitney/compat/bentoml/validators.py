"""What an annotation says beside the type: `Annotated[np.ndarray, Shape((2,)), DType("float64")]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jitney.compat.bentoml.exceptions import InvalidArgument


@dataclass(frozen=True)
class ContentType:
    """The media type of a file or image."""

    content_type: str


@dataclass(frozen=True)
class DType:
    """The dtype of an array; what comes is cast to it."""

    dtype: str

    def apply(self, value: Any) -> Any:
        """The array in this dtype."""
        if hasattr(value, "astype"):
            return value.astype(self.dtype, copy=False)
        return value.to(getattr(__import__("torch"), self.dtype))


@dataclass(frozen=True)
class Shape:
    """The shape of an array; -1 for any size."""

    dimensions: Sequence[int]

    def apply(self, value: Any) -> Any:
        """The array, if it has this shape."""
        got = tuple(value.shape)
        fits = len(got) == len(self.dimensions) and all(want in (-1, size) for want, size in zip(self.dimensions, got))
        if not fits:
            raise InvalidArgument(f"expected an array of shape {tuple(self.dimensions)}, got {got}")
        return value


@dataclass(frozen=True)
class DataframeSchema:
    """How a frame lies in JSON, and its columns."""

    orient: str = "records"
    columns: Sequence[str] | None = None

    def apply(self, value: Any) -> Any:
        """The frame with these columns."""
        if self.columns:
            value.columns = list(self.columns)
        return value
