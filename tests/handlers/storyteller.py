"""Tells its answer piece by piece; between two pieces it waits until the test has made a file.

A request is JSON: {"pieces": [...], "gates": [...], "then": "text" | "raise" | "exit"}.
"""

import os
import time

from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    """The first request's story is told to everybody in the batch."""
    if data is None:
        return None
    story = data[0]["body"]
    context.set_response_header(0, "x-story", "yes")
    for piece, gate in zip(story["pieces"], story["gates"]):
        send_intermediate_predict_response([piece] * len(data), context.request_ids, "ok", 200, context)
        while gate and not os.path.exists(gate):
            time.sleep(0.002)
    if story["then"] == "raise":
        raise ValueError("the story breaks off")
    if story["then"] == "exit":
        os._exit(1)
    return [story["then"] for _ in data]
