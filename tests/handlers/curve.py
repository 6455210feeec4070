"""Costs what a GPU would: 5 ms per batch and 0.2 ms per item. Gives every request its own body back."""

import time


def handle(data, context):
    """One answer per row, after the time the batch takes."""
    if not data:
        return None
    time.sleep(0.005 + 0.0002 * len(data))
    return [bytes(row["body"]) for row in data]
