"""Decodes lists of JPEGs with nvJPEG, the decoder of CUDA, on the hardware engines of the GPU where it has some.

torchvision has a way to it, but without the interpolation of colours that Pillow's decoder does: with it the pixels are
Pillow's but for single levels, without it they are far away at coloured edges. It also waits with a busy processor.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jitney.gpu.nvrtc import library

ANY_BACKEND, HARDWARE = 0, 3
RGB_PLANES = 3
INTERPOLATE_COLOURS = 1 << 5
COMPONENTS_MAX = 4
ALIGNED = 256


class NvjpegError(RuntimeError):
    """nvJPEG is not there, or does not read a file."""


class JpegFile(NamedTuple):
    """A file on the host, and the size its head tells."""

    content: Any
    """A tensor of bytes."""
    height: int
    width: int


class Nvjpeg:
    """A decoder for one device; any thread may use it, one at a time does."""

    def __init__(self, device: Any, flags: int = INTERPOLATE_COLOURS) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._device = device
        self._library = library(nvjpeg_names())
        self._handle, self._state = ctypes.c_void_p(), ctypes.c_void_p()
        self._lock = threading.Lock()
        self._sizes = (ctypes.c_int * (2 + 2 * COMPONENTS_MAX))()
        with self._torch.cuda.device(device):
            self._torch.cuda.current_stream(device).synchronize()
            if self._create(HARDWARE, flags):
                self._check(self._create(ANY_BACKEND, flags), "cannot be started")
            made = self._library.nvjpegJpegStateCreate(self._handle, ctypes.byref(self._state))
            self._check(made, "cannot be started")

    def _create(self, backend: int, flags: int) -> int:
        create = self._library.nvjpegCreateEx
        return int(create(backend, None, None, ctypes.c_uint(flags), ctypes.byref(self._handle)))

    def decode(self, files: Sequence[JpegFile]) -> list[Any]:
        """Pictures of 3 x height x width bytes in memory of the current stream, which are there; raises if one file
        cannot be read."""
        torch, count = self._torch, len(files)
        with self._lock, torch.cuda.device(self._device):
            addresses, lengths, offsets, total = [], [], [], 0
            for content, height, width in files:
                addresses.append(content.data_ptr())
                lengths.append(len(content))
                offsets.append(total)
                self._check_size(addresses[-1], lengths[-1], height, width)
                total += -(-3 * height * width // ALIGNED) * ALIGNED
            memory = torch.empty(total, dtype=torch.uint8, device=self._device)
            planes = array("Q")
            for offset, (_, height, width) in zip(offsets, files):
                first, plane = memory.data_ptr() + offset, height * width
                planes.extend((first, first + plane, first + 2 * plane, 0, width, width, width, 0))
            self._run(count, addresses, lengths, planes)
            return [
                memory[offset : offset + 3 * height * width].view(3, height, width)
                for offset, (_, height, width) in zip(offsets, files)
            ]

    def _run(self, count: int, addresses: list[int], lengths: list[int], planes: array[int]) -> None:
        nvjpeg, handle, state = self._library, self._handle, self._state
        stream = self._torch.cuda.current_stream(self._device)
        self._check(nvjpeg.nvjpegDecodeBatchedInitialize(handle, state, count, 1, RGB_PLANES), "takes no such list")
        status = nvjpeg.nvjpegDecodeBatched(
            handle,
            state,
            (ctypes.c_void_p * count)(*addresses),
            (ctypes.c_size_t * count)(*lengths),
            (ctypes.c_uint64 * len(planes)).from_buffer(planes),
            ctypes.c_void_p(stream.cuda_stream),
        )
        done = self._torch.cuda.Event(blocking=True)  # Who waits for it sleeps.
        done.record(stream)
        done.synchronize()
        self._check(status, "does not read one of the files")

    def _check_size(self, address: int, length: int, height: int, width: int) -> None:
        """Raises unless nvJPEG finds the size that memory is taken for: it writes as much as the file asks for."""
        found = self._sizes
        first = ctypes.addressof(found)
        size = ctypes.sizeof(ctypes.c_int)
        widths, heights = first + 2 * size, first + (2 + COMPONENTS_MAX) * size
        status = self._library.nvjpegGetImageInfo(
            self._handle,
            ctypes.c_void_p(address),
            ctypes.c_size_t(length),
            ctypes.c_void_p(first),
            ctypes.c_void_p(first + size),
            ctypes.c_void_p(widths),
            ctypes.c_void_p(heights),
        )
        self._check(status, "does not read the head of a file")
        if (found[2], found[2 + COMPONENTS_MAX]) != (width, height):
            raise NvjpegError("nvJPEG finds another size in the head of a file")

    @staticmethod
    def _check(status: int, what: str) -> None:
        if status:
            raise NvjpegError(f"nvJPEG {what} (status {status})")


def nvjpeg_names() -> list[str]:
    """Where nvJPEG may be: beside torchvision, among the packages that torch needs, or installed."""
    torch: Any = importlib.import_module("torch")
    major = str(torch.version.cuda or "").split(".")[0]
    packages = Path(torch.__file__).parent.parent
    patterns = (f"torchvision.libs/libnvjpeg*.so.{major}*", f"nvidia/*/lib/libnvjpeg.so.{major}*")
    beside = [str(path) for pattern in patterns for path in sorted(packages.glob(pattern))]
    return [*beside, f"libnvjpeg.so.{major}", "libnvjpeg.so"]
