"""Triton's own client over gRPC: every call of it, sync, async and in streams, with compression and shared memory."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.utils.shared_memory as shm
from google.protobuf import descriptor_pb2
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from harness import onnx
from harness.archives import Store
from harness.gate import Gate
from harness.server import Server

ROOT = Path(__file__).parent.parent
PATIENCE = 120

DESK = """
import os, time


def handle(data, context):
    if data is None:
        return None
    answers = []
    for row in data:
        text = bytes(row["body"]).decode()
        word, _, rest = text.partition(" ")
        if word == "hold":
            arrived, opened = rest.split(" ")
            open(arrived, "w").close()
            while not os.path.exists(opened):
                time.sleep(0.002)
        if word == "raise":
            raise ValueError(rest)
        answers.append(text.upper())
    return answers
"""

TWICE = """
def handle(data, context):
    if data is None:
        return None
    answers = []
    for row in data:
        outputs = []
        for tensor in row["body"]["inputs"]:
            twice = [2 * value for value in tensor["data"]]
            outputs.append({**tensor, "name": "twice", "data": twice})
        answers.append({"outputs": outputs})
    return answers
"""

APP = """
from typing import Annotated

import jitney
import numpy as np


@jitney.batch(max_batch_size=16)
def halves(
    x: Annotated[np.ndarray, jitney.Tensor("FP64", [-1, 2])],
) -> Annotated[np.ndarray, jitney.Tensor("FP64", [-1, 2])]:
    return x / 2
"""

TELLER = """
from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return None
    for word in bytes(data[0]["body"]).decode().split():
        if word == "break":
            raise ValueError("broken off")
        send_intermediate_predict_response([word] * len(data), context.request_ids, "ok", 200, context)
    return ["end"] * len(data)
"""


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An ONNX model and archives, with shared memory allowed."""
    home = tmp_path_factory.mktemp("triton")
    store = Store(home / "store")
    twice = onnx.write(
        store.path / "sums.onnx",
        [onnx.node("Add", ["x", "x"], "twice"), onnx.node("Sub", ["x", "x"], "zero")],
        [onnx.value("x", onnx.FLOAT, ["n", 3])],
        [onnx.value("twice", onnx.FLOAT, ["n", 3]), onnx.value("zero", onnx.FLOAT, ["n", 3])],
    )
    archives = [
        store.mar("desk", source=DESK),
        store.mar("order", source=DESK),
        store.mar("numbers", source=TWICE),
        store.mar("teller", source=TELLER),
        store.mar("spare", source=TWICE),
    ]
    flags = ("--model-store", store.path, "--batch-size", "8", "--allow-client-shared-memory", "--workers", "2")
    (home / "app.py").write_text(APP)
    models = [twice, *archives, "app:halves"]
    server = Server(binary, home / "server", ["serve", *models, *flags], store=store, cwd=home)
    yield server.started()
    server.end()


def address(server: Server) -> str:
    """Where gRPC listens."""
    return re.search(r"^gRPC inference +(\S+)$", server.stdout, re.MULTILINE)[1]


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    """The synchronous client."""
    with triton.InferenceServerClient(address(server)) as client:
        yield client


def tensor(name: str, values: np.ndarray, datatype: str) -> triton.InferInput:
    """An input with its elements."""
    made = triton.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def rows(count: int = 2) -> np.ndarray:
    """Rows for the ONNX model."""
    return np.arange(3 * count, dtype=np.float32).reshape(count, 3)


def sums(values: np.ndarray | None = None) -> list[triton.InferInput]:
    """The inputs of the ONNX model."""
    return [tensor("x", rows() if values is None else values, "FP32")]


def words(*texts: str) -> list[triton.InferInput]:
    """Inputs of an archive that takes bodies."""
    return [tensor("data", np.array([text.encode() for text in texts], dtype=np.object_), "BYTES")]


def held(gate: Gate) -> list[triton.InferInput]:
    """A request that is held at a gate."""
    return words(f"hold {gate.arrived} {gate.opened}")


def failed(call: Callable[[], Any]) -> tuple[str, str]:
    """The code and the words of a call that must fail."""
    with pytest.raises(InferenceServerException) as error:
        call()
    return error.value.status(), error.value.message()


# -- what the messages are ---------------------------------------------------------------------


def test_our_messages_have_tritons_numbers() -> None:
    kept = ROOT / "crates" / "proto" / "src" / "generated" / "descriptors.bin"
    ours = descriptor_pb2.FileDescriptorSet.FromString(kept.read_bytes())
    pool = service_pb2.DESCRIPTOR.pool
    compared = 0

    def compare(message: descriptor_pb2.DescriptorProto, full: str) -> None:
        nonlocal compared
        theirs = pool.FindMessageTypeByName(full)
        for field in message.field:
            other = theirs.fields_by_name[field.name]
            assert (field.number, field.type) == (other.number, other.type), f"{full}.{field.name}"
            assert (field.label == field.LABEL_REPEATED) == other.is_repeated, f"{full}.{field.name}"
            compared += 1
        for nested in message.nested_type:
            compare(nested, f"{full}.{nested.name}")
        for enum in message.enum_type:
            values = pool.FindEnumTypeByName(f"{full}.{enum.name}").values_by_name
            assert {value.name: value.number for value in enum.value} == {k: v.number for k, v in values.items()}

    files = [file for file in ours.file if file.package == "inference"]
    for file in files:
        for message in file.message_type:
            compare(message, f"inference.{message.name}")
        for enum in file.enum_type:
            values = pool.FindEnumTypeByName(f"inference.{enum.name}").values_by_name
            assert {value.name: value.number for value in enum.value} == {k: v.number for k, v in values.items()}
    [service] = [service for file in files for service in file.service]
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert {method.name for method in service.method} == set(theirs.methods_by_name)
    assert compared > 150


# -- about the server and its models -----------------------------------------------------------


def test_the_server_tells_about_itself_and_its_models(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("sums") and client.is_model_ready("desk") and not client.is_model_ready("ghost")
    about = client.get_server_metadata(as_json=True)
    assert about["name"] == "jitney" and "binary_tensor_data" in about["extensions"]
    metadata = client.get_model_metadata("sums", as_json=True)
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "3"]}]
    assert [output["name"] for output in metadata["outputs"]] == ["twice", "zero"]
    metadata = client.get_model_metadata("desk", as_json=True)
    assert metadata["inputs"] == [{"name": "data", "datatype": "BYTES", "shape": ["-1"]}]
    assert metadata["outputs"] == [{"name": "output", "datatype": "BYTES", "shape": ["-1"]}]
    config = client.get_model_config("sums", as_json=True)["config"]
    assert config["name"] == "sums"
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    assert len(config["instance_group"]) == 1
    status, words = failed(lambda: client.get_model_metadata("ghost"))
    assert status == "StatusCode.NOT_FOUND" and "ghost" in words


def test_statistics_count_what_was_run(client: triton.InferenceServerClient) -> None:
    def counts() -> tuple[int, int]:
        [of] = client.get_inference_statistics("numbers").model_stats
        return of.inference_count, of.inference_stats.success.count

    values = np.array([1], dtype=np.int32)
    items, requests = counts()
    client.infer("numbers", [tensor("x", values, "INT32")])
    assert counts() == (items + 1, requests + 1)
    names = {of.name for of in client.get_inference_statistics().model_stats}
    assert names >= {"sums", "desk", "numbers", "teller"}
    assert failed(lambda: client.get_inference_statistics("ghost"))[0] == "StatusCode.NOT_FOUND"


def test_settings_of_tracing_and_logging_can_be_read_but_not_changed(client: triton.InferenceServerClient) -> None:
    assert list(client.get_trace_settings().settings["trace_level"].value) == ["OFF"]
    assert client.get_log_settings().settings["log_error"].bool_param
    client.update_log_settings({"log_error": True})
    for change in (
        lambda: client.update_log_settings({"log_verbose_level": 9}),
        lambda: client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
    ):
        assert failed(change)[0] == "StatusCode.INVALID_ARGUMENT"


def test_models_of_the_repository_are_unloaded_and_loaded(client: triton.InferenceServerClient) -> None:
    def states() -> dict[str, str]:
        return {model.name: model.state for model in client.get_model_repository_index().models}

    assert states()["spare"] == "READY"
    client.unload_model("spare")
    assert states().get("spare") == "UNAVAILABLE" and not client.is_model_ready("spare")
    client.load_model("spare")
    assert states()["spare"] == "READY" and client.is_model_ready("spare")
    for call in (
        lambda: client.load_model("spare", config="{}"),
        lambda: client.load_model("spare", config="{}", files={"file:1/model.onnx": b"x"}),
        lambda: client.load_model("../spare"),
        lambda: client.unload_model("ghost"),
    ):
        assert failed(call)[0] in ("StatusCode.INVALID_ARGUMENT", "StatusCode.NOT_FOUND")


# -- one request -------------------------------------------------------------------------------


def test_a_request_is_answered_with_what_it_asks_for(client: triton.InferenceServerClient) -> None:
    answer = client.infer("sums", sums(), request_id="mine")
    assert answer.get_response().id == "mine"
    assert answer.get_response().model_name == "sums"
    assert (answer.as_numpy("twice") == 2 * rows()).all() and (answer.as_numpy("zero") == 0).all()
    answer = client.infer("sums", sums(), outputs=[triton.InferRequestedOutput("zero")])
    assert answer.as_numpy("twice") is None and answer.as_numpy("zero").shape == (2, 3)
    top = triton.InferRequestedOutput("twice", class_count=2)
    answer = client.infer("sums", sums(rows(1)), outputs=[top])
    assert answer.as_numpy("twice").tolist() == [[b"4.000000:2", b"2.000000:1"]]
    many = rows(700)
    assert (client.infer("sums", sums(many)).as_numpy("twice") == 2 * many).all()


@pytest.mark.parametrize("datatype", ["FP64", "FP32", "INT64", "UINT8", "INT16"])
def test_numbers_come_back_exactly(client: triton.InferenceServerClient, datatype: str) -> None:
    numbers = {
        "FP64": [0.1, 5e-324, 1.7976931348623157e308, -1 / 3],
        "FP32": [0.1, 1e-45, -1 / 3],
        "INT64": [2**62 - 1, -(2**62)],
        "UINT8": [0, 127],
        "INT16": [-(2**14), 2**14 - 1],
    }[datatype]
    kind = {"FP64": np.float64, "FP32": np.float32, "INT64": np.int64, "UINT8": np.uint8, "INT16": np.int16}[datatype]
    values = np.array(numbers[:1] + [number / 4 if isinstance(number, float) else number for number in numbers], kind)
    answer = client.infer("numbers", [tensor("x", values, datatype)]).as_numpy("twice")
    assert answer.dtype == kind and (answer == 2 * values).all()


def test_a_definition_gets_arrays(client: triton.InferenceServerClient) -> None:
    values = np.array([[0.1, 5e-324], [1.7976931348623157e308, -1 / 3]])
    [output] = client.get_model_metadata("halves").outputs
    assert (output.datatype, list(output.shape)) == ("FP64", [-1, 2])
    answer = client.infer("halves", [tensor("x", values, "FP64")], outputs=[triton.InferRequestedOutput(output.name)])
    assert (answer.as_numpy(output.name) == values / 2).all()
    code, message = failed(lambda: client.infer("halves", [tensor("x", values[0], "FP64")]))
    assert code == "StatusCode.INVALID_ARGUMENT" and "halves" in message and "[2]" in message


def test_texts_are_bodies_of_an_archive(client: triton.InferenceServerClient) -> None:
    assert client.infer("desk", words("a")).as_numpy("output").tolist() == [b"A"]
    texts = [f"word {k}" for k in range(20)]
    expected = [text.upper().encode() for text in texts]
    assert client.infer("desk", words(*texts)).as_numpy("output").tolist() == expected


def test_failures_have_a_code_and_a_sentence(client: triton.InferenceServerClient) -> None:
    for call, status, expected in (
        (lambda: client.infer("ghost", sums()), "NOT_FOUND", "ghost"),
        (lambda: client.infer("sums", sums(np.zeros((1, 2), np.float32))), "INVALID_ARGUMENT", "[1, 2]"),
        (lambda: client.infer("sums", words("a")), "INVALID_ARGUMENT", "data"),
        (lambda: client.infer("desk", words("raise it")), "UNAVAILABLE", ""),
        (lambda: client.infer("sums", sums(), parameters={"timeout_": "x"}, timeout=-1), "INVALID_ARGUMENT", "timeout"),
    ):
        code, message = failed(call)
        assert code == f"StatusCode.{status}" and expected in message, message


def test_a_timeout_is_a_deadline(client: triton.InferenceServerClient, tmp_path: Path) -> None:
    gates = [Gate(tmp_path, name) for name in ("one", "two")]
    answers: queue.Queue[Any] = queue.Queue()
    for gate in gates:
        client.async_infer("desk", held(gate), callback=lambda result, error: answers.put(error))
        gate.wait()
    expired_or_rejected_early = ("StatusCode.DEADLINE_EXCEEDED", "StatusCode.RESOURCE_EXHAUSTED")
    code, message = failed(lambda: client.infer("desk", words("late"), timeout=20_000, priority=2))
    assert code in expired_or_rejected_early, message
    code, message = failed(lambda: client.infer("desk", words("late"), client_timeout=0.02))
    assert code in expired_or_rejected_early, message
    cancelled = client.async_infer("desk", words("x"), callback=lambda result, error: answers.put(error))
    cancelled.cancel()
    assert "cancelled" in str(answers.get(timeout=PATIENCE)).lower()
    for gate in gates:
        gate.open()
    assert [answers.get(timeout=PATIENCE) for _ in gates] == [None, None]


def test_many_requests_with_callbacks(client: triton.InferenceServerClient) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    for k in range(32):
        client.async_infer(
            "sums",
            sums(rows() + k),
            callback=lambda result, error, k=k: answers.put((k, error or result.as_numpy("twice"))),
        )
    for k, answer in (answers.get(timeout=PATIENCE) for _ in range(32)):
        assert (answer == 2 * (rows() + k)).all()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_messages_may_be_compressed_both_ways(client: triton.InferenceServerClient, algorithm: str) -> None:
    values = rows(700)
    answer = client.infer("sums", sums(values), compression_algorithm=algorithm)
    assert (answer.as_numpy("twice") == 2 * values).all()


def test_a_compressed_message_counts_as_large_as_it_is(client: triton.InferenceServerClient) -> None:
    values = np.zeros((1_000_000, 3), np.float32)
    code, message = failed(lambda: client.infer("sums", sums(values), compression_algorithm="gzip"))
    assert code == "StatusCode.RESOURCE_EXHAUSTED" and "max_request_size" in message


def test_answers_are_compressed_for_who_compresses(server: Server) -> None:
    path = "/inference.GRPCInferenceService/ModelInfer"
    message = triton.service_pb2.ModelInferRequest(
        model_name="sums",
        inputs=[{"name": "x", "datatype": "FP32", "shape": [700, 3]}],
        raw_input_contents=[bytes(8_400)],
    ).SerializeToString()
    with grpc.insecure_channel(address(server), compression=grpc.Compression.Gzip) as channel:
        answer = channel.unary_unary(path)(message, timeout=PATIENCE)
        assert len(service_pb2.ModelInferResponse.FromString(answer).raw_output_contents[0]) == 8_400


# -- the asyncio client ------------------------------------------------------------------------


def test_the_asyncio_client(server: Server) -> None:
    async def run() -> None:
        async with triton_aio.InferenceServerClient(address(server)) as client:
            assert await client.is_server_live() and await client.is_model_ready("sums")
            assert (await client.get_server_metadata()).name == "jitney"
            assert (await client.get_model_config("sums")).config.name == "sums"
            calls = [client.infer("sums", sums(rows() + k)) for k in range(16)]
            for k, answer in enumerate(await asyncio.gather(*calls)):
                assert (answer.as_numpy("twice") == 2 * (rows() + k)).all()

            async def requests() -> Any:
                for k in range(8):
                    yield {"model_name": "sums", "inputs": sums(rows() + k), "request_id": str(k)}
                yield {"model_name": "ghost", "inputs": sums(), "request_id": "ghost"}

            seen = set()
            async for result, error in client.stream_infer(requests()):
                if error is not None:
                    assert "ghost" in str(error)
                    seen.add("ghost")
                    continue
                k = int(result.get_response().id)
                assert (result.as_numpy("twice") == 2 * (rows() + k)).all()
                seen.add(k)
            assert seen == {*range(8), "ghost"}

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


# -- streams -----------------------------------------------------------------------------------


class Stream:
    """A stream of requests and the queue of its answers."""

    def __init__(self, server: Server) -> None:
        self.client = triton.InferenceServerClient(address(server))
        self.answers: queue.Queue[Any] = queue.Queue()
        self.client.start_stream(callback=lambda result, error: self.answers.put(error or result))

    def send(self, model: str, inputs: list[triton.InferInput], **more: Any) -> None:
        """One request."""
        self.client.async_stream_infer(model, inputs, **more)

    def next(self) -> Any:
        """The next answer or error."""
        return self.answers.get(timeout=PATIENCE)


@pytest.fixture
def stream(server: Server) -> Iterator[Stream]:
    """An open stream."""
    stream = Stream(server)
    yield stream
    stream.client.stop_stream()
    stream.client.close()


def final(result: triton.InferResult) -> bool:
    """Whether an answer says that it is the last of its request."""
    return result.get_response().parameters["triton_final_response"].bool_param


def test_answers_of_a_stream_come_as_they_are_made(stream: Stream, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    stream.send("desk", held(gate), request_id="slow")
    gate.wait()
    stream.send("desk", words("quick"), request_id="quick")
    stream.send("ghost", words("quick"), request_id="ghost")
    quick, ghost = sorted((stream.next(), stream.next()), key=lambda it: isinstance(it, InferenceServerException))
    assert quick.get_response().id == "quick" and final(quick)
    assert "ghost" in ghost.message()
    gate.open()
    assert stream.next().get_response().id == "slow"


def test_answers_to_requests_without_an_id_keep_their_order(stream: Stream, tmp_path: Path) -> None:
    # A model of its own: after requests that were held, its worker seems about to end, and gets a batch ahead.
    gate = Gate(tmp_path)
    stream.send("order", held(gate))
    gate.wait()
    for k in range(20):
        stream.send("order", words(f"word {k}"))
    stream.send("order", words("other"), request_id="other")
    first = stream.next()
    assert not isinstance(first, InferenceServerException), first
    assert first.get_response().id == "other", "the others wait for the first"
    gate.open()
    texts = [stream.next().as_numpy("output")[0] for _ in range(21)]
    assert texts[0].startswith(b"HOLD") and texts[1:] == [f"WORD {k}".encode() for k in range(20)]


@pytest.mark.parametrize("empty", [False, True])
def test_a_model_that_streams_gives_several_answers(stream: Stream, empty: bool) -> None:
    stream.send("teller", words("once upon a"), request_id="tale", enable_empty_final_response=empty)
    told = [stream.next() for _ in range(4)]
    assert [answer.as_numpy("output")[0] for answer in told] == [b"once", b"upon", b"a", b"end"]
    assert {answer.get_response().id for answer in told} == {"tale"}
    if empty:
        last = stream.next()
        assert final(last) and not last.get_response().outputs
    stream.send("teller", words("once break"), request_id="broken")
    assert stream.next().as_numpy("output")[0] == b"once"
    assert isinstance(stream.next(), InferenceServerException)
    stream.send("sums", sums(), request_id="after")
    assert stream.next().get_response().id == "after", "the stream goes on"


def test_a_stream_that_is_cut_cancels_its_requests(server: Server, tmp_path: Path) -> None:
    gates, cut = [Gate(tmp_path, name) for name in ("one", "two")], Stream(server)
    for gate in gates:
        cut.send("desk", held(gate))
        gate.wait()
    for _ in range(5):
        cut.send("desk", words("never"))
    cut.client.stop_stream(cancel_requests=True)
    cut.client.close()
    for gate in gates:
        gate.open()
    with triton.InferenceServerClient(address(server)) as client:
        assert client.infer("desk", words("next")).as_numpy("output").tolist() == [b"NEXT"]


# -- shared memory -----------------------------------------------------------------------------


@pytest.fixture
def region(client: triton.InferenceServerClient) -> Iterator[Callable[[str, int], Any]]:
    """Makes and registers regions."""
    made = []

    def make(name: str, size: int) -> Any:
        key = f"/jitney-test-{uuid.uuid4().hex}"
        handle = shm.create_shared_memory_region(name, key, size)
        made.append((name, handle))
        client.register_system_shared_memory(name, key, size)
        return handle, Path("/dev/shm") / key.lstrip("/")

    yield make
    for name, handle in made:
        client.unregister_system_shared_memory(name)
        shm.destroy_shared_memory_region(handle)


def in_region(name: str, values: np.ndarray, offset: int = 0) -> triton.InferInput:
    """An input whose elements lie in a region."""
    made = triton.InferInput("x", list(values.shape), "FP32")
    made.set_shared_memory(name, values.nbytes, offset)
    return made


def test_tensors_in_shared_memory(client: triton.InferenceServerClient, region: Callable[[str, int], Any]) -> None:
    values = rows(500)
    given, _ = region("given", values.nbytes + 8)
    taken, _ = region("taken", values.nbytes + 16)
    shm.set_shared_memory_region(given, [values], offset=8)
    output = triton.InferRequestedOutput("twice")
    output.set_shared_memory("taken", values.nbytes, 16)
    other = triton.InferRequestedOutput("zero")
    answer = client.infer("sums", [in_region("given", values, 8)], outputs=[output, other])
    about = answer.get_output("twice")
    assert (about.datatype, list(about.shape)) == ("FP32", [500, 3])
    assert (shm.get_contents_as_numpy(taken, np.float32, [500, 3], offset=16) == 2 * values).all()
    assert (answer.as_numpy("zero") == 0).all() and answer.as_numpy("zero").shape == (500, 3)
    status = client.get_system_shared_memory_status(as_json=True)["regions"]
    assert set(status) >= {"given", "taken"} and int(status["given"]["byte_size"]) == values.nbytes + 8
    client.unregister_system_shared_memory("given")
    code, message = failed(lambda: client.infer("sums", [in_region("given", values)]))
    assert code == "StatusCode.INVALID_ARGUMENT" and "given" in message
    assert not client.get_cuda_shared_memory_status().regions
    client.unregister_cuda_shared_memory()


def test_tensors_in_shared_memory_over_rest(server: Server, region: Callable[[str, int], Any]) -> None:
    values = rows(4)
    given, path = region("rest-given", values.nbytes)
    taken, _ = region("rest-taken", values.nbytes)
    shm.set_shared_memory_region(given, [values])
    place = {"shared_memory_byte_size": values.nbytes}
    tensor = {"name": "x", "datatype": "FP32", "shape": [4, 3], "parameters": {"shared_memory_region": "rest-given"}}
    wanted = {"name": "twice", "parameters": {"shared_memory_region": "rest-taken"} | place}
    tensor["parameters"] |= place
    url = server.url("/v2/models/sums/infer")
    reply = requests.post(url, json={"inputs": [tensor], "outputs": [wanted]}, timeout=PATIENCE)
    [output] = reply.json()["outputs"]
    assert output == {"name": "twice", "datatype": "FP32", "shape": [4, 3]}
    assert (shm.get_contents_as_numpy(taken, np.float32, [4, 3]) == 2 * values).all()
    own = server.url("/v2/systemsharedmemory/region/own")
    body = {"key": path.name, "offset": 0, "byte_size": 8}
    assert requests.post(f"{own}/register", json=body, timeout=PATIENCE).status_code == 200
    assert requests.get(f"{own}/status", timeout=PATIENCE).json()[0]["key"] == path.name
    assert requests.post(f"{own}/unregister", timeout=PATIENCE).status_code == 200
    assert requests.get(f"{own}/status", timeout=PATIENCE).status_code == 404
    os.truncate(path, 4)
    assert requests.post(url, json={"inputs": [tensor]}, timeout=PATIENCE).status_code == 400


def test_shared_memory_that_lies_harms_nobody(
    client: triton.InferenceServerClient, region: Callable[[str, int], Any]
) -> None:
    values = rows(500)
    given, path = region("short", values.nbytes)
    shm.set_shared_memory_region(given, [values])
    os.truncate(path, 100)
    code, message = failed(lambda: client.infer("sums", [in_region("short", values)]))
    assert code == "StatusCode.INVALID_ARGUMENT" and "shorter" in message
    output = triton.InferRequestedOutput("twice")
    output.set_shared_memory("short", values.nbytes)
    assert failed(lambda: client.infer("sums", sums(values), outputs=[output]))[0] == "StatusCode.INVALID_ARGUMENT"
    assert path.stat().st_size == 100
    os.truncate(path, values.nbytes)
    output.set_shared_memory("short", 8)
    assert failed(lambda: client.infer("sums", sums(values), outputs=[output]))[0] == "StatusCode.INVALID_ARGUMENT"
    beyond = in_region("short", values, 4)
    assert failed(lambda: client.infer("sums", [beyond]))[0] == "StatusCode.INVALID_ARGUMENT"
    for key in ("/../../etc/passwd", "../etc/passwd", "/ghost", ""):
        code, _ = failed(lambda key=key: client.register_system_shared_memory("bad", key, 8))
        assert code == "StatusCode.INVALID_ARGUMENT", key
    assert failed(lambda: client.get_system_shared_memory_status("bad"))[0] == "StatusCode.NOT_FOUND"
    code, message = failed(lambda: client.register_cuda_shared_memory("cuda", b"aGFuZGxl", 0, 8))
    assert code == "StatusCode.INVALID_ARGUMENT" and "system shared memory" in message


def test_shared_memory_is_off_unless_it_is_allowed(start: Callable[..., Server], store: Store) -> None:
    server = start("serve", store.mar("desk", source=DESK), "--token-auth", wait_for_workers=False)
    keys = json.loads((server.cwd / "key_file.json").read_text())
    bearer = {name: {"authorization": f"Bearer {key['key']}"} for name, key in keys.items()}
    with triton.InferenceServerClient(address(server)) as client:
        code, message = failed(
            lambda: client.register_system_shared_memory("r", "/ghost", 8, headers=bearer["inference"])
        )
        assert code == "StatusCode.INVALID_ARGUMENT" and "allow_client_shared_memory" in message
        assert not client.get_system_shared_memory_status(headers=bearer["inference"]).regions
        # Loading is management, whichever port it is asked on.
        for call in (client.load_model, client.unload_model):
            code, message = failed(lambda call=call: call("desk", headers=bearer["inference"]))
            assert code == "StatusCode.PERMISSION_DENIED" and "Token" in message, message
