"""Runs the kernels of a CUDA source on the CPU: one thread after another, compiled by the C++ compiler at hand.

It is enough for kernels that share nothing and wait for nobody, and it makes their arithmetic testable without a GPU.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest

COMPILER = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)

BEFORE = r"""
#define __global__
#define __device__ static inline
struct Place { int x, y, z; };
static Place blockIdx, threadIdx, blockDim;
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
#define ALL(grid, block, call)                                                                  \
    blockDim = {block[0], block[1], block[2]};                                                  \
    for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)                                    \
    for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)                                    \
    for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++)                                    \
    for (threadIdx.z = 0; threadIdx.z < block[2]; threadIdx.z++)                                \
    for (threadIdx.y = 0; threadIdx.y < block[1]; threadIdx.y++)                                \
    for (threadIdx.x = 0; threadIdx.x < block[0]; threadIdx.x++) call;
template <typename... Kinds> struct Arguments {};
template <typename... Kinds, typename... Values>
static void run(void (*kernel)(Kinds...), const int* grid, const int* block, Values... values) {
    ALL(grid, block, kernel((Kinds)values...))
}
"""

CALLER = """
extern "C" void run_{name}(const int* grid, const int* block, void** p, const int* n) {{
    run({name}, grid, block, {arguments});
}}
"""


class ShimKernels:
    """Like `jitney.gpu.nvrtc.Kernels`. `shapes` has the number of pointers and of whole numbers of every kernel."""

    def __init__(self, source, shapes, folder):
        if COMPILER is None:
            pytest.skip("NO C++ COMPILER HERE: the kernels cannot be run on the CPU")
        callers = [
            CALLER.format(
                name=name,
                arguments=", ".join([f"p[{at}]" for at in range(pointers)] + [f"n[{at}]" for at in range(numbers)]),
            )
            for name, (pointers, numbers) in shapes.items()
        ]
        (folder / "kernels.cpp").write_text(BEFORE + source + "".join(callers))
        command = [COMPILER, "-O1", "-std=c++14", "-ffp-contract=off", "-shared", "-fPIC", "-w", "kernels.cpp"]
        subprocess.run([*command, "-o", "kernels.so"], cwd=folder, check=True)
        self._library = ctypes.CDLL(str(folder / "kernels.so"))

    def launch(self, name, grid, block, arguments, stream):
        assert stream is None
        pointers = [value.data_ptr() for value in arguments if not isinstance(value, int)]
        numbers = [value for value in arguments if isinstance(value, int)]
        getattr(self._library, f"run_{name}")(
            (ctypes.c_int * 3)(*grid),
            (ctypes.c_int * 3)(*block),
            (ctypes.c_void_p * len(pointers))(*pointers),
            (ctypes.c_int * len(numbers))(*numbers),
        )
