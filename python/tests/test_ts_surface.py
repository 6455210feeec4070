"""TorchServe's internal modules, as code and tests written against it use them."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import socket
import struct
import sys
import threading
import types

import pytest
import wire

from ts.context import Context, RequestProcessor
from ts.handler_utils.utils import import_class, send_intermediate_predict_response
from ts.model_loader import ModelLoader, ModelLoaderFactory, TsModelLoader
from ts.model_service.model_service import SingleNodeService
from ts.model_service_worker import TorchModelServiceWorker
from ts.protocol import otf_message_handler as otf
from ts.service import Service
from ts.utils.util import PredictionException

END = struct.pack("!i", -1)


def number(value):
    return struct.pack("!i", value)


def sized(data):
    return number(len(data)) + data


def load_message(path, handler, gpu=-1, envelope=b""):
    fields = sized(b"m") + sized(path) + number(4) + sized(handler) + number(gpu) + sized(envelope) + b"\x01"
    return b"L" + fields


def request(request_id, body, content_type=b"", headers=()):
    named = b"".join(sized(name) + sized(value) for name, value in headers)
    return sized(request_id) + named + END + sized(b"data") + sized(content_type) + sized(body) + END


def batch_message(*requests):
    return b"I" + b"".join(requests) + END


class Wire:
    """A connection that gives what it was made with, a few bytes at a time, and keeps what it is given."""

    def __init__(self, data=b""):
        self.data, self.sent = io.BytesIO(data), b""

    def recv(self, size):
        return self.data.read(min(size, 3))

    def sendall(self, data):
        self.sent += data


def read_reply(data):
    """Code, message and predictions of one reply, and what comes behind it."""
    stream = io.BytesIO(data)

    def integer():
        return struct.unpack("!i", stream.read(4))[0]

    def text():
        return stream.read(integer()).decode()

    code, message, predictions = integer(), text(), []
    while (length := integer()) != -1:
        one = {"id": stream.read(length).decode(), "type": text(), "status": integer(), "phrase": text()}
        one["headers"] = {text(): text() for _ in range(integer())}
        one["body"] = text()
        predictions.append(one)
    return code, message, predictions, stream.read()


@pytest.fixture
def model_dir(tmp_path, monkeypatch):
    """A model directory with a handler module whose name no other test uses."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def make(source, manifest=None):
        name = f"handler_{abs(hash(str(tmp_path)))}"
        (tmp_path / f"{name}.py").write_text(source)
        if manifest is not None:
            (tmp_path / "MAR-INF").mkdir()
            (tmp_path / "MAR-INF/MANIFEST.json").write_text(json.dumps(manifest))
        return str(tmp_path), name

    return make


def service_of(entry_point):
    return Service("m", "/nowhere", {}, entry_point, None, 4)


def requests_of(*bodies):
    parameter = {"name": "data", "contentType": "text/plain"}
    return [{"requestId": b"r%d" % i, "parameters": [{**parameter, "value": b}]} for i, b in enumerate(bodies)]


@pytest.mark.parametrize("gpu", [-1, 2])
def test_a_load_message_is_read_with_its_gpu_if_it_has_one(gpu):
    command, message = otf.retrieve_msg(Wire(load_message(b"/models/m", b"h.py", gpu, b"json")))
    expected = {"modelName": b"m", "modelPath": b"/models/m", "batchSize": 4, "handler": b"h.py"}
    expected |= {"envelope": b"json", "limitMaxImagePixels": True}
    assert command == otf.LOAD_MSG and message == (expected | {"gpu": 2} if gpu == 2 else expected)


def test_a_batch_is_read_with_its_values_as_their_types_say():
    data = batch_message(
        request(b"a", b'{"x": 1}', b"application/json", [(b"k", b"v")]),
        request(b"b", b"\xff"),
        request(b"c", b"t", b"text/plain"),
    )
    command, requests = otf.retrieve_msg(Wire(data))
    assert command == otf.PREDICT_MSG and [r["requestId"] for r in requests] == [b"a", b"b", b"c"]
    assert [r["parameters"][0]["value"] for r in requests] == [{"x": 1}, b"\xff", "t"]
    assert requests[0]["headers"] == [{"name": b"k", "value": b"v"}] and requests[1]["headers"] == []


def test_decoding_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("TS_DECODE_INPUT_REQUEST", "false")
    _, requests = otf.retrieve_msg(Wire(batch_message(request(b"a", b"{}", b"application/json"))))
    assert requests[0]["parameters"][0]["value"] == b"{}"


def test_unknown_commands_and_lengths_are_rejected():
    with pytest.raises(ValueError, match="Invalid command"):
        otf.retrieve_msg(Wire(b"X"))
    with pytest.raises(ValueError, match="Invalid length"):
        otf.retrieve_msg(Wire(b"L" + number(-7)))


def test_a_frontend_that_is_gone_ends_the_process():
    with pytest.raises(SystemExit) as ended:
        otf.retrieve_msg(Wire())
    assert ended.value.code == 0


def test_answers_carry_status_type_and_headers_of_the_context():
    context = Context("m", "", {}, 1, None, "")
    context.request_processor = [RequestProcessor({})]
    context.set_response_content_type(0, "text/x")
    context.set_response_status(201, "made", 0)
    (one,) = read_reply(otf.create_predict_response([{"a": 1}], {0: "r"}, "ok", 200, context))[2]
    assert (one["type"], one["status"], one["phrase"], json.loads(one["body"])) == ("text/x", 201, "made", {"a": 1})


def test_an_output_without_bytes_fails_the_batch():
    code, message, (one,), _ = read_reply(otf.create_predict_response([object()], {0: "r"}, "ok", 200))
    assert (code, message, one["status"], one["body"]) == (503, "Unsupported model output data type.", 503, "error")


def test_an_intermediate_response_goes_out_on_the_contexts_socket():
    context = Context("m", "", {}, 1, None, "")
    context.request_processor, context.cl_socket = [RequestProcessor({})], Wire()
    send_intermediate_predict_response(["part"], {0: "r"}, "more", 200, context)
    (one,) = read_reply(context.cl_socket.sent)[2]
    assert one["headers"] == {"ts_stream_next": "true"} and one["body"] == "part"
    (last,) = read_reply(otf.create_predict_response(["end"], {0: "r"}, "ok", 200, context))[2]
    assert last["headers"] == {"ts_stream_next": "false"}


def test_a_service_answers_a_batch_of_the_frontend():
    service = service_of(lambda rows, context: [row["data"] + context.get_request_id(i) for i, row in enumerate(rows)])
    code, message, predictions, _ = read_reply(service.predict(requests_of("x", "y")))
    assert (code, message, [p["body"] for p in predictions]) == (200, "Prediction success", ["xr0", "yr1"])


def raising(error):
    def entry_point(rows, context):
        raise error

    return entry_point


@pytest.mark.parametrize(
    "entry_point, code, message",
    [
        (raising(PredictionException("no such thing", 404)), 404, "no such thing"),
        (raising(MemoryError()), 507, "Out of resources"),
        (raising(RuntimeError("CUDA error")), 507, "Out of resources"),
        (raising(KeyError("x")), 503, "Prediction failed"),
        (lambda rows, context: "text", 503, "Invalid model predict output"),
        (lambda rows, context: [], 503, "number of batch response mismatched"),
    ],
)
def test_a_batch_that_fails_says_why(entry_point, code, message):
    assert read_reply(service_of(entry_point).predict(requests_of("x")))[:2] == (code, message)


def test_a_loader_makes_a_service_of_a_class(model_dir):
    path, name = model_dir(
        "class One:\n def initialize(self, c): self.name = c.manifest['model']['modelName']\n"
        " def handle(self, data, context): return [self.name] * len(data)\n",
        {"model": {"modelName": "named"}},
    )
    loader = ModelLoaderFactory.get_model_loader()
    assert isinstance(loader, TsModelLoader) and isinstance(loader, ModelLoader)
    service = loader.load("m", path, f"{name}.py", None, 2)
    assert service.handle([{}, {}]) == ["named", "named"] and service.context.system_properties["batch_size"] == 2


def test_a_loader_takes_a_function_and_an_envelope(model_dir):
    path, name = model_dir("def infer(data, context): return [x * 2 for x in data or []]\n")
    plain = TsModelLoader().load("m", path, f"{name}:infer", 0, 1)
    assert plain._entry_point.__name__ == "infer" and plain.context.system_properties["gpu_id"] == 0
    wrapped = TsModelLoader().load("m", path, f"{name}:infer", None, 1, "json")
    body = {"name": "body", "contentType": "application/json", "value": {"instances": [1, 2]}}
    answer = read_reply(wrapped.predict([{"requestId": b"r", "parameters": [body]}]))
    assert json.loads(answer[2][0]["body"]) == {"predictions": [2, 4]}


def test_a_loader_rejects_a_missing_function(model_dir):
    path, name = model_dir("def infer(data, context): pass\n")
    with pytest.raises(ValueError, match="Expected only one class"):
        TsModelLoader().load("m", path, f"{name}:other", None, 1)


def test_old_services_answer_request_by_request():
    class Doubles(SingleNodeService):
        def _inference(self, data):
            return data[0] * 2

    service = Doubles("m", "", {})
    answers = service.handle([{"data": 2}, {"data": None}], None)
    assert answers[0] == 4 and answers[1].startswith("Prediction error")


def test_a_worker_loads_and_answers_over_its_socket(model_dir, tmp_path, capsys):
    path, name = model_dir("def handle(data, context): return [r['data'].upper() for r in data or []]\n")
    worker = TorchModelServiceWorker("unix", str(tmp_path / "s.1"))
    worker.sock.bind(worker.address)
    worker.sock.listen(1)
    ends = converse(worker.handle_connection, path, name)
    worker.sock.close()
    assert ends[0][:2] == (200, "loaded model m") and ends[1][2][0]["body"] == "HELLO"


def converse(serve, path, name):
    """Loads and predicts through a pair of sockets; the replies."""
    ours, theirs = socket.socketpair()
    served = threading.Thread(target=ignoring_exit, args=(serve, theirs))
    served.start()
    ours.settimeout(wire.PATIENCE_SECONDS)
    ours.sendall(load_message(path.encode(), name.encode()))
    replies = [read_reply(receive(ours))]
    ours.sendall(batch_message(request(b"r", b"hello", b"text/plain")))
    replies.append(read_reply(receive(ours)))
    ours.close()
    served.join(20)
    assert not served.is_alive()
    return replies


def ignoring_exit(serve, connection):
    with contextlib.suppress(SystemExit):
        serve(connection)


def receive(connection):
    data = b""
    while not data.endswith(END):
        data += connection.recv(4096)
    return data


def test_a_worker_says_which_argument_is_missing():
    for arguments, words in [((), "Incomplete data"), (("unix",), "No socket name"), (("tcp",), "No socket port")]:
        with pytest.raises(ValueError, match=words):
            TorchModelServiceWorker(*arguments)


@pytest.mark.parametrize("error, code", [(MemoryError(), 507), (RuntimeError("CUDA"), 507), (RuntimeError("x"), 500)])
def test_a_model_without_resources_is_reported(monkeypatch, tmp_path, error, code):
    worker = TorchModelServiceWorker("unix", str(tmp_path / "s.3"))
    worker.sock.close()
    monkeypatch.setattr(TsModelLoader, "load", _raise(error))
    service, _, status = worker.load_model({"modelName": b"m", "modelPath": b"p", "handler": b"h"})
    assert service is None and status == code


def _raise(error):
    def load(*_args):
        raise error

    return load


@pytest.mark.parametrize("name", ["", "Alone", "json.NoSuchClass"])
def test_a_class_that_cannot_be_imported_is_an_import_error(name):
    with pytest.raises(ImportError):
        import_class(name)


def test_the_launcher_can_be_imported_and_finds_its_program(monkeypatch):
    launcher = importlib.import_module("ts.launcher")
    monkeypatch.setenv("JITNEY_BIN", "/somewhere/jitney")
    assert launcher.program() == ["/somewhere/jitney", "torchserve"]


def test_the_launcher_is_called_as_torchserves(monkeypatch):
    launcher, ran = importlib.import_module("ts.launcher"), []
    monkeypatch.setenv("JITNEY_BIN", "jitney")
    monkeypatch.setattr(launcher.subprocess, "run", lambda command, **_: ran.append(command[2:]))
    started = lambda command, **_: ran.append(command[2:]) or Started()  # noqa: E731
    monkeypatch.setattr(launcher.subprocess, "Popen", started)
    launcher.stop(wait=False)
    lines = launcher.start("store", "c.properties", True, "plugins", True, "all", True)
    assert lines.get(timeout=wire.PATIENCE_SECONDS) is None, "the server said no more"
    launcher.start("store")
    assert ran[0] == ["--stop"] and ran[1] == ["--stop", "--foreground"]
    assert ran[2] == [
        "--start", "--model-store", "store", "--plugins-path", "plugins", "--ts-config", "c.properties",
        "--models", "all", "--no-config-snapshots", "--disable-token-auth", "--enable-model-api",
    ]  # fmt: skip
    assert ran[4] == ["--start", "--model-store", "store"], "tokens are asked for and the model API is off"


def test_the_launcher_returns_where_the_server_does_not_start(monkeypatch, capsys):
    launcher = importlib.import_module("ts.launcher")
    monkeypatch.setenv("JITNEY_BIN", "jitney")
    monkeypatch.setattr(launcher.subprocess, "run", lambda command, **_: None)
    failed = types.SimpleNamespace(stdout=io.StringIO("cannot listen on port 8080\n"))
    monkeypatch.setattr(launcher.subprocess, "Popen", lambda command, **_: failed)
    lines = launcher.start("store")
    assert lines.get(timeout=wire.PATIENCE_SECONDS) is None
    assert "cannot listen" in capsys.readouterr().out


class Started:
    """A server that came up and says no more."""

    def __init__(self):
        self.stdout = io.StringIO("Model server started.\n")


@pytest.mark.parametrize(
    "name",
    [
        "ts.handler_utils.preprocess.dali",
        "ts.handler_utils.distributed.pt_pippy",
        "ts.torch_handler.dali_handler",
        "ts.torch_handler.dali_image_classifier",
        "ts.torch_handler.distributed.base_pippy_handler",
        "ts.torch_handler.trt_llm_handler",
    ],
)
def test_a_handler_that_is_not_ours_says_what_to_use(name):
    with pytest.raises(ImportError, match="not part of Jitney"):
        importlib.import_module(name)


def test_text_is_cut_into_tokens_and_groups_of_them():
    text_utils = importlib.import_module("ts.handler_utils.text_utils")
    words = text_utils.get_tokenizer("basic_english")("You can now install it, using pip!")
    assert words == ["you", "can", "now", "install", "it", ",", "using", "pip", "!"]
    assert list(text_utils.ngrams_iterator(["here", "we", "are"], 2)) == ["here", "we", "are", "here we", "we are"]
    assert text_utils.get_tokenizer(None)("A b") == ["A", "b"] and text_utils.get_tokenizer(len) is len
    for wrong in (("spacy",), ("basic_english", "de")):
        with pytest.raises(ValueError):
            text_utils.get_tokenizer(*wrong)


@pytest.mark.parametrize(
    "name",
    [
        "ts.metrics.metric_abstract",
        "ts.metrics.metric_cache_abstract",
        "ts.model_server",
        "ts.torch_handler.unit_tests.test_utils.model_dir",
        "workflow_archiver.workflow_packaging",
        "workflow_archiver.workflow_packaging_utils",
        "workflow_archiver.version",
    ],
)
def test_modules_that_torchserves_tests_import_are_there(name):
    assert importlib.import_module(name)


def test_an_answer_in_torchserves_wire_format_can_be_added_to():
    answer = otf.create_predict_response(["OK"], {0: "id"}, "success", 200)
    assert isinstance(answer, bytearray) and answer.endswith(sized(b"OK") + END)
    assert isinstance(otf.create_load_model_response(200, "loaded"), bytearray)
