"""Worker processes from outside: killed, replaced, scaled, what they see, what they leave behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import requests

from harness.archives import Store
from harness.client import later, parse, raw, request, together
from harness.gate import Gate
from harness.processes import is_alive, marked
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until


def test_an_idle_worker_that_is_killed_is_replaced(shared: Server) -> None:
    model = shared.need("mortal", "orders")
    (worker, pid), *_ = shared.ready(model).items()
    os.kill(pid, signal.SIGKILL)
    until(lambda: shared.ready(model).get(worker, pid) != pid, "another process takes the place")
    assert shared.predict(model, {"id": 1}).json()["id"] == 1
    shared.logged("worker exit")


def test_a_request_under_way_survives_the_end_of_its_worker(shared: Server, tmp_path: Path) -> None:
    model, gate = shared.need("interrupted", "orders", batch_size=4, max_batch_delay=20_000), Gate(tmp_path)
    orders = [{"id": number} | gate.order for number in range(4)]
    held = later(lambda: together([lambda order=order: shared.predict(model, order) for order in orders]))
    gate.wait()
    os.kill(shared.ready(model).popitem()[1], signal.SIGKILL)
    gate.open()
    assert [reply.json()["id"] for reply in held.result()] == [0, 1, 2, 3]


def test_requests_that_arrive_while_the_worker_restarts_wait_for_it(shared: Server) -> None:
    model = shared.need("restarting", "orders")
    os.kill(shared.ready(model).popitem()[1], signal.SIGKILL)
    replies = together([lambda number=number: shared.predict(model, {"id": number}) for number in range(8)])
    assert [reply.json()["id"] for reply in replies] == list(range(8))


def test_workers_are_scaled_up_and_down_and_ids_never_come_back(shared: Server) -> None:
    model = shared.need("scaled", "echo")
    seen = set(shared.ready(model))
    for count in (3, 1, 2, 0, 1):
        reply = shared.manage("PUT", f"/models/{model}", min_worker=count, max_worker=count, synchronous="true")
        assert reply.status_code == 200, reply.text
        until(lambda count=count: len(shared.workers(model)) == count, f"{count} workers")
        now = set(shared.ready(model))
        new, kept = now - seen, now & seen
        assert all(int(worker) > max(map(int, seen)) for worker in new), (seen, now)
        assert len(kept) + len(new) == count
        seen |= now


def test_a_worker_that_leaves_finishes_its_batch(shared: Server, tmp_path: Path) -> None:
    model, gate = shared.need("leaver", "orders"), Gate(tmp_path)
    held = later(lambda: shared.predict(model, {"id": 1} | gate.order))
    gate.wait()
    assert shared.manage("PUT", f"/models/{model}", min_worker=0, max_worker=0).status_code == 202
    until(lambda: not shared.workers(model), "the worker is asked to leave")
    gate.open()
    assert held.result().json()["id"] == 1


def test_unregistering_answers_what_was_admitted(shared: Server, tmp_path: Path) -> None:
    model, gate = shared.need("parting", "orders"), Gate(tmp_path)
    held = later(lambda: shared.predict(model, {"id": 1} | gate.order))
    gate.wait()
    queued = later(lambda: shared.predict(model, {"id": 2}))
    until(lambda: shared.metric("jitney_waiting", model) == 1, "a request waits")
    pid = shared.ready(model).popitem()[1]
    gone = later(lambda: shared.manage("DELETE", f"/models/{model}"))
    until(lambda: shared.manage("GET", f"/models/{model}").status_code == 404, "new requests do not find it")
    assert shared.predict(model, {}).status_code == 404
    gate.open()
    assert [held.result().json()["id"], queued.result().json()["id"]] == [1, 2]
    assert gone.result().status_code == 200
    until(lambda: not is_alive(pid), "its process is gone")


def test_unregistering_a_hanging_model_ends_it_by_force(start, store: Store, tmp_path: Path) -> None:
    store.mar("orders")
    config = tmp_path / "config.properties"
    config.write_text(
        FREE_ADDRESSES + "unregister_model_timeout=1\ndefault_workers_per_model=1\nenable_model_api=true\n"
    )
    flags = ("--ts-config", config, "--model-store", store.path, "--models", "orders.mar", "--dt")
    server, gate = start("torchserve", "--start", "--foreground", *flags), Gate(tmp_path)
    hanging = later(lambda: server.predict("orders", gate.order))
    gate.wait()
    pid = server.ready("orders").popitem()[1]
    reply = server.manage("DELETE", "/models/orders")
    assert reply.status_code in (200, 408)
    assert hanging.result().status_code >= 500
    until(lambda: not is_alive(pid), "the hanging process is gone")


def test_a_scale_up_that_fails_to_load_is_reported(shared: Server) -> None:
    archive = shared.store.mar("late_failure", source="raise RuntimeError('never loads')")
    shared.register(archive, workers=0)
    reply = shared.manage("PUT", "/models/late_failure", min_worker=1, synchronous="true")
    assert reply.status_code == 500
    words = "Failed to start workers for model late_failure version: null: RuntimeError: never loads"
    assert reply.json()["message"] == words
    shared.manage("DELETE", "/models/late_failure")


def test_torchserves_log_tells_a_recovery_in_its_words(start, store: Store, tmp_path: Path) -> None:
    """Alarms and tests of TorchServe's users look for these lines; others do not see them."""
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + "default_workers_per_model=1\nenable_model_api=true\n")
    store.mar("orders")
    flags = ("--ts-config", config, "--model-store", store.path, "--models", "orders.mar", "--dt", "--ncs")
    server = start("torchserve", "--start", "--foreground", *flags)
    os.kill(server.ready("orders").popitem()[1], signal.SIGKILL)
    server.logged("Auto recovery succeeded, reset recoveryStartTS")
    for words in ("Worker disconnected.", "Auto recovery start timestamp", "Retry worker: "):
        server.logged(words)
    archive = store.mar("sleepy", source="import time\ntime.sleep(600)")
    query = {"url": archive.name, "initial_workers": 1, "startup_timeout": 1, "synchronous": "false"}
    assert server.manage("POST", "/models", **query).status_code == 202
    server.logged("Backend worker error")
    server.logged("org.pytorch.serve.wlm.WorkerInitializationException: Backend worker did not respond in given time")
    server.logged("Auto recovery failed again")
    assert server.manage("DELETE", "/models/sleepy").status_code == 200


def test_a_model_that_never_loads_can_be_unregistered(shared: Server) -> None:
    """Registered without waiting, it is tried again and again in the background until it is unregistered."""
    archive = shared.store.mar("hopeless", source="raise RuntimeError('never loads')")
    assert shared.manage("POST", "/models", url=archive.name, initial_workers=1, synchronous="false").status_code == 202
    shared.logged("of hopeless could not load: RuntimeError: never loads (trying again in 1 s; traceback above)")
    assert shared.manage("DELETE", "/models/hopeless").status_code == 200
    assert shared.manage("GET", "/models/hopeless").status_code == 404


def test_a_registration_that_waited_shows_its_workers_ready(shared: Server) -> None:
    """Whoever was told "registered with 1 initial workers" may look at once and must see that worker.

    The two questions are pipelined, so that the second one is answered right behind the first.
    """
    archive = shared.store.mar("prompt", "function")
    host, _, port = shared.urls["management"].removeprefix("http://").rpartition(":")
    for number in range(20):
        query = f"url={archive.name}&model_name=prompt{number}&initial_workers=1"
        questions = request(f"/models?{query}") + request(
            f"/models/prompt{number}", b"", "Connection: close", method="GET"
        )
        registered, described = parse(raw((host, int(port)), questions))
        assert registered.status_code == 200
        assert [worker["status"] for worker in described.json()[0]["workers"]] == ["READY"], f"registration {number}"
        shared.manage("DELETE", f"/models/prompt{number}")


def test_a_registration_that_is_cut_short_claims_no_success(shared: Server) -> None:
    archive = shared.store.mar("cut_short", source="import time\ntime.sleep(600)\n")
    registering = later(lambda: shared.manage("POST", "/models", url=archive.name, initial_workers=1))
    until(lambda: shared.manage("GET", "/models/cut_short").status_code == 200, "the registration is under way")
    assert shared.manage("DELETE", "/models/cut_short").status_code == 200
    assert registering.result().status_code != 200, registering.result().text


def test_of_two_registrations_at_once_one_wins(shared: Server) -> None:
    archive = shared.store.mar("contested", "echo")
    replies = together([lambda: shared.manage("POST", "/models", url=archive.name, initial_workers=1)] * 4)
    assert sorted(reply.status_code for reply in replies) == [200, 409, 409, 409]
    assert shared.predict("contested", b"x").content == b"x"
    assert len(shared.workers("contested")) == 1


def test_workers_see_neither_tokens_nor_secrets(start, store: Store) -> None:
    secrets = {"JITNEY_MANAGEMENT_TOKEN": "hush-management", "JITNEY_API_TOKEN": "hush-api"}
    server = start("serve", store.mar("surroundings"), env={**secrets, "HARMLESS": "visible"})
    seen = server.predict("surroundings", b"").json()
    for environment in (seen["environment"], json.loads(seen["child"])):
        assert environment["HARMLESS"] == "visible"
        assert not [name for name in environment if "TOKEN" in name or name.startswith("JITNEY_WORKER")]
        assert not [value for value in environment.values() if value.startswith("hush-")]
    assert not [argument for argument in seen["arguments"] if "hush" in argument]


def test_workers_divide_the_processors_anew_when_their_number_changes(shared: Server) -> None:
    model, cores, given = (
        shared.need("sharers", "surroundings"),
        len(os.sched_getaffinity(0)),
        os.environ.get("OMP_NUM_THREADS"),
    )
    for count in (1, 2, 1, 0, 2):  # Those that run follow, and those that start.
        reply = shared.manage("PUT", f"/models/{model}", min_worker=count, max_worker=count, synchronous="true")
        assert reply.status_code == 200
        if count:
            share = shared.predict(model, b"").json()["environment"]["OMP_NUM_THREADS"]
            assert share == (given or str(max(1, cores // count)))


def test_blacklisted_variables_stay_with_the_server(start, store: Store, tmp_path: Path) -> None:
    store.mar("surroundings")
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + "blacklist_env_vars=SECRET_.*\n")
    server = start(
        "torchserve", "--start", "--foreground", "--ncs", "--ts-config", config, "--model-store", store.path,
        "--models", "surroundings.mar", "--disable-token-auth", env={"SECRET_KEY": "hush", "MY_SECRET_KEY": "seen"},
    )  # fmt: skip
    environment = server.predict("surroundings", b"").json()["environment"]
    assert "SECRET_KEY" not in environment and environment["MY_SECRET_KEY"] == "seen"


def test_what_a_handler_prints_is_in_the_log_under_the_models_name(shared: Server) -> None:
    model = shared.need("talkative", "orders")
    worker = next(iter(shared.ready(model)))
    for stream in ("stdout", "stderr"):
        shared.predict(model, {"say": [stream, f"a word to {stream} äöü"]})
        shared.logged(f"{model} w{worker} | a word to {stream} äöü")


def test_torchserves_log_names_model_worker_and_stream(start, store: Store, tmp_path: Path) -> None:
    store.mar("orders")
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + "default_workers_per_model=1\n")
    flags = ("--ts-config", config, "--model-store", store.path, "--models", "orders.mar", "--dt")
    server = start("torchserve", "--start", "--foreground", *flags)
    server.predict("orders", {"say": ["stdout", "out loud"]})
    server.predict("orders", {"say": ["stderr", "complaint"]})
    model_log = server.home / "logs" / "model_log.log"
    until(
        lambda: "W-9000-orders_1.0-stdout MODEL_LOG - out loud" in model_log.read_text(), "stdout is in model_log.log"
    )
    until(
        lambda: "W-9000-orders_1.0-stderr MODEL_LOG - complaint" in model_log.read_text(), "stderr is in model_log.log"
    )


def test_workers_end_by_themselves_when_the_server_is_killed(start, store: Store, tmp_path: Path) -> None:
    server = start("serve", store.mar("orders"), "--workers", "3")
    pids = [pid for pid in marked(server.mark) if pid != server.pid]
    assert len(pids) == 3
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    until(lambda: not any(map(is_alive, pids)), "the workers notice that the server is gone")


def test_a_busy_worker_ends_after_its_batch_when_the_server_is_killed(start, store: Store, tmp_path: Path) -> None:
    server, gate = start("serve", store.mar("orders")), Gate(tmp_path)
    held = later(lambda: server.predict("orders", gate.order))
    gate.wait()
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    gate.open()
    assert held.exception() is not None
    until(lambda: not marked(server.mark), "the worker notices")


def test_a_missing_interpreter_is_reported_and_harms_no_other_model(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--python", "/no/such/python", wait_for_workers=False)
    server.logged("/no/such/python")
    assert server.predict("echo", b"", headers={"x-jitney-timeout-ms": "300"}).status_code in (408, 503)


def test_a_worker_that_does_not_come_back_is_given_up_and_can_be_called_again(
    start, store: Store, tmp_path: Path
) -> None:
    """After the retry window the model is unhealthy and rejects; scaling starts afresh under a new id."""
    obstacle = tmp_path / "obstacle"
    archive = store.mar("fickle", config="maxRetryTimeoutInSec: 1\n")
    server = start("serve", archive, env={"OBSTACLE": str(obstacle)})
    (worker, pid), *_ = server.ready("fickle").items()
    obstacle.touch()
    os.kill(pid, signal.SIGKILL)
    server.logged("of fickle is given up")
    assert requests.get(server.url("/ping"), timeout=120).status_code == 500
    assert 'Model "fickle" has no worker: loading failed with ' in server.predict("fickle", b"").json()["message"]
    obstacle.unlink()
    assert server.manage("PUT", "/models/fickle", min_worker=1, synchronous="true").status_code == 200
    assert int(next(iter(until(lambda: server.ready("fickle"), "it is back")))) > int(worker)
    assert requests.get(server.url("/ping"), timeout=120).status_code == 200
    assert server.predict("fickle", b"").status_code == 200


SLACK = """
def handle(data, context):
    return [open("/proc/self/timerslack_ns").read() for _ in data or []]
"""


def test_workers_are_woken_when_they_asked_to_be(shared: Server) -> None:
    shared.register(shared.store.mar("punctual", source=SLACK))
    assert shared.predict("punctual").text.strip() == "1000"


def test_each_worker_has_its_own_process_and_all_of_them_work(shared: Server) -> None:
    model = shared.need("crew", "orders", workers=3)
    replies = together([lambda: shared.predict(model, {"sleep": 0.05}) for _ in range(12)])
    assert {reply.json()["pid"] for reply in replies} == set(shared.ready(model).values())
