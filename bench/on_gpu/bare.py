"""What a program without a server would do: the figures that the served ones are divided by."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable

import torch

from on_gpu.nets import Form, prepared

WARM_UPS = 5
ROUNDS_PER_LOOK = 8
"""Batches between two looks at the clock, so that the device never waits for the host."""


class Loop:
    """Batches one after another: `rate` is in items per second."""

    def __init__(self, step: Callable[[], None], items: int, device: str) -> None:
        self.step, self.items, self.device = step, items, device

    def rate(self, seconds: float) -> float:
        """The rate over so many seconds, after a few batches that do not count."""
        with torch.inference_mode():
            for _ in range(WARM_UPS if self.on_gpu else 1):
                self.step()
            self.settle()
            started, batches = time.perf_counter(), 0
            while time.perf_counter() - started < seconds:
                for _ in range(ROUNDS_PER_LOOK if self.on_gpu else 1):
                    self.step()
                    batches += 1
                self.settle()
            return batches * self.items / (time.perf_counter() - started)

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def settle(self) -> None:
        """Waits for the device."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)


def captured(net: torch.nn.Module, batch: torch.Tensor, form: Form) -> Callable[[], None]:
    """The net over one batch as a CUDA graph; a plain call where there is no GPU."""
    if not form.device.startswith("cuda"):
        return lambda: net(batch)
    with torch.inference_mode(), torch.cuda.device(form.device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                net(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(batch)

    def replay() -> None:
        graph.replay()

    replay.read_by_the_graph = (net, batch)
    return replay


def script_loop(script: pathlib.Path, size: int, form: Form) -> Loop:
    """The TorchScript program in a graph, over a batch that lies on the device."""
    net = form.of(torch.jit.load(str(script), map_location=form.device))
    batch = form.batch(torch.rand(size, 3, 224, 224))
    return Loop(captured(net, batch, form), size, form.device)


def compiled_loop(net: torch.nn.Module, size: int, form: Form, cache: pathlib.Path | None) -> Loop:
    """The eager net compiled for one size, in a graph; a cache that the server filled is used where it fits."""
    if cache is not None:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
    batch = form.batch(torch.rand(size, 3, 224, 224))
    compiled = torch.compile(form.of(net), dynamic=False)
    with torch.inference_mode():
        compiled(batch)
    return Loop(captured(compiled, batch, form), size, form.device)


def decoding_loop(script: pathlib.Path, bodies: list[bytes], size: int, form: Form) -> Loop:
    """Pillow, model and the five best classes, one after another."""
    net = form.of(torch.jit.load(str(script), map_location=form.device))
    turn = iter(range(1 << 60))

    def step() -> None:
        chosen = [bodies[next(turn) % len(bodies)] for _ in range(size)]
        torch.topk(torch.softmax(net(form.batch(prepared(chosen))).float(), 1), 5)[0].tolist()

    return Loop(step, size, form.device)
