"""A definition that keeps the device busy for 10 ms per batch of up to 64, whatever its size."""

from __future__ import annotations

import os
import time

import torch

import jitney

BATCH = 64
MILLISECONDS = 10.0
DEVICE = jitney.device()
SIDE = 4096 if DEVICE.is_gpu else 256
FLOATS = torch.float16 if DEVICE.is_gpu else torch.float32

matrix = torch.eye(SIDE, dtype=FLOATS, device=DEVICE)


def work(numbers: list[int], rounds: int) -> list[int]:
    """Adds one to each number, on the device, after so many products of matrices."""
    with torch.inference_mode():
        product = matrix
        for _ in range(rounds):
            product = product @ matrix
        return (torch.tensor(numbers, device=DEVICE) + product[0, 0].to(torch.int64)).tolist()


def calibrated() -> int:
    """The number of products that takes 10 ms."""
    work([0], 50)
    started = time.perf_counter()
    work([0], 200)
    return max(1, round(200 * MILLISECONDS / 1e3 / (time.perf_counter() - started)))


@jitney.batch(max_batch_size=BATCH)
def burn(number: list[int]) -> list[int]:
    """One more than each."""
    return work(number, int(os.environ["BENCH_BURN_ROUNDS"]))
