"""The two handlers that the measurements use; each is packed as a model directory of its own."""

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
