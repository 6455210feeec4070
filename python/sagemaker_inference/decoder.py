"""From a body to an array. Bodies are opened in `jitney.files`, within its limits; nothing is unpickled, unless the
operator has said so in a variable."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from jitney.files.arrays import read_npy, read_npy_with_objects, read_npz
from jitney.files.limits import FileRejected
from sagemaker_inference import content_types, environment, errors

BAD_REQUEST = 400


def _json_to_numpy(string_like: str, dtype: Any = None) -> Any:
    import numpy

    return numpy.array(json.loads(string_like), dtype=dtype)


def _csv_to_numpy(string_like: str, dtype: Any = None) -> Any:
    import numpy

    return numpy.genfromtxt(io.StringIO(string_like), dtype=dtype, delimiter=",")


def _npy_to_numpy(npy_array: Any) -> Any:
    read = read_npy_with_objects if environment.allow_pickle else read_npy
    try:
        return read(npy_array)
    except FileRejected as error:
        raise errors.GenericInferenceToolkitError(BAD_REQUEST, f"the npy file is rejected: {error}") from None


def _npz_to_sparse(npz_bytes: Any) -> Any:
    """A matrix that `scipy.sparse.save_npz` wrote."""
    try:
        return _sparse(read_npz(npz_bytes))
    except (FileRejected, KeyError, ValueError, AttributeError) as error:
        message = f"the npz file is rejected: {error}; send what scipy.sparse.save_npz writes"
        raise errors.GenericInferenceToolkitError(BAD_REQUEST, message) from None


def _sparse(arrays: dict[str, Any]) -> Any:
    import scipy.sparse

    name = arrays["format"].item()
    name = name.decode() if isinstance(name, bytes) else str(name)
    if name not in ("csr", "csc", "bsr", "coo", "dia"):
        raise ValueError(f"its format is {name!r}")
    kind = getattr(scipy.sparse, f"{name}_{'array' if arrays.get('_is_array') else 'matrix'}")
    data, shape = arrays["data"], tuple(arrays["shape"].tolist())
    if name == "coo":
        return kind((data, (arrays["row"], arrays["col"])), shape=shape)
    if name == "dia":
        return kind((data, arrays["offsets"]), shape=shape)
    matrix = kind((data, arrays["indices"], arrays["indptr"]), shape=shape)
    matrix.check_format(full_check=True)  # Else scipy believes the indices, which came from a client.
    return matrix


_decoder_map: dict[str, Callable[[Any], Any]] = {
    content_types.NPY: _npy_to_numpy,
    content_types.CSV: _csv_to_numpy,
    content_types.JSON: _json_to_numpy,
    content_types.NPZ: _npz_to_sparse,
}


def decode(obj: Any, content_type: str) -> Any:
    """The array in a body of this content type."""
    decoder = _decoder_map.get(content_type)
    if decoder is None:
        raise errors.UnsupportedFormatError(content_type)
    return decoder(obj)
