"""The cache of a model: what is answered from it, who shares a run, and who never gets whose answer."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import requests

from harness.archives import Store
from harness.client import SOCKET_SECONDS, later, request
from harness.gate import Gate
from harness.http2 import grpc_address
from harness.server import ASK_SECONDS, Server
from harness.triton_repository import ROWS, plus_one
from harness.wait import until
from test_grpc import FREE_PORTS
from test_named_keys import post, ready, row, write

RULE = {"ttl": "1h", "headers": ["x-lang"]}
HEADER = "x-jitney-cache"
JSON = {"Content-Type": "application/json"}
PREDICTIONS = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
SEQUENCES = "sequenceBatching: true\nsequenceMaxIdleMSec: 600000\nmaxNumSequence: 8\nmaxSequenceJobQueueSize: 4\n"


@pytest.fixture
def server(start: Callable[..., Server], store: Store) -> Server:
    """A model `m` that does as it is told and says which call of it an answer is from."""
    server = start("serve", store.mar("echo"), "--model-store", store.path, env=FREE_PORTS)
    server.register(store.mar("m", "orders"), cache=json.dumps(RULE))
    return server


def asked(server: Server, body: object, model: str = "m", **headers: str) -> tuple[int, str | None]:
    """Which call of the handler answered, and what the header says."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = server.predict(model, body, headers=named)
    assert answer.status_code == 200, answer.text
    return answer.json()["call"], answer.headers.get(HEADER)


def outcomes(server: Server, model: str = "m") -> dict[str, float]:
    return {name: server.metric("jitney_cache_total", model, outcome=name) for name in ("hit", "shared", "miss")}


def test_equal_requests_are_answered_from_the_cache(server: Server) -> None:
    assert asked(server, {"id": 1}) == (1, "miss")
    assert asked(server, {"id": 1}, x_other="1") == (1, "hit")
    assert asked(server, {"id": 2}) == (2, "miss")
    assert asked(server, {"id": 1}, x_lang="de") == (3, "miss")
    assert asked(server, {"id": 1}, x_lang="de") == (3, "hit")
    assert outcomes(server) == {"hit": 2, "shared": 0, "miss": 3}
    assert server.metric("jitney_requests_total", "m") == 3, "what is answered from the cache does not reach the model"
    assert server.metric("jitney_cache_bytes", "m") > 3 * 256


def test_a_hit_counts_as_an_answered_request_and_not_in_a_batch(start: Callable[..., Server], store: Store) -> None:
    server = start("serve", store.mar("echo"), "--model-store", store.path, "--access-log")
    server.register(store.mar("m", "orders"), cache=json.dumps(RULE))
    answered = server.total("Requests2XX")
    assert [asked(server, {"id": 1})[1] for _ in range(3)] == ["miss", "hit", "hit"]
    line = '"POST /predictions/m HTTP/1.1" 200'
    until(lambda: server.log.count(line) == 3, "each has its line in the access log")
    assert server.total("Requests2XX") == answered + 3 + 1, "and the page itself, when it was read before"
    assert server.metric("ts_inference_requests_total", "m") == 3
    counted = ("jitney_requests_total", "jitney_requests_answered_total", "jitney_batches_total", "jitney_items_total")
    assert [server.metric(name, "m") for name in counted] == [1, 1, 1, 1]


def test_a_client_can_ask_for_a_new_answer_and_that_none_is_kept(server: Server) -> None:
    assert asked(server, {"id": 1}) == (1, "miss")
    assert asked(server, {"id": 1}, cache_control="no-cache") == (2, "miss")
    assert asked(server, {"id": 1}) == (2, "hit")
    assert asked(server, {"id": 1}, cache_control="no-store") == (3, "miss")
    assert asked(server, {"id": 1}) == (2, "hit")


def test_failures_and_what_the_model_keeps_private_are_not_kept(server: Server) -> None:
    for order in ({"raise": "no"}, {"status": 404}, {"header": ["Cache-Control", "private"]}):
        first, second = (server.predict("m", order) for _ in range(2))
        assert first.status_code == second.status_code
        assert "hit" not in (first.headers.get(HEADER), second.headers.get(HEADER)), order
    assert outcomes(server)["hit"] == 0


def test_equal_requests_in_flight_share_one_run(server: Server, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    first = later(lambda: asked(server, gate.order))
    gate.wait()
    others = [later(lambda: asked(server, gate.order)) for _ in range(3)]
    until(lambda: server.metric("jitney_cache_waiting", "m") == 3, "the others wait for the first one's run")
    gate.open()
    assert first.result() == (1, "miss")
    assert [other.result() for other in others] == [(1, "shared")] * 3
    assert server.metric("jitney_requests_total", "m") == 1
    assert server.metric("jitney_cache_waiting", "m") == 0


def test_a_run_outlives_the_client_that_began_it(server: Server, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    body = json.dumps(gate.order).encode()
    with socket.create_connection(server.address, timeout=SOCKET_SECONDS) as first:
        first.sendall(request("/predictions/m", body, "Content-Type: application/json"))
        gate.wait()
        other = later(lambda: requests.post(server.url("/predictions/m"), data=body, headers=JSON, timeout=ASK_SECONDS))
        until(lambda: server.metric("jitney_cache_waiting", "m") == 1, "the other one waits")
        with socket.create_connection(server.address, timeout=SOCKET_SECONDS) as third:
            third.sendall(request("/predictions/m", body, "Content-Type: application/json"))
            until(lambda: server.metric("jitney_cache_waiting", "m") == 2, "a third one waits")
        until(lambda: server.metric("jitney_cache_waiting", "m") == 1, "the third one left alone")
    until(lambda: server.connections() == 1, "the first client is gone")
    gate.open()
    answer = other.result()
    assert (answer.json()["call"], answer.headers[HEADER]) == (1, "shared")
    assert server.metric("jitney_requests_total", "m") == 1
    assert server.metric("jitney_requests_cancelled_total", "m") == 0


def test_without_anybody_who_waits_a_run_is_cancelled(server: Server, tmp_path: Path) -> None:
    busy = Gate(tmp_path)
    held = later(lambda: asked(server, busy.order))
    busy.wait()
    with socket.create_connection(server.address, timeout=SOCKET_SECONDS) as first:
        first.sendall(request("/predictions/m", b'{"id": 1}', "Content-Type: application/json"))
        until(lambda: server.metric("jitney_waiting", "m") == 1, "it waits behind the other")
    until(lambda: server.metric("jitney_requests_cancelled_total", "m") == 1, "it is taken out")
    busy.open()
    held.result()
    assert asked(server, {"id": 1}) == (2, "miss")


def test_those_who_waited_for_a_run_that_failed_are_run_by_themselves(server: Server, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    order = {**gate.order, "raise": "no"}
    first = later(lambda: server.predict("m", order))
    gate.wait()
    other = later(lambda: server.predict("m", order))
    until(lambda: server.metric("jitney_cache_waiting", "m") == 1, "the other one waits")
    gate.open()
    assert {first.result().status_code, other.result().status_code} == {503}
    assert server.metric("jitney_requests_failed_total", "m") == 2


def test_who_waits_for_a_run_keeps_its_own_deadline(server: Server, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    first = later(lambda: asked(server, gate.order))
    gate.wait()
    late = server.predict("m", gate.order, headers={"x-jitney-timeout-ms": "50"})
    assert late.status_code == 408, late.text
    gate.open()
    assert first.result() == (1, "miss")


def test_a_model_that_was_loaded_again_does_not_answer_from_before(server: Server, store: Store) -> None:
    assert [asked(server, {"id": 1}) for _ in range(2)] == [(1, "miss"), (1, "hit")]
    assert server.manage("DELETE", "/models/m").status_code == 200
    server.register(store.mar("m", "orders"), cache=json.dumps(RULE))
    assert asked(server, {"id": 1})[1] == "miss"


def test_the_rule_is_changed_live_or_explained(server: Server) -> None:
    assert [asked(server, {"id": 1})[1] for _ in range(2)] == ["miss", "hit"]
    assert server.manage("PUT", "/models/m", cache='{"entries": 0}').status_code == 200
    assert asked(server, {"id": 1}) == (2, None)
    assert server.metric("jitney_cache_bytes", "m") == 0
    wrong = server.manage("PUT", "/models/m", cache='{"entrys": 5}')
    assert wrong.status_code == 400
    assert "unknown field `entrys`" in wrong.text
    assert server.manage("PUT", "/models/m", cache='{"entries": 1}').status_code == 200
    assert [asked(server, {"id": number})[1] for number in (1, 1, 2, 1)] == ["miss", "hit", "miss", "miss"]


def test_sequences_and_streams_are_never_kept(server: Server, store: Store) -> None:
    server.register(store.mar("stateful", "orders", config=SEQUENCES), cache=json.dumps(RULE))
    named = {"ts_request_sequence_id": "a"}
    calls = [server.predict("stateful", {"id": 1}, headers=named) for _ in range(2)]
    assert [call.headers.get(HEADER) for call in calls] == [None, None]
    server.register(store.mar("storyteller"), cache=json.dumps(RULE))
    stories = [server.predict("storyteller", {"pieces": ["a"], "gates": [""], "then": "b"}) for _ in range(2)]
    assert [story.headers[HEADER] for story in stories] == ["miss", "miss"], stories[0].text


def test_all_protocols_share_one_cache_with_their_like(server: Server) -> None:
    """A request over gRPC brings other parameters than one over REST, so each protocol has hits of its own."""
    server.manage("PUT", "/models/echo", cache="{}").raise_for_status()
    message = b"\x0a\x04echo\x1a\x09\x0a\x04data\x12\x01x"
    host, port = grpc_address(server)
    with grpc.insecure_channel(f"{host}:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        found = []
        for _ in range(2):
            _, call = channel.unary_unary(PREDICTIONS).with_call(message, timeout=ASK_SECONDS)
            found.append(dict(call.initial_metadata())[HEADER])
    assert found == ["miss", "hit"]
    tensors = {"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["x"]}]}
    for expected in ("miss", "hit"):
        before = outcomes(server, "echo")[expected]
        answer = requests.post(server.url("/v2/models/echo/infer"), json=tensors, timeout=ASK_SECONDS)
        assert answer.status_code == 200, answer.text
        assert outcomes(server, "echo")[expected] == before + 1


def test_keys_do_not_get_each_others_answers_unless_they_may(start: Callable[..., Server], store: Store) -> None:
    keys = {name: secrets.token_urlsafe(24) for name in ("ann", "ben", "limited")}
    scopes = ["predict", "manage", "metrics"]
    rate = {"rate": 0.001, "burst": 2}
    rows = [row(name, key, *scopes, **(rate if name == "limited" else {})) for name, key in keys.items()]
    file = write(store.path / "keys.yaml", *rows)
    models = store.path / "jitney.yaml"
    own, shared = store.mar("own", "orders"), store.mar("shared", "orders")
    models.write_text(
        f"models:\n  - {{path: {own}, cache: {{ttl: 1h}}}}\n  - {{path: {shared}, cache: {{ttl: 1h, shared: true}}}}\n"
    )
    server = start("serve", "--config", models, "--keys", file, wait_for_workers=False)
    ready(server, keys["ann"], "own", "shared")
    for model, expected in (("own", ["miss", "hit", "miss", "hit"]), ("shared", ["miss", "hit", "hit", "hit"])):
        clients = [keys[name] for name in ("ann", "ann", "ben", "ben")]
        answers = [post(server, f"/predictions/{model}", key, {"id": 1}) for key in clients]
        assert [answer.headers[HEADER] for answer in answers] == expected
    # An answer from the cache counts in the client's quota like any other.
    statuses = [post(server, "/predictions/shared", keys["limited"], {"id": 1}).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_triton_s_response_cache_turns_it_on(start: Callable[..., Server], tmp_path: Path) -> None:
    models = tmp_path / "models"
    plus_one(models, "rows", ROWS + "response_cache { enable: true }\n", "n")
    server = start("serve", models)
    tensors = {"inputs": [{"name": "x", "shape": [1, 2, 3], "datatype": "FP32", "data": [0, 1, 2, 3, 4, 5]}]}
    url = server.url("/v2/models/rows/infer")
    answers = [requests.post(url, json={"id": name, **tensors}, timeout=ASK_SECONDS) for name in "ab"]
    assert [answer.headers[HEADER] for answer in answers] == ["miss", "hit"]
    assert [answer.json()["id"] for answer in answers] == ["a", "b"], "the id is the request's own"
    assert answers[0].json()["outputs"] == answers[1].json()["outputs"]
