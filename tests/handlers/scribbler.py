"""Says what it got and scribbles over it; a body that begins with `!` makes a batch of several fail after that."""

import hashlib


def handle(data, context):
    """One description per row."""
    if data is None:
        return None
    said, bad = [], False
    for row in data:
        body = row["body"]
        said.append({"type": type(body).__name__, "size": len(body), "hash": hashlib.sha256(body).hexdigest()})
        bad = bad or body.startswith(b"!")
        body[:] = b"scribbled" * 10
        said[-1]["batch"] = len(data)
    if bad and len(data) > 1:
        raise ValueError("not together")
    return said
