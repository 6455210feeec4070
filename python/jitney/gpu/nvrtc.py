"""Compiles kernels for the GPU at hand with NVRTC, the compiler that comes with torch, and starts them.

It is for the few kernels that would be hundreds of torch calls. Torch's own way (`torch.cuda._compile_kernel`) wants an
installed CUDA toolkit; this wants nothing but the libraries that torch itself loads.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DRIVER = "libcuda.so.1"
THREADS = tuple[int, int, int]
VOID = ctypes.c_void_p


class KernelError(RuntimeError):
    """A kernel cannot be compiled or started here."""


class Kernels:
    """Kernels of one source text, for one device."""

    def __init__(self, source: str, names: Iterable[str], device: Any) -> None:
        if sys.byteorder != "little":
            raise KernelError("kernels are started on little-endian machines only")
        torch: Any = importlib.import_module("torch")
        with torch.cuda.device(device):
            torch.cuda.current_stream(device).synchronize()  # So that there is a context to load them into.
            major, minor = torch.cuda.get_device_capability(device)
            binary = compiled(source, f"sm_{major}{minor}")
            self._driver = library([DRIVER])
            self._driver.cuLaunchKernel.argtypes = [VOID, *[ctypes.c_uint] * 7, VOID, VOID, VOID]
            self._module = ctypes.c_void_p()
            self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), binary))
            self._functions = {name: self._function(name) for name in names}

    def _function(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()))
        return function

    def launch(self, name: str, grid: THREADS, block: THREADS, arguments: Sequence[Any], stream: Any) -> None:
        """Starts a kernel on a stream. Tensors are given as their addresses, numbers as C's int."""
        values = array("q", [value if isinstance(value, int) else value.data_ptr() for value in arguments])
        first = values.buffer_info()[0]
        places = array("Q", range(first, first + len(values) * 8, 8))
        where, given = stream.cuda_stream, places.buffer_info()[0]
        self._check(self._driver.cuLaunchKernel(self._functions[name], *grid, *block, 0, where, given, None))

    def _check(self, status: int) -> None:
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            raise KernelError(f"CUDA answered {status}: {(text.value or b'unknown error').decode()}")


def compiled(source: str, architecture: str) -> bytes:
    """The binary of a source text for one architecture."""
    nvrtc = library(nvrtc_names())
    program = ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"jitney.cu", 0, None, None)
    if made:
        raise KernelError(f"NVRTC answered {made}")
    try:
        options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++14"]
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status:
            raise KernelError(f"NVRTC answered {status}: {text_of(nvrtc, program, 'ProgramLog').decode().strip()}")
        return text_of(nvrtc, program, "CUBIN", ended=False)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def text_of(nvrtc: Any, program: ctypes.c_void_p, what: str, ended: bool = True) -> bytes:
    """The log or the binary of a program."""
    size = ctypes.c_size_t()
    if getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)):
        raise KernelError(f"NVRTC has no {what} of the program")
    buffer = ctypes.create_string_buffer(size.value)
    if getattr(nvrtc, f"nvrtcGet{what}")(program, buffer):
        raise KernelError(f"NVRTC has no {what} of the program")
    return buffer.value if ended else buffer.raw


def nvrtc_names() -> list[str]:
    """Where NVRTC may be: among the libraries that are loaded or installed, or in the packages that torch needs."""
    torch: Any = importlib.import_module("torch")
    major = str(torch.version.cuda or "").split(".")[0]
    packages = Path(torch.__file__).parent.parent / "nvidia"
    beside = sorted(str(path) for path in packages.glob(f"*/lib/libnvrtc.so.{major}*"))
    return [f"libnvrtc.so.{major}", *beside, "libnvrtc.so"]


def library(names: Iterable[str]) -> Any:
    """The first of these libraries that can be loaded."""
    reason: OSError | None = None
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reason = error
    raise KernelError(f"a library of CUDA is missing: {reason}")
