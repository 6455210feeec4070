"""What happens on the machine and in the server during a load: processors, GPU, batches, stages."""

from __future__ import annotations

import pathlib
import shutil
import statistics
import subprocess
import threading
import time
from types import TracebackType

from server import TICKS, Server, read, tree

LOOK_SECONDS = 0.2
THREADS_SHOWN = 6
STAGES = ("prepare", "model")
GPU = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used,clocks.sm", "--format=csv,noheader,nounits"]


class Watch:
    """`with Watch(server, warm_up) as watch:` around a load; `watch.facts()` says what was seen after the warm-up."""

    def __init__(self, server: Server, warm_up: float) -> None:
        self.server, self.warm_up = server, warm_up
        self.workers = [worker["pid"] for worker in self._described()["workers"]]
        self.looks: list[tuple[float, float, float, int]] = []
        self.gpu: list[list[float]] = []
        self.ended = threading.Event()

    def __enter__(self) -> Watch:
        self.statistics = self._statistics()
        self.stages = stages(self._described())
        self.began = time.perf_counter()
        self.from_time = self.began + self.warm_up
        self.tasks: dict[str, float] | None = None
        self.watchers = [threading.Thread(target=self._look)]
        self.smi = None
        if shutil.which(GPU[0]):
            loop = [*GPU, "-lms", str(int(LOOK_SECONDS * 1000))]
            self.smi = subprocess.Popen(loop, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.watchers.append(threading.Thread(target=self._look_at_gpu))
        for watcher in self.watchers:
            watcher.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self.began
        self.ended.set()
        if self.smi is not None:
            self.smi.terminate()
        for watcher in self.watchers:
            watcher.join()
        if self.smi is not None:
            self.smi.wait()

    def _look(self) -> None:
        while not self.ended.is_set():
            now = time.perf_counter()
            processes = [below for worker in self.workers for below in tree(worker)]
            used = sum(sum(threads(pid).values()) for pid in processes)
            own = sum(threads(self.server.process.pid).values())
            self.looks.append((now, used, own, len(processes)))
            if now >= self.from_time:
                tasks = {task: seconds for pid in processes for task, seconds in threads(pid).items()}
                self.tasks = self.tasks or tasks
                self.tasks_after, self.tasks_time = tasks, now
            self.ended.wait(LOOK_SECONDS)

    def _look_at_gpu(self) -> None:
        for line in self.smi.stdout:
            fields = line.split(",")
            if time.perf_counter() >= self.from_time and all(field.strip().isdigit() for field in fields):
                self.gpu.append([float(field) for field in fields])

    def _statistics(self) -> dict:
        return self.server.ask("/models/bench/statistics")[0]

    def _described(self) -> dict:
        return self.server.ask("/models/bench")[0]

    def facts(self) -> dict:
        """Cores used by the worker and by the server, its busiest threads, the GPU, batches, and the stages."""
        counted = [look for look in self.looks if look[0] >= self.from_time]
        facts: dict = {"copies": len(self.workers)}
        if len(counted) > 1:
            (start, used_before, own_before, _), (end, used, own, processes) = counted[0], counted[-1]
            facts["worker_cores"] = (used - used_before) / (end - start)
            facts["server_cores"] = (own - own_before) / (end - start)
            facts["worker_processes"] = processes
            busiest = {task: after - self.tasks.get(task, 0.0) for task, after in self.tasks_after.items()}
            length = max(1e-9, self.tasks_time - start)
            facts["threads"] = sorted((round(used / length, 2) for used in busiest.values()), reverse=True)[
                :THREADS_SHOWN
            ]
        if self.gpu:
            busy, memory, clock = (statistics.mean(column) for column in zip(*self.gpu))
            facts["gpu"] = {"utilisation_percent": busy, "memory_mib": memory, "clock_mhz": clock}
        facts["batches"] = batches(self.statistics, self._statistics())
        # Each is with the worker from when it was handed over until it is answered.
        facts["batches"]["at_a_time"] = (
            facts["batches"]["batches"] * facts["batches"]["compute_ms"] / 1e3 / self.seconds
        )
        facts["described"] = self._described()
        count, *seconds = (after - before for before, after in zip(self.stages, stages(facts["described"])))
        if count:
            facts["batches"] |= {f"{stage}_ms": 1e3 * took / count for stage, took in zip(STAGES, seconds)}
        return facts


def stages(described: dict) -> list[float]:
    """Batches whose stages the worker has measured, and the seconds of each stage."""
    told = described.get("stages", {})
    return [told.get(key, 0) for key in ("batches", *(f"{stage}Seconds" for stage in STAGES))]


def threads(pid: int) -> dict[str, float]:
    """CPU seconds of each thread of a process."""
    found = {}
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        fields = read(path).rsplit(")", 1)[-1].split()
        if len(fields) > 12:
            found[path.parent.name] = (int(fields[11]) + int(fields[12])) / TICKS
    return found


def batches(before: dict, after: dict) -> dict:
    """What was added to the statistics of a model."""
    earlier, later = before["total"], after["total"]
    added = {key: later[key] - earlier.get(key, 0) for key in later if isinstance(later[key], int | float)}
    count = max(1, added["batches"])
    sizes = {it["size"]: it["batches"] for it in before["sizes"]}
    by_size = {it["size"]: it["batches"] - sizes.get(it["size"], 0) for it in after["sizes"]}
    return {
        "batches": added["batches"],
        "mean_size": added["items"] / count,
        "reasons": {
            reason: number - earlier["dispatches"].get(reason, 0)
            for reason, number in later["dispatches"].items()
            if number > earlier["dispatches"].get(reason, 0)
        },
        "queue_ms": 1e3 * added["queueSecondsSum"] / max(1, added["answeredRequests"]),
        "compute_ms": 1e3 * added["computeSecondsSum"] / max(1, added["answeredBatches"]),
        "sizes": {size: number for size, number in by_size.items() if number},
        "failed": added.get("failedBatches", 0),
    }
