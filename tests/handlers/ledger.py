"""Writes down every request before it answers it, so that a test can ask whether what ran was answered too."""

import os
import pathlib
import time

ledger = pathlib.Path(os.environ["LEDGER"]) / str(os.getpid())


def handle(data, context):
    """Gives the bodies back, a little later."""
    if not data:
        return None
    bodies = [bytes(row["body"]) for row in data]
    with ledger.open("ab") as file:
        file.write(b"".join(body + b"\n" for body in bodies))
    time.sleep(0.005)
    return bodies
