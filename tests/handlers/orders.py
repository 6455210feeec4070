"""Does what the requests tell it: waits, fails, dies, lies. The body is a JSON object of orders.

A row's own orders come first, in the order of the rows; `return` is about the batch as a whole.
"""

import os
import pathlib
import subprocess
import sys
import time

calls = 0


def handle(data, context):
    """Carries out the orders and says who did it with whom."""
    global calls
    if not data:
        return None
    calls += 1
    orders = [row.get("body") or {} for row in data]
    answers = [carry_out(order, index, context) for index, order in enumerate(orders)]
    for answer in answers:
        if isinstance(answer, dict):
            answer.update(pid=os.getpid(), size=len(data), call=calls)
    lies = [order["return"] for order in orders if isinstance(order, dict) and "return" in order]
    return lie(lies[0], answers) if lies else answers


def carry_out(order, index, context):
    """One row's orders."""
    for word, value in order.items():
        if word in ORDERS:
            ORDERS[word](value)
    if "status" in order:
        context.set_response_status(order["status"], "As told", index)
    if "header" in order:
        context.set_response_header(index, *order["header"])
    if order.get("answer") == "object":
        return object()
    return {"id": order.get("id"), "position": index}


def lie(how, answers):
    """An output that breaks the contract."""
    return {"few": answers[:-1], "many": [*answers, "one more"], "nothing": None, "text": "no list", "mapping": {}}[how]


def gate(files):
    """Says that it is here and waits to be let through."""
    arrived, opened = map(pathlib.Path, files)
    arrived.touch()
    while not opened.exists():
        time.sleep(0.002)


def fail(message):
    """Raises."""
    raise ValueError(message)


def note(order):
    """Adds a line to a file, so that a test can count what ran."""
    path, line = order
    with open(path, "a") as file:
        file.write(f"{line}\n")


def chatter(order):
    """Prints megabytes."""
    stream, megabytes, line_bytes = order
    line = "x" * (line_bytes - 1) + "\n"
    for _ in range(megabytes * (1 << 20) // line_bytes):
        getattr(sys, stream).write(line)


def say(order):
    """Prints one line."""
    stream, text = order
    print(text, file=getattr(sys, stream), flush=True)


def fork(path):
    """Leaves a child behind that holds every descriptor it can, and lives until the file exists."""
    if os.fork() == 0:
        while not os.path.exists(path):
            time.sleep(0.01)
        os._exit(0)


def spawn(path):
    """Starts another program that inherits descriptors where it may, and lives until the file exists."""
    program = f"import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.01)"
    subprocess.Popen([sys.executable, "-c", program], close_fds=False)


def hang(_):
    """Never comes back."""
    while True:
        time.sleep(60)


ORDERS = {
    "gate": gate,
    "sleep": time.sleep,
    "note": note,
    "say": say,
    "chatter": chatter,
    "fork": fork,
    "spawn": spawn,
    "raise": fail,
    "sys_exit": sys.exit,
    "os_exit": os._exit,
    "kill": lambda signal: os.kill(os.getpid(), signal),
    "hang": hang,
}
