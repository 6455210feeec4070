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
"""SLEEPY, and it keeps a file of what its sleeps took: lines of size,batches,seconds, counted from its start."""
import pathlib
import time

FILE = pathlib.Path("SLEPT_FILE")
took = {}
written = 0.0


def handle(data, context):
    global written
    if data is None:
        return None
    started = time.perf_counter()
    time.sleep(0.005 + 0.0002 * len(data))
    ended = time.perf_counter()
    count, total = took.get(len(data), (0, 0.0))
    took[len(data)] = (count + 1, total + ended - started)
    if ended - written > 0.25:
        written = ended
        FILE.write_text("".join(f"{size},{count},{total}\\n" for size, (count, total) in took.items()))
    return [bytes(row.get("body") or b"") for row in data]
'''
"""`SLEPT_FILE` is to be replaced by the path of that file."""
