"""Runs a definition's samples at every size, and length, that its functions are run at, before it serves.

Graphs are captured on the way, libraries choose their kernels, and what a batch takes is known from the first
request on.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

from jitney.call.errors import describe
from jitney.definition.definition import Endpoint
from jitney.definition.expressions import Expression
from jitney.execution.execution import Execution, Instance
from jitney.execution.grouping import Item
from jitney.gpu.device import wait_for_gpu
from jitney.gpu.graphed import graphed_models
from jitney.gpu.report import MeasuredShape, MeasuredSize, WarmUpReport
from jitney.http import arguments

Progress = Callable[[int, int, str], None]
Arguments = Mapping[str, Any]


def warm_up(instance: Instance, progress: Progress) -> WarmUpReport:
    """Warms up all endpoints that have samples."""
    report = WarmUpReport(sizes=list(instance.definition.sizes))
    runs = [run for endpoint in instance.definition.endpoints for run in _runs(endpoint)]
    for graphed in graphed_models():
        graphed.watch(progress)
    failed: set[str] = set()
    for done, run in enumerate(runs, 1):
        if run.endpoint.name in failed:
            continue
        try:
            report.measured += run.measure(instance)
        except Exception as error:
            failed.add(run.endpoint.name)
            report.notes.append(f"{run.endpoint.name} is not warmed up: {run} failed with {describe(error)}")
        progress(done, len(runs), f"ran {run}")
    _add_graphs(report)
    if runs and not failed and len(instance.definition.endpoints) == 1:
        report.samples = [run.rows() for run in dict.fromkeys((runs[0], runs[-1]))]
    return report


class _Run:
    """A call of one endpoint with so many items of such a length."""

    def __init__(self, endpoint: Endpoint, sample: Arguments, size: int, length: int | None) -> None:
        self.endpoint = endpoint
        self._sample = sample
        self._size = size
        self._length = length

    def __str__(self) -> str:
        items = "1 item" if self._size == 1 else f"{self._size} items"
        return items if self._length is None else f"{items} of length {self._length}"

    def rows(self) -> list[dict[str, Any]]:
        """What its requests would bring."""
        return [{arguments.BODY: dict(self._sample)}] * self._size

    def measure(self, instance: Instance) -> list[MeasuredSize | MeasuredShape]:
        """Runs it twice, since whatever is chosen or captured at the first call costs it time; what the second took."""
        self._run(instance)
        prepare, model = self._run(instance)
        if self._length is None:
            return [MeasuredSize(self._size, prepare, model)]
        return [MeasuredShape(self._size, prepare, model, self._length)]

    def _run(self, instance: Instance) -> tuple[int, int]:
        bodies = [copy.deepcopy(dict(self._sample)) for _ in range(self._size)]
        started = time.perf_counter()
        items = [Item(arguments.read(self.endpoint, {arguments.BODY: body})) for body in bodies]
        execution = Execution(self.endpoint, items)
        prepared = time.perf_counter()
        instance.run(execution)
        wait_for_gpu()
        ended = time.perf_counter()
        for outcome in execution.outcomes():
            if isinstance(outcome, Exception):
                raise outcome
        return round((prepared - started) * 1e6), round((ended - prepared) * 1e6)


def _runs(endpoint: Endpoint) -> list[_Run]:
    """The runs of an endpoint, the largest first."""
    options, shapes, captures = endpoint.options, endpoint.shapes, bool(graphed_models())
    if not endpoint.batched or endpoint.streams:
        return []
    samples = options.warm_up or (options.examples if captures else None)
    if not samples:
        return []
    runs = []
    for size, length in shapes.all():
        if length is None:
            runs += [_Run(endpoint, sample, size, None) for sample in samples]
        elif (stretched := stretch(endpoint, samples[0], length)) is not None:
            runs.append(_Run(endpoint, stretched, size, length))
    if not runs:
        # Nobody can know how to make a sample of each length, so those that are given must do.
        runs = [_Run(endpoint, sample, size, None) for size in reversed(shapes.graph_sizes()) for sample in samples]
    return runs


def stretch(endpoint: Endpoint, sample: Arguments, length: int) -> Arguments | None:
    """The sample with a length, where the cost is the length of one argument: its elements again and again."""
    cost = endpoint.options.cost
    if not isinstance(cost, Expression) or len(cost.names) != 1:
        return None
    (name,) = cost.names
    value = sample.get(name)
    if not isinstance(value, (list, tuple, str)) or not value:
        return None
    stretched = {**sample, name: (value * (length // len(value) + 1))[:length]}
    return stretched if cost.of(stretched) == length else None


def _add_graphs(report: WarmUpReport) -> None:
    """What became of the graphs of the models that were called."""
    if not report.measured and any(one.sized is None for one in graphed_models()):
        report.notes.append("CUDA graphs are captured at the first request: give warm_up=[...] to the decorator")
    for graphed in graphed_models():
        if graphed.sized is None or not graphed.was_called:
            continue
        report.notes += [*graphed.notes, *graphed.sized.notes]
        report.graphs += len(graphed.sized)
        report.bytes += graphed.sized.bytes
        report.sizes = report.sizes or graphed.sized.captured_sizes()
