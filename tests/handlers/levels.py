"""Sets gauges of `prometheus_client` to its process id. The library is imported when the first request comes."""

import functools
import os


@functools.cache
def gauges():
    """One of each mode of several processes."""
    from prometheus_client import Gauge

    modes = ("all", "liveall", "sum", "livesum", "max", "mostrecent")
    return [Gauge(f"level_{mode}", "A level", multiprocess_mode=mode) for mode in modes]


def handle(data, context):
    """Answers with the process id."""
    for gauge in gauges() if data else ():
        gauge.set(os.getpid())
    return [str(os.getpid())] * len(data or [])
