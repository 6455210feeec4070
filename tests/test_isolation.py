"""Handlers that misbehave: only their own request fails, in the documented words, and the neighbours are answered."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path

import pytest
import requests

from harness.client import later, together
from harness.gate import Gate
from harness.processes import marked, open_files, resident_bytes
from harness.server import Server
from harness.shape import assert_problem
from harness.wait import until

HANDLER_FAULT = "InternalServerException"


@pytest.fixture(autouse=True)
def others_unaffected(shared: Server):
    """Whatever a model does, the next one answers and the server stays up."""
    yield
    assert shared.predict("echo", b"unaffected").content == b"unaffected"


def send_together(server: Server, model: str, orders: list[dict]) -> list[requests.Response]:
    """Sends the orders so that they fill one batch: the model's size is their number."""
    return together([lambda order=order: server.predict(model, order) for order in orders])


# -- one bad item in a batch -------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 5, 8])
def test_an_exception_on_one_item_fails_that_item_alone(shared: Server, size: int) -> None:
    model = shared.need(f"raises_{size}", "orders", batch_size=size, max_batch_delay=600_000)
    bad = size // 2
    orders = [{"id": number} | ({"raise": "poison"} if number == bad else {}) for number in range(size)]
    replies = send_together(shared, model, orders)
    assert_problem(replies[bad], 503, HANDLER_FAULT, "Prediction failed")
    good = [reply.json()["id"] for number, reply in enumerate(replies) if number != bad]
    assert good == [number for number in range(size) if number != bad]
    shared.logged("ValueError: poison")


def test_two_bad_items_fail_and_the_rest_is_answered(shared: Server) -> None:
    model = shared.need("raises_twice", "orders", batch_size=8, max_batch_delay=600_000)
    orders = [{"id": number} | ({"raise": "poison"} if number in (1, 6) else {}) for number in range(8)]
    statuses = [reply.status_code for reply in send_together(shared, model, orders)]
    assert statuses == [200, 503, 200, 200, 200, 200, 503, 200]


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ("few", "number of batch response mismatched"),
        ("many", "number of batch response mismatched"),
        ("nothing", "Invalid model predict output"),
        ("text", "Invalid model predict output"),
        ("mapping", "Invalid model predict output"),
    ],
)
def test_a_wrong_output_reaches_no_client(shared: Server, lie: str, message: str) -> None:
    """Whoever is alone with the order to lie gets the error; those in its batch are answered their own."""
    model = shared.need(f"lies_{lie}", "orders", batch_size=4, max_batch_delay=600_000)
    orders = [{"id": number} | ({"return": lie} if number == 2 else {}) for number in range(4)]
    replies = send_together(shared, model, orders)
    assert_problem(replies[2], 503, HANDLER_FAULT, message)
    assert [reply.json()["id"] for number, reply in enumerate(replies) if number != 2] == [0, 1, 3]


def test_an_answer_that_cannot_be_written_fails_its_item_alone(shared: Server) -> None:
    model = shared.need("unwritable", "orders", batch_size=3, max_batch_delay=600_000)
    replies = send_together(shared, model, [{"id": 0}, {"answer": "object"}, {"id": 2}])
    assert_problem(replies[1], 503, HANDLER_FAULT, "Unsupported model output data type.")
    assert [replies[0].json()["id"], replies[2].json()["id"]] == [0, 2]


# -- the end of a worker -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "order", [{"sys_exit": 3}, {"os_exit": 4}, {"kill": 11}], ids=["sys.exit", "os._exit", "a crash"]
)
def test_a_poisonous_request_among_four_costs_three_processes_and_its_neighbours_nothing(
    shared: Server, order: dict
) -> None:
    model = shared.need(f"poison_{next(iter(order))}", "orders", workers=2, batch_size=4, max_batch_delay=600_000)
    orders = [{"id": number} for number in range(3)] + [order]
    replies = send_together(shared, model, orders)
    assert [reply.json()["id"] for reply in replies[:3]] == [0, 1, 2]
    assert_problem(replies[3], 500, HANDLER_FAULT, "The worker ended while it ran the request (")
    until(lambda: len(shared.ready(model)) == 2, "both workers are back")
    until(lambda: len(worker_exits(shared, model)) >= 3, "the worker_exits are in the log")
    assert len(worker_exits(shared, model)) == 3


def worker_exits(server: Server, model: str) -> list[str]:
    """What the log says of dead workers; a line takes a moment to the file."""
    return [
        line for line in server.stderr.splitlines() if "worker exit" in line and f"model={model} version=1.0" in line
    ]


def test_a_worker_that_was_killed_for_memory_says_so(shared: Server) -> None:
    model = shared.need("killed", "orders")
    assert_problem(shared.predict(model, {"kill": 9}), 507, HANDLER_FAULT, "killed by signal 9")


def test_a_hanging_handler_is_replaced_after_the_response_timeout(shared: Server) -> None:
    model = shared.need("hangs", "orders", response_timeout=1)
    before = shared.ready(model)
    reply = shared.predict(model, {"hang": True})
    words = "The batch ran longer than response_timeout (1 s) and its worker was restarted."
    assert_problem(reply, 500, HANDLER_FAULT, words)
    assert reply.elapsed.total_seconds() >= 1
    assert shared.predict(model, {"id": 1}).json()["pid"] not in before.values()
    shared.logged("worker exit: ran longer than response_timeout (1 s)")


def test_the_neighbours_of_a_hanging_request_are_answered(shared: Server) -> None:
    model = shared.need("hangs_among", "orders", workers=2, batch_size=3, max_batch_delay=600_000, response_timeout=3)
    replies = send_together(shared, model, [{"id": 0}, {"hang": True}, {"id": 2}])
    assert [replies[0].json()["id"], replies[2].json()["id"]] == [0, 2]
    assert_problem(replies[1], 500, HANDLER_FAULT, "response_timeout (3 s)")


@pytest.mark.parametrize("leave", ["fork", "spawn"])
def test_a_child_left_behind_does_not_hide_a_workers_exit(shared: Server, tmp_path: Path, leave: str) -> None:
    """A forked child that holds on to everything it inherited must not keep the dead worker's caller waiting."""
    model = shared.need(f"leaves_{leave}", "orders")
    gate = Gate(tmp_path)
    reply = shared.predict(model, {leave: str(gate.opened), "os_exit": 1})  # The child lives until the gate opens.
    assert_problem(reply, 500, HANDLER_FAULT, "(exit status 1)")
    gate.open()
    assert shared.predict(model, {"id": 1}).json()["id"] == 1


# -- load --------------------------------------------------------------------------------------


BAD_CLASS = """
class Handler:
    def initialize(self, context):
        raise ValueError('no weights')
    def handle(self, data, context):
        return data
"""

LOAD_FAILURES = {
    "raises": "raise RuntimeError('no weights')",
    "raises_in_initialize": BAD_CLASS,
    "syntax_error": "def handle(data, context) return data",
    "import_error": "import a_module_that_nobody_has",
    "no_entry": "VALUE = 1",
    "exits": "import sys; sys.exit(5)",
    "dies": "import os; os._exit(6)",
    "out_of_memory": "raise MemoryError()",
}

LOAD_WORDS = {
    "raises": "no weights",
    "raises_in_initialize": "no weights",
    "syntax_error": "SyntaxError",
    "import_error": "ModuleNotFoundError: No module named 'a_module_that_nobody_has'",
    "exits": "exit status 5",
    "dies": "exit status 6",
    "out_of_memory": "MemoryError",
}


@pytest.mark.parametrize("name", LOAD_FAILURES)
def test_a_handler_that_does_not_load_is_reported_and_leaves_its_name_free(shared: Server, name: str) -> None:
    archive = shared.store.mar(f"load_{name}", source=LOAD_FAILURES[name])
    status = 507 if name == "out_of_memory" else 500
    for _ in range(2):
        reply = shared.manage("POST", "/models", url=archive.name, initial_workers=1)
        words = f"Failed to start workers for model load_{name} version: 1.0: "
        assert_problem(reply, status, HANDLER_FAULT, words, LOAD_WORDS.get(name, ""))
    assert shared.manage("GET", f"/models/load_{name}").status_code == 404
    shared.logged(LOAD_WORDS.get(name, f"load_{name}"))


def test_a_handler_that_hangs_at_load_is_given_up_after_the_start_up_timeout(shared: Server) -> None:
    archive = shared.store.mar("load_hangs", source="import time\ntime.sleep(600)\n")
    reply = shared.manage("POST", "/models", url=archive.name, initial_workers=1, startup_timeout=1)
    words = "Failed to start workers for model load_hangs version: 1.0: did not load within 1 s"
    assert_problem(reply, 500, HANDLER_FAULT, words)
    until(lambda: len(marked(shared.mark)) == 1 + worker_count(shared), "the hanging process is gone")


def worker_count(server: Server) -> int:
    """Workers that the server speaks of, over all models."""
    names = [model["modelName"] for model in server.manage("GET", "/models").json()["models"]]
    return sum(len(server.workers(name)) for name in names)


# -- noise -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_handler_that_prints_megabytes_disturbs_no_other_request(shared: Server, stream: str) -> None:
    model = shared.need(f"prints_{stream}", "orders")
    shared.predict(model, {})
    before = resident_bytes(shared.pid)
    noisy = later(lambda: shared.predict(model, {"chatter": [stream, 16, 200]}))
    while not noisy.done():
        assert shared.predict("echo", b"x").status_code == 200
    assert noisy.result().status_code == 200
    assert resident_bytes(shared.pid) - before < 12 << 20


def test_a_line_without_an_end_is_cut(shared: Server) -> None:
    model = shared.need("endless_line", "orders")
    before = resident_bytes(shared.pid)
    assert shared.predict(model, {"chatter": ["stdout", 32, 32 << 20]}).status_code == 200
    assert resident_bytes(shared.pid) - before < 100 << 20


def test_failures_leak_no_descriptors(shared: Server) -> None:
    model = shared.need("leaks", "orders")
    shared.predict(model, {})
    before = open_files(shared.pid)
    for _ in range(3):
        shared.predict(model, {"raise": "x"})
        shared.predict(model, {"os_exit": 1})
        shared.predict(model, {})
    until(lambda: open_files(shared.pid) <= before + 4, "descriptors are given back")


# -- no request gets another's row -----------------------------------------------------------------


TURNS = 16
FAULTS = [{}, {"raise": "x"}, {"return": "few"}, {"return": "many"}, {"os_exit": 1}]


def test_under_random_failures_every_answer_is_ones_own(shared: Server) -> None:
    """32 clients, unique bodies; some requests raise, some lie about the batch, a few kill their worker."""
    config = "jobQueueSize: 1000\nbatchSize: 8\nmaxBatchDelay: 5\nminWorkers: 2\nmaxWorkers: 2\n"
    model = shared.need("mixed", "orders", config=config)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []

    def client(number: int) -> None:
        dice = random.Random(number)
        connection = HTTPConnection(*shared.address, timeout=120)
        for turn in range(TURNS):
            key = f"{number}-{turn}"
            fault = dice.choices(FAULTS, [937, 33, 12, 12, 6])[0]
            order = json.dumps({"id": key} | fault)
            connection.request("POST", f"/predictions/{model}", order, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            body = json.loads(reply.read())
            outcomes[f"{reply.status}{' expected' if fault else ''}"] += 1
            if reply.status == 200 and body["id"] != key:
                wrong.append(f"{key} got {body}")
            if not fault and reply.status != 200:
                wrong.append(f"{key} is innocent and got {reply.status} {body}")
            if fault and reply.status == 200:
                wrong.append(f"{key} asked for a failure and got {body}")
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, (outcomes, wrong[:10])
    assert sum(outcomes.values()) == 32 * TURNS


def test_one_models_trouble_is_not_anothers(shared: Server, tmp_path: Path) -> None:
    """While one model's only worker is held, the others answer."""
    model, gate = shared.need("held", "orders"), Gate(tmp_path)
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    for _ in range(5):
        assert shared.predict("echo", b"x").content == b"x"
    gate.open()
    assert held.result().status_code == 200
