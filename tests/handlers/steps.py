"""Functions of a workflow that do what the request says, and leave a trace of having been called.

A request is `{"dir": DIR, "do": {FUNCTION: [ACT, FILE]}}`. Every call writes DIR/FUNCTION.N; what a function gives is
the request with its own name added under `seen`.
"""

import json
import time
from pathlib import Path

from ts.service import PredictionException


def order_of(value):
    """The request as it came from the client or the node before."""
    return value if isinstance(value, dict) else json.loads(bytes(value))


def step(name, data):
    """One answer per row."""
    return data and [json.dumps(obey(name, order_of(row["body"]))) for row in data]


def obey(name, order):
    """Leaves the trace, then does as it is told."""
    trace = Path(order["dir"])
    call = len(list(trace.glob(f"{name}.*")))
    (trace / f"{name}.{call}").touch()
    act, *more = order.get("do", {}).get(name, ["go"])
    if act == "wait":
        wait_for(trace / more[0])
    elif act == "fail" or (act == "fail-once" and call == 0):
        raise RuntimeError("told to fail")
    elif act == "refuse":
        raise PredictionException("not with this input", 422)
    return {**order, "seen": [*order.get("seen", []), name]}


def wait_for(path):
    """Waits until the file exists."""
    for _ in range(2000):
        if path.exists():
            return
        time.sleep(0.01)
    raise RuntimeError(f"nobody made {path}")


def first(data, context):
    """The start."""
    return step("first", data)


def left(data, context):
    """One branch."""
    return step("left", data)


def right(data, context):
    """The other."""
    return step("right", data)


def join(data, context):
    """Where both meet: one value per branch, by its name."""
    return data and [json.dumps({name: order_of(value)["seen"] for name, value in row.items()}) for row in data]


def last(data, context):
    """The end."""
    return step("last", data)


def told(data, context):
    """What the request's headers say, wherever this node stands."""
    return data and [{name: context.get_request_header(0, name) for name in ("x-tenant", "content-type")}]
