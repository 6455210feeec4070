"""Ids and traces: `x-request-id` and `traceparent` from the client to the handler, the log and a collector that
speaks OpenTelemetry's own messages."""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import requests

from harness.archives import Store
from harness.client import together
from harness.collector import Collector, facts, failed, inside
from harness.package import jitney
from harness.server import ASK_SECONDS, FREE_ADDRESSES, Server
from harness.wait import until
from test_grpc import INFERENCE, Stub, address

HANDLER = """
NAMES = ["traceparent", "tracestate", "x-request-id"]

def handle(data, context):
    return [answer(row, index, context) for index, row in enumerate(data or [])]

def answer(row, index, context):
    if "fail" in (row.get("body") or {}):
        raise ValueError("as told")
    headers = {name: context.get_request_header(index, name) for name in NAMES}
    return {"id": context.get_request_id(index), "size": len(context.request_ids), **headers}
"""
SERVER_KIND, INTERNAL_KIND = 2, 1


def new_trace() -> tuple[str, str]:
    """The ids of a trace and of the client's span in it."""
    return secrets.token_hex(16), secrets.token_hex(8)


def parent_of(trace: str, span: str, flags: str = "01") -> dict[str, str]:
    """The header that names them."""
    return {"traceparent": f"00-{trace}-{span}-{flags}"}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """A collector for all tests of this file."""
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Server]:
    """A server that sends its traces there."""
    home = tmp_path_factory.mktemp("traces")
    store = Store(home / "store")
    config = "batchSize: 3\nmaxBatchDelay: 600000\n"
    models = [store.mar("teller", source=HANDLER), store.mar("trio", source=HANDLER, config=config)]
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20secret",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "OTEL_RESOURCE_ATTRIBUTES": "team=shop",
    }
    arguments = ["serve", *models, "--access-log", "--service-name", "till", "--model-store", store.path]
    arguments += ["--jobs-dir", home / "jobs"]
    server = Server(binary, home / "server", arguments, store=store, env=env)
    yield server.started()
    server.end()


# -- ids ---------------------------------------------------------------------------------------


def test_a_clients_id_goes_to_the_handler_the_answer_and_the_access_log(server: Server) -> None:
    own = f"order/{secrets.token_hex(4)}"
    reply = server.predict("teller", {}, headers={"x-request-id": own})
    assert (reply.headers["x-request-id"], reply.json()["id"], reply.json()["x-request-id"]) == (own, own, own)
    server.logged('"POST /predictions/teller HTTP/1.1" 200')
    server.logged(f" request_id={own} trace_id=")


@pytest.mark.parametrize("sent", [None, "", "two words", "x" * 129])
def test_without_a_usable_id_a_request_gets_one(server: Server, sent: str | None) -> None:
    reply = server.predict("teller", {}, headers={} if sent is None else {"x-request-id": sent})
    assert re.fullmatch(r"[0-9a-f-]{36}", reply.headers["x-request-id"])
    assert reply.json()["id"] == reply.headers["x-request-id"]


def test_errors_and_tracebacks_name_the_request(server: Server) -> None:
    own = f"bad-{secrets.token_hex(4)}"
    reply = server.predict("teller", {"fail": 1}, headers={"x-request-id": own})
    assert (reply.status_code, reply.headers["x-request-id"], reply.json()["requestId"]) == (503, own, own)
    server.logged(f"the handler failed on request {own}")
    until(lambda: [line for line in server.log.splitlines() if "batch failed" in line and own in line], "a line")
    unknown = server.predict("nobody", {}, headers={"x-request-id": own})
    assert (unknown.status_code, unknown.json()["requestId"]) == (404, own)


def test_open_inference_errors_keep_their_form(server: Server) -> None:
    reply = requests.post(server.url("/v2/models/nobody/infer"), json={"inputs": []}, headers={"x-request-id": "a"})
    assert reply.headers["x-request-id"] == "a"
    assert "requestId" not in reply.json()


def test_grpc_metadata_has_ids_and_traces_too(server: Server, collector: Collector) -> None:
    trace, span = new_trace()
    metadata = [("x-request-id", "over-grpc"), *parent_of(trace, span).items()]
    with grpc.insecure_channel(address(server, "inference"), options=[("grpc.enable_http_proxy", 0)]) as channel:
        answer, _ = Stub(channel, INFERENCE)(
            "Predictions", metadata=metadata, model_name="teller", input={"data": b"{}"}
        )
    seen = json.loads(answer.prediction)
    assert seen["id"] == "over-grpc"
    server.logged('InferenceAPIsService/Predictions HTTP/2.0" 0')
    server.logged(" request_id=over-grpc")
    spans = collector.trace(trace, f"{INFERENCE}/Predictions", "queue", "compute")
    call = spans[f"{INFERENCE}/Predictions"]
    assert (call.parent_span_id.hex(), facts(call)["rpc.grpc.status_code"]) == (span, 0)
    assert seen["traceparent"] == f"00-{trace}-{spans['compute'].span_id.hex()}-01"


def test_a_handle_brings_headers_of_its_own(server: Server, collector: Collector) -> None:
    trace, span = new_trace()
    headers = {"x-request-id": "over-a-handle", **parent_of(trace, span)}
    with jitney.connect(server.urls["inference"]) as session:
        handle = session.model("teller", encoding="json").options(headers=headers)
        seen = json.loads(handle.remote({}).result(ASK_SECONDS))
    assert (seen["id"], seen["x-request-id"]) == ("over-a-handle", "over-a-handle")
    server.logged(" request_id=over-a-handle")
    spans = collector.trace(trace, "PYTHON /{model}/{endpoint}", "queue", "compute")
    assert spans["PYTHON /{model}/{endpoint}"].parent_span_id.hex() == span
    assert seen["traceparent"] == f"00-{trace}-{spans['compute'].span_id.hex()}-01"


# -- spans -------------------------------------------------------------------------------------


def test_a_request_is_a_span_with_its_time_in_queue_and_batch(server: Server, collector: Collector) -> None:
    trace, client = new_trace()
    headers = parent_of(trace, client) | {"tracestate": "vendor=1", "x-request-id": "traced"}
    seen = server.predict("teller", {}, headers=headers).json()
    spans = collector.trace(trace, "POST /predictions/{model}", "queue", "compute")
    request, queue, compute = (spans[name] for name in ("POST /predictions/{model}", "queue", "compute"))
    assert (request.parent_span_id.hex(), request.kind, request.trace_state) == (client, SERVER_KIND, "vendor=1")
    told = facts(request)
    assert told["http.route"] == "/predictions/{model}"
    assert told["http.response.status_code"] == 200
    assert (told["jitney.model.name"], told["jitney.model.version"]) == ("teller", "1.0")
    assert told["jitney.request.id"] == "traced"
    assert not any(map(failed, (request, queue, compute)))
    for part in (queue, compute):
        assert part.parent_span_id == request.span_id and part.kind == INTERNAL_KIND
        assert inside(part, request)
    assert queue.end_time_unix_nano == compute.start_time_unix_nano
    assert seen["traceparent"] == f"00-{trace}-{compute.span_id.hex()}-01"
    assert seen["tracestate"] == "vendor=1"


def test_a_job_runs_in_the_trace_of_the_request_that_submitted_it(server: Server, collector: Collector) -> None:
    trace, client = new_trace()
    headers = parent_of(trace, client) | {"Prefer": "respond-async"}
    assert server.predict("teller", {}, headers=headers).status_code == 202
    name = "POST /predictions/{model}"
    asked = collector.wait("the request", lambda span: span.parent_span_id.hex() == client and span.name == name)
    run = collector.wait("the job", lambda span: span.parent_span_id == asked.span_id and span.name == name)
    assert (run.trace_id.hex(), asked.trace_id.hex()) == (trace, trace)
    statuses = [facts(span)["http.response.status_code"] for span in (asked, run)]
    assert statuses == [202, 200]
    compute = collector.trace(trace, "compute")["compute"]
    assert compute.parent_span_id == run.span_id


def test_a_batch_is_linked_to_its_requests_and_they_to_it(server: Server, collector: Collector) -> None:
    traces = [new_trace() for _ in range(3)]
    calls = [lambda trace=trace: server.predict("trio", {}, headers=parent_of(*trace)) for trace in traces]
    assert {reply.json()["size"] for reply in together(calls)} == {3}
    found = [collector.trace(trace, "POST /predictions/{model}", "compute") for trace, _ in traces]
    requests_of = {spans["POST /predictions/{model}"].span_id for spans in found}
    batch = collector.wait("the batch", lambda span: {link.span_id for link in span.links} == requests_of)
    assert {link.trace_id.hex() for link in batch.links} == {trace for trace, _ in traces}
    told = facts(batch)
    assert (batch.name, told["jitney.batch.size"], told["jitney.batch.items"]) == ("batch", 3, 3)
    assert (told["jitney.batch.reason"], told["jitney.batch.attempt"]) == ("full", 1)
    worker = collector.trace(batch.trace_id.hex(), "batch", "worker")["worker"]
    assert worker.parent_span_id == batch.span_id and inside(worker, batch)
    assert facts(worker)["jitney.worker.id"] == told["jitney.worker.id"]
    for spans in found:
        assert [link.span_id for link in spans["compute"].links] == [batch.span_id]


def test_failed_and_rejected_requests_are_errors(server: Server, collector: Collector) -> None:
    trace, client = new_trace()
    server.predict("teller", {"fail": 1}, headers=parent_of(trace, client))
    spans = collector.trace(trace, "POST /predictions/{model}", "queue", "compute")
    assert failed(spans["POST /predictions/{model}"]) and failed(spans["compute"]) and not failed(spans["queue"])
    batch = collector.wait("the failed batch", lambda span: trace in {link.trace_id.hex() for link in span.links})
    assert failed(batch)
    trace, client = new_trace()
    late = parent_of(trace, client) | {"x-jitney-timeout-ms": "1"}
    assert server.predict("trio", {}, headers=late).status_code >= 400
    spans = collector.trace(trace, "POST /predictions/{model}", "queue")
    assert failed(spans["POST /predictions/{model}"]) and failed(spans["queue"])
    assert facts(spans["POST /predictions/{model}"])["jitney.rejection.reason"] in ("expired", "hopeless")


def test_a_client_that_records_nothing_is_not_traced(server: Server, collector: Collector) -> None:
    trace, client = new_trace()
    header = parent_of(trace, client, "00")
    assert server.predict("teller", {}, headers=header).json()["traceparent"] == header["traceparent"]
    after, client = new_trace()
    server.predict("teller", {}, headers=parent_of(after, client))
    collector.trace(after, "POST /predictions/{model}")
    assert collector.spans(trace) == []


def test_what_is_no_traceparent_begins_a_new_trace(server: Server, collector: Collector) -> None:
    trace, client = new_trace()
    broken = {"traceparent": f"00-{trace.upper()}-{client}-01", "tracestate": "vendor=1"}
    seen = server.predict("teller", {}, headers=broken).json()
    new = seen["traceparent"].split("-")[1]
    assert new != trace and seen["tracestate"] is None
    request = collector.trace(new, "POST /predictions/{model}")["POST /predictions/{model}"]
    assert (request.parent_span_id, request.trace_state) == (b"", "")


def test_the_collector_learns_who_sends(server: Server, collector: Collector) -> None:
    server.predict("teller", {})
    until(lambda: collector.requests, "a message")
    pairs = {pair.key: pair.value.string_value for pair in collector.requests[0].resource_spans[0].resource.attributes}
    assert (pairs["service.name"], pairs["team"]) == ("till", "shop")
    assert (collector.headers[0]["x-key"], collector.headers[0]["content-encoding"]) == ("a secret", "gzip")


# -- the collector's absence, and the end -------------------------------------------------------


def test_a_collector_that_is_away_costs_one_line(start: Callable[..., Server], store: Store) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Nobody listens there.
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        env = {"OTEL_BSP_SCHEDULE_DELAY": "1"}
        server = start("serve", store.mar("teller", source=HANDLER), "--otlp-endpoint", url, env=env)
        for _ in range(20):
            assert server.predict("teller", {}).status_code == 200
        server.logged("spans cannot be sent")
        server.terminate()
        assert server.wait() == 0
        assert server.log.count("spans cannot be sent") == 1


def test_torchserves_dialect_is_traced_to_the_end_and_keeps_its_ids_and_lines(
    start: Callable[..., Server], store: Store, collector: Collector
) -> None:
    trace, client = new_trace()
    archive = store.mar("teller", source=HANDLER)
    properties = store.path / "config.properties"
    properties.write_text(f"{FREE_ADDRESSES}otlp_endpoint={collector.url}/v1/traces\nservice_name=ts\n")
    flags = ["--foreground", "--disable-token-auth", "--model-store", store.path, "--ts-config", properties]
    server = start("torchserve", *flags, "--models", f"teller={archive.name}", "--ncs")
    reply = server.predict("teller", {}, headers=parent_of(trace, client) | {"x-request-id": "own"})
    assert reply.headers["x-request-id"] != "own"
    assert reply.json()["id"] == reply.headers["x-request-id"]
    assert reply.json()["traceparent"].startswith(f"00-{trace}-")
    server.terminate()
    assert server.wait() == 0
    # They would have waited for five seconds.
    assert {"POST /predictions/{model}", "queue", "compute"} <= {span.name for span in collector.spans(trace)}
    lines = (server.home / "logs/access_log.log").read_text().splitlines()
    assert any(re.search(r'"POST /predictions/teller HTTP/1.1" 200 \d+$', line) for line in lines), lines
