"""gRPC as Python clients speak it: grpcio against the real binary, with the checked-in descriptors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from harness.archives import Store
from harness.certificates import self_signed
from harness.server import FREE_ADDRESSES, Server

DESCRIPTORS = Path(__file__).parent.parent / "crates/proto/src/generated/descriptors.bin"
INFERENCE = "org.pytorch.serve.grpc.inference.InferenceAPIsService"
MANAGEMENT = "org.pytorch.serve.grpc.management.ManagementAPIsService"
OPEN_INFERENCE = ["org.pytorch.serve.grpc.openinference.GRPCInferenceService", "inference.GRPCInferenceService"]
FREE_PORTS = {"JITNEY_GRPC_PORT": "0", "JITNEY_GRPC_MANAGEMENT_PORT": "0"}

ORDERS = """
import json

def handle(data, context):
    return [answer(row, context.get_request_header(index, "x-user")) for index, row in enumerate(data or [])]

def answer(row, user):
    if "raise" in row:
        raise ValueError(bytes(row["raise"]).decode())
    return {"user": user, **{name: bytes(value).decode() for name, value in row.items()}}
"""

DOUBLING = """
def handle(data, context):
    return [answer(row["body"]) for row in data or []]

def answer(body):
    outputs = [{**given, "name": "twice", "data": [2 * value for value in given["data"]]} for given in body["inputs"]]
    return {"id": body["id"], "model_name": body["model_name"], "outputs": outputs}
"""


def read_descriptors() -> descriptor_pool.DescriptorPool:
    """Every message and service of the server."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return pool


POOL = read_descriptors()


class Stub:
    """The methods of a service, by name; a call gives the answer and its trailing metadata."""

    def __init__(self, channel: grpc.Channel, service: str) -> None:
        self.channel = channel
        self.service = POOL.FindServiceByName(service)

    def __call__(self, method: str, *, timeout: float = 20, metadata: Any = None, **fields: Any) -> tuple[Any, dict]:
        found = self.service.FindMethodByName(method)
        request, response = (message_factory.GetMessageClass(kind) for kind in (found.input_type, found.output_type))
        call = self.channel.unary_unary(
            f"/{self.service.full_name}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        answer, done = call.with_call(request(**fields), timeout=timeout, metadata=metadata)
        return answer, dict(done.trailing_metadata())


def address(server: Server, api: str) -> str:
    """Where the server says that it listens."""
    return re.search(rf"^gRPC {api} +(\S+)$", server.stdout, re.MULTILINE)[1]


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model for each test of this file."""
    home = tmp_path_factory.mktemp("grpc")
    store = Store(home / "store")
    models = [store.mar("orders", source=ORDERS), store.mar("doubling", source=DOUBLING)]
    arguments = ["serve", *models, "--model-store", store.path, "--max-request-size", "8MiB"]
    server = Server(binary, home / "server", arguments, store=store, env=FREE_PORTS)
    yield server.started()
    server.end()


@pytest.fixture(scope="module")
def channel(server: Server) -> Iterator[grpc.Channel]:
    """A channel to the inference port whose client takes large messages."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address(server, "inference"), options=options) as channel:
        yield channel


def test_a_prediction_reaches_the_handler_and_comes_back_with_its_timing(channel: grpc.Channel) -> None:
    infer = Stub(channel, INFERENCE)
    assert json.loads(infer("Ping")[0].health) == {"status": "Healthy"}
    fields = {"model_name": "orders", "input": {"data": b"over grpc", "more": b"1"}}
    answer, trailers = infer("Predictions", metadata=[("x-user", "me")], **fields)
    assert json.loads(answer.prediction) == {"user": "me", "data": "over grpc", "more": "1"}
    assert trailers["server-timing"].startswith("queue;dur=")


def test_predictions_are_counted_as_they_are_over_rest(server: Server, channel: grpc.Channel) -> None:
    def counted() -> float:
        return server.metric("ts_inference_requests_total", "orders", model_version="default")

    before = counted()
    Stub(channel, INFERENCE)("Predictions", model_name="orders", input={"data": b"one"})
    assert counted() == before + 1


def test_more_than_four_megabytes_pass_both_ways(channel: grpc.Channel) -> None:
    body = b"x" * (7 << 20)
    answer, _ = Stub(channel, INFERENCE)("Predictions", model_name="orders", input={"data": body})
    assert len(answer.prediction) > len(body)


def test_a_message_beyond_the_limit_exhausts_a_resource(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as rejected:
        Stub(channel, INFERENCE)("Predictions", model_name="orders", input={"data": b"x" * (9 << 20)})
    assert rejected.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "too large" in rejected.value.details()


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"model_name": "ghost"}, grpc.StatusCode.NOT_FOUND, "Model not found: ghost"),
        ({}, grpc.StatusCode.INVALID_ARGUMENT, "Parameter model_name is required."),
        ({"model_name": "orders", "input": {"raise": b"x"}}, grpc.StatusCode.UNAVAILABLE, "Prediction failed"),
    ],
)
def test_failures_have_a_code_and_the_words_of_rest(
    channel: grpc.Channel, fields: dict, code: grpc.StatusCode, message: str
) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        Stub(channel, INFERENCE)("Predictions", **fields)
    assert (failed.value.code(), failed.value.details().split("\n")[0]) == (code, message)


@pytest.mark.parametrize("service", OPEN_INFERENCE)
@pytest.mark.parametrize("raw", [False, True])
def test_tensors_come_back_as_they_went(channel: grpc.Channel, service: str, raw: bool) -> None:
    infer = Stub(channel, service)
    assert infer("ModelReady", name="doubling")[0].ready
    tensor = {"name": "x", "datatype": "INT32", "shape": [2]}
    if raw:
        fields = {"inputs": [tensor], "raw_input_contents": [b"\1\0\0\0\2\0\0\0"]}
    else:
        fields = {"inputs": [tensor | {"contents": {"int_contents": [1, 2]}}]}
    answer, _ = infer("ModelInfer", model_name="doubling", id="q", **fields)
    assert (answer.id, answer.model_version, answer.outputs[0].name) == ("q", "1.0", "twice")
    assert list(answer.outputs[0].contents.int_contents) == ([] if raw else [2, 4])
    assert list(answer.raw_output_contents) == ([b"\2\0\0\0\4\0\0\0"] if raw else [])


def test_a_model_lives_its_whole_life_over_grpc(server: Server) -> None:
    server.store.mar("guest", "echo")
    with grpc.insecure_channel(address(server, "management")) as channel:
        manage = Stub(channel, MANAGEMENT)
        registered, _ = manage("RegisterModel", url="guest.mar", initial_workers=1, synchronous=True)
        assert registered.msg == 'Model "guest" Version: 1.0 registered with 1 initial workers'
        assert json.loads(manage("DescribeModel", model_name="guest")[0].msg)[0]["modelName"] == "guest"
        assert "guest" in [model["modelName"] for model in json.loads(manage("ListModels")[0].msg)["models"]]
        assert manage("UnregisterModel", model_name="guest")[0].msg == 'Model "guest" unregistered'
        with pytest.raises(grpc.RpcError) as gone:
            manage("DescribeModel", model_name="guest")
        assert gone.value.code() == grpc.StatusCode.NOT_FOUND


def test_paths_outside_the_store_are_closed_over_grpc_too(server: Server, tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("def handle(data, context): return data\n")
    with grpc.insecure_channel(address(server, "management")) as channel:
        manage = Stub(channel, MANAGEMENT)
        with pytest.raises(grpc.RpcError) as closed:
            manage("RegisterModel", url=str(tmp_path), model_name="le", handler="handler.py", initial_workers=1)
        assert closed.value.code() == grpc.StatusCode.NOT_FOUND
        assert f"Put it below the model store {server.store.path}" in closed.value.details()
        with pytest.raises(grpc.RpcError) as outside:
            manage("RegisterModel", url="orders.mar", model_name="le", handler=str(tmp_path / "handler.py"))
        assert outside.value.code() == grpc.StatusCode.INVALID_ARGUMENT


# -- TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    made = self_signed(tmp_path_factory.mktemp("certificate"))
    return made.cert, made.key


def call_over_tls(target: str, cert: Path, service: str, method: str, **fields: Any) -> Any:
    """One call of a client that verifies the certificate."""
    trust = grpc.ssl_channel_credentials(cert.read_bytes())
    with grpc.secure_channel(target, trust, options=[("grpc.enable_http_proxy", 0)]) as secure:
        return Stub(secure, service)(method, **fields)[0]


def test_serve_speaks_grpc_over_tls_when_it_has_a_certificate(start, store: Store, certificate) -> None:
    cert, key = certificate
    model = store.mar("orders", source=ORDERS)
    server = start("serve", model, "--tls-cert", cert, "--tls-key", key, env=FREE_PORTS, wait_for_workers=False)
    target = address(server, "inference")
    server.logged("model ready")
    answer = call_over_tls(target, cert, INFERENCE, "Predictions", model_name="orders", input={"data": b"hush"})
    assert json.loads(answer.prediction)["data"] == "hush"
    listed = call_over_tls(address(server, "management"), cert, MANAGEMENT, "ListModels")
    assert "orders" in listed.msg
    with grpc.insecure_channel(target) as plain, pytest.raises(grpc.RpcError) as failed:
        Stub(plain, INFERENCE)("Ping")
    assert failed.value.code() == grpc.StatusCode.UNAVAILABLE


def test_torchserve_secures_grpc_alone_when_asked_to(start, tmp_path: Path, store: Store, certificate) -> None:
    cert, key = certificate
    config = tmp_path / "config.properties"
    config.write_text(f"{FREE_ADDRESSES}enable_grpc_ssl=true\ncertificate_file={cert}\nprivate_key_file={key}\n")
    flags = ["--foreground", "--ncs", "--disable-token-auth", "--model-store", store.path, "--ts-config", config]
    server = start("torchserve", "--start", *flags, wait_for_workers=False)
    assert server.urls["inference"].startswith("http://")
    target = re.search(r"gRPC inference API bind to: (\S+)", server.stdout)[1]
    health = call_over_tls(target, cert, INFERENCE, "Ping").health
    assert json.loads(health) == {"status": "Healthy"}
