"""Counts the requests of each sequence it serves; an order in the body ends the sequence or the process.

Bodies: `x` counts, `end` ends the sequence, `raise` and `exit` go wrong; `wait FILE` waits for a file.
"""

import json
import os
import time


class Rememberer:
    """Remembers in its own process, as models with a state do."""

    def initialize(self, context):
        """Nothing is known yet."""
        self.seen = {}

    def handle(self, data, context):
        """One answer per request, and what the handler was told about it."""
        return [
            self.answer(context, index, bytes(row.get("data") or row["body"]).decode())
            for index, row in enumerate(data)
        ]

    def answer(self, context, index, order):
        """Counts, then does as it was told."""
        sequence = context.get_sequence_id(index)
        self.seen[sequence] = self.seen.get(sequence, 0) + 1
        if order == "raise":
            raise ValueError("ordered")
        if order == "exit":
            os._exit(1)
        if order.startswith("wait "):
            while not os.path.exists(order[5:]):
                time.sleep(0.002)
        if order == "end":
            context.set_response_header(index, context.header_key_sequence_end, f"{sequence};nobody")
        start = context.get_request_header(index, context.header_key_sequence_start)
        return json.dumps({"id": sequence, "count": self.seen[sequence], "start": start, "pid": os.getpid()})
