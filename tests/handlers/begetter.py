"""Starts a child process and does what each item orders: tells its pids, exits, hangs, or fails to load."""

import os
import subprocess
import sys
import time

CHILD = [sys.executable, "-S", "-c", "import time; time.sleep(100000)"]
"""It inherits the worker's output, and so holds the server's pipes."""


def handle(data, context):
    """One row per item."""
    return [obey(row.get("body") or row) for row in data or []]


def obey(order):
    """Exits and hangs do not return."""
    child = subprocess.Popen(CHILD, start_new_session=bool(order.get("leaves"))) if order.get("child") else None
    if order.get("hang"):
        print(f"hanging with child {child.pid}", flush=True)
        while True:
            time.sleep(1000)
    if "exit" in order:
        os._exit(order["exit"])
    return {"worker": os.getpid(), "child": child and child.pid}
