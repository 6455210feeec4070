"""Reads npy and npz files. A header is held against the bytes there are, and a directory against the limit, before an
array is made."""

from __future__ import annotations

import functools
import io
import math
from typing import TYPE_CHECKING, Any

from jitney.files.limits import FileRejected, limits

if TYPE_CHECKING:
    from zipfile import ZipFile

NPY, ZIP = b"\x93NUMPY", b"PK\x03\x04"
HEAD_MAX = 12_000
"""Bytes of a file in which its header ends; numpy reads headers of at most 10,000."""
HEADS_KEPT = 64
"""Headers that are known, since files of one client have the same."""


class ObjectsRejected(FileRejected):
    """The file holds objects of Python, which only unpickling would bring back."""


def read_npy(content: Any) -> Any:
    """The array of an npy file."""
    import numpy  # Only reached when arrays are on the wire.

    start = 10 if content[6:8] == b"\1\0" else 12  # The length of the header stands before it, in what is left of that.
    end = start + int.from_bytes(content[8:start], "little")
    shape, fortran, dtype, begin = _header(bytes(content[: min(end, HEAD_MAX)]))
    if dtype.hasobject:
        raise ObjectsRejected("it holds Python objects, and nothing that a client sent is unpickled: send numbers")
    # Elements without a byte are none that came, and numpy copies them one by one.
    size = math.prod(shape) * max(1, dtype.itemsize)
    sizes = all(type(one) is int and one >= 0 for one in shape)
    if not sizes or size > len(content) - begin or (shape and shape[0] > len(content)):
        raise FileRejected(f"its header claims shape {shape}, and fewer bytes came")
    order: Any = "F" if fortran else "C"
    return numpy.ndarray(shape, dtype, content, begin, order=order).copy(order="K")


@functools.lru_cache(HEADS_KEPT)
def _header(head: bytes) -> tuple[tuple[int, ...], bool, Any, int]:
    """What the beginning of a file says: shape, whether it is in Fortran's order, datatype, where the numbers begin."""
    import numpy

    file = io.BytesIO(head)
    try:
        old = numpy.lib.format.read_magic(file) == (1, 0)
        # The third version differs from the second in the names of fields only, which may not be those of Latin 1.
        read = numpy.lib.format.read_array_header_1_0 if old else numpy.lib.format.read_array_header_2_0
        return (*read(file), file.tell())
    except Exception as error:  # Python's own parser reads it, and has errors of its own.
        raise FileRejected(f"its header cannot be read: {error}") from None


def read_npy_with_objects(content: Any) -> Any:
    """The same, and its objects are unpickled, which can run any code: only where the operator has said so."""
    import numpy

    try:
        return read_npy(content)
    except ObjectsRejected:
        pass
    try:
        return numpy.load(io.BytesIO(content), allow_pickle=True)
    except MemoryError:
        raise
    except Exception as error:  # Unpickling raises whatever the bytes say.
        raise FileRejected(f"its objects cannot be read: {error}") from None


def read_npz(content: Any) -> dict[str, Any]:
    """The arrays of an npz file by name."""
    with open_zip(content) as archive:
        try:
            return {name.removesuffix(".npy"): read_npy(archive.read(name)) for name in archive.namelist()}
        except (FileRejected, MemoryError):
            raise
        except Exception as error:  # A broken archive makes any.
            raise FileRejected(f"the npz file cannot be read: {error}") from None


def open_zip(content: Any) -> ZipFile:
    """A zip archive that expands to no more than is allowed: nothing reads more of a member than the directory says."""
    from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

    try:
        archive = ZipFile(io.BytesIO(content))
    except Exception as error:
        raise FileRejected(f"the archive cannot be read: {error}") from None
    members = archive.infolist()
    # Numpy and torch write no others, which take memory by what their headers claim.
    if any(member.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for member in members):
        raise FileRejected("its members are compressed in a way that is not read: use numpy.savez_compressed")
    limits.check_expansion(sum(member.file_size for member in members), len(content))
    return archive
