"""The handlers that the measurements use; each is packed as a model directory of its own."""

NOOP = '''
"""Does nothing: returns the length of the body."""


def handle(data, context):
    if data is None:
        return None
    return [str(len(row.get("body") or b"")) for row in data]
'''

SLEEPY = '''
"""Stands in for an accelerator: 5 ms for a batch and 0.2 ms for each of its items, then echoes."""
import time


def handle(data, context):
    if data is None:
        return None
    time.sleep(0.005 + 0.0002 * len(data))
    return [bytes(row.get("body") or b"") for row in data]
'''

TIMED = '''
"""SLEEPY, and every 100 batches it notes beside itself what its sleeps took on average: lines of size,ms."""
import pathlib
import time

took = {}
batches = 0


def handle(data, context):
    global batches
    if data is None:
        return None
    started = time.perf_counter()
    time.sleep(0.005 + 0.0002 * len(data))
    count, total = took.get(len(data), (0, 0.0))
    took[len(data)] = (count + 1, total + time.perf_counter() - started)
    batches += 1
    if batches % 100 == 0:
        lines = [f"{size},{total / count * 1e3}" for size, (count, total) in sorted(took.items()) if count > 4]
        pathlib.Path(context.system_properties["model_dir"], "slept.csv").write_text("\\n".join(lines))
    return [bytes(row.get("body") or b"") for row in data]
'''
