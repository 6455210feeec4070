"""Load of the machine as metrics, read from the kernel.

The server measures its machine itself; this is for code that asks, and for
`ts.metrics.metric_collector`. No package beside Python is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from types import ModuleType

from ts.metrics.dimension import Dimension
from ts.metrics.metric import Metric
from ts.metrics.metric_type_enum import MetricTypes

MEGABYTE, GIGABYTE = 1 << 20, 1 << 30
CPU_INTERVAL = 0.1
GPU_QUERY = ["--query-gpu=index,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits"]
GPU_TIMEOUT = 10

system_metrics: list[Metric] = []
dimension = [Dimension("Level", "Host")]


def cpu_utilization() -> None:
    """How busy the processors are, measured over a short interval."""
    idle, total = _cpu_times()
    time.sleep(CPU_INTERVAL)
    idle_later, total_later = _cpu_times()
    passed = total_later - total
    busy = 100.0 * (1 - (idle_later - idle) / passed) if passed > 0 else 0.0
    _report("CPUUtilization", busy, "percent")


def memory_used() -> None:
    """Memory in use."""
    memory = _memory()
    _report("MemoryUsed", (memory["MemTotal"] - memory["MemAvailable"]) / MEGABYTE, "MB")


def memory_available() -> None:
    """Available memory."""
    _report("MemoryAvailable", _memory()["MemAvailable"] / MEGABYTE, "MB")


def memory_utilization() -> None:
    """Memory in use, in percent."""
    memory = _memory()
    _report("MemoryUtilization", 100.0 * (1 - memory["MemAvailable"] / memory["MemTotal"]), "percent")


def disk_used() -> None:
    """Disk in use."""
    _report("DiskUsage", shutil.disk_usage("/").used / GIGABYTE, "GB")


def disk_utilization() -> None:
    """Disk in use, in percent of what users can have."""
    disk = shutil.disk_usage("/")
    _report("DiskUtilization", 100.0 * disk.used / (disk.used + disk.free), "percent")


def disk_available() -> None:
    """Available disk space."""
    _report("DiskAvailable", shutil.disk_usage("/").free / GIGABYTE, "GB")


def gpu_utilization(num_of_gpu: int) -> None:
    """Load and memory of every GPU, from nvidia-smi; nothing without it."""
    program = shutil.which("nvidia-smi") if num_of_gpu > 0 else None
    if program is None:
        return
    try:
        output = subprocess.run([program, *GPU_QUERY], capture_output=True, text=True, timeout=GPU_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"nvidia-smi failed: {error}\n")
        return
    for line in output.stdout.splitlines():
        _report_gpu([field.strip() for field in line.split(",")])


def collect_all(mod: ModuleType, num_of_gpu: int) -> None:
    """Measures everything and prints it, with an empty line at the end."""
    system_metrics.clear()
    for measure in (
        mod.cpu_utilization,
        mod.memory_used,
        mod.memory_available,
        mod.memory_utilization,
        mod.disk_used,
        mod.disk_utilization,
        mod.disk_available,
    ):
        measure()
    mod.gpu_utilization(num_of_gpu)
    sys.stdout.write("".join(f"{metric}\n" for metric in system_metrics) + "\n")
    sys.stdout.flush()


def _report(name: str, value: float, unit: str, device: str | None = None) -> None:
    dimensions = dimension if device is None else [*dimension, Dimension("device_id", device)]
    system_metrics.append(Metric(name, value, unit, dimensions, metric_type=MetricTypes.GAUGE))


def _report_gpu(fields: list[str]) -> None:
    """Values that a GPU does not report ("[N/A]") are left out."""
    device, *numbers = fields
    busy, used, total = (float(n) if n.replace(".", "", 1).isdigit() else None for n in numbers)
    if used is not None and total:
        _report("GPUMemoryUtilization", 100.0 * used / total, "percent", device)
    if used is not None:
        _report("GPUMemoryUsed", used, "MB", device)
    if busy is not None:
        _report("GPUUtilization", busy, "percent", device)


def _cpu_times() -> tuple[float, float]:
    """Idle time and all time since the start, in the kernel's ticks."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [float(field) for field in file.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _memory() -> dict[str, int]:
    """The kernel's memory counters in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    known = {"MemTotal": os.sysconf("SC_PHYS_PAGES") * page, "MemAvailable": os.sysconf("SC_AVPHYS_PAGES") * page}
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                known[name] = int(rest.split()[0]) * 1024
    except OSError:
        pass  # What the C library knows must do.
    return known
