"""Loads only while a file is absent: the way a test makes a worker's restarts fail, and succeed again."""

import os


class Fickle:
    """Says its process, or does not load."""

    def initialize(self, context):
        """Fails while the obstacle is there."""
        if os.path.exists(os.environ["OBSTACLE"]):
            raise RuntimeError("an obstacle is in the way")

    def handle(self, data, context):
        """One process id per row."""
        return [os.getpid() for _ in data]
