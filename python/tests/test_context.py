"""The context: TorchServe's members, bound lazily and anew to every batch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import wire

from jitney.worker import context as worker_context
from jitney.worker.context import WorkerContext
from ts.context import Context, RequestProcessor


def metas(*items):
    return [meta for meta, _ in items]


def make(cls=WorkerContext):
    return cls("m", "/models/m", {"model": {}}, 4, 2, "0.12.0", False, None, {"k": 1})


@pytest.mark.parametrize("cls", [Context, WorkerContext])
def test_a_context_describes_model_and_server(cls):
    context = make(cls)
    assert (context.model_name, context.manifest, context.model_yaml_config) == ("m", {"model": {}}, {"k": 1})
    assert context.system_properties == {
        "model_dir": "/models/m", "gpu_id": 2, "batch_size": 4, "server_name": "MMS",
        "server_version": "0.12.0", "limit_max_image_pixels": False,
    }  # fmt: skip
    assert (context.request_ids, context.request_processor, context.stopping_criteria) == (None, None, None)
    assert context.cl_socket is None and context.get_request_id() is None
    assert context == make(cls) and context != cls("other", "", {}, 1, None, "")


def test_a_plain_context_serves_unit_tests_of_handlers():
    context = make(Context)
    context.request_ids = {0: "a"}
    context.request_processor = [RequestProcessor({"ts_request_sequence_id": "s1"})]
    context.set_response_status(404, "gone")
    context.set_response_header(0, "k", "v")
    assert (context.get_request_id(), context.get_sequence_id(0)) == ("a", "s1")
    assert context.get_response_status(0) == (404, "gone")
    assert context.get_response_headers(0) == {"k": "v"}
    processor = context.request_processor[0]
    assert (processor.get_response_header("k"), processor.get_response_header("none")) == ("v", None)


def test_headers_are_parsed_only_when_they_are_read(monkeypatch):
    parsed = []
    read = worker_context.read_headers
    monkeypatch.setattr(worker_context, "read_headers", lambda meta: parsed.append(meta) or read(meta))
    context = make()
    context.bind_batch(metas(wire.item(headers=[("a", "0")]), wire.item(headers=[("a", "1")])))
    assert context.request_ids == {0: "r", 1: "r"}
    context.set_response_status(201, "", 0)
    assert parsed == [] and list(context.touched_requests) == [0]
    assert [context.get_request_header(1, key) for key in ("A", "a", "b")] == ["1", "1", None]
    assert len(parsed) == 1


def test_binding_forgets_the_batch_before_but_keeps_the_handlers_attributes():
    context = make()
    context.bind_batch(metas(wire.item(headers=[("a", "0")], request_id="old")))
    context.set_all_response_status(500, "x")
    context.set_response_header(0, "k", "v")
    context.streamed.add(0)
    context.cache = {"mine": 1}
    kept = context.request_processor[0]
    context.bind_batch(metas(wire.item(headers=[("a", "1")], request_id="new")))
    assert (context.get_request_id(0), context.get_request_header(0, "a")) == ("new", "1")
    assert context.get_response_status(0) == (200, None) and context.get_response_headers(0) == {}
    assert context.streamed == set() and context.cache == {"mine": 1}
    assert kept.get_request_property("a") == "0"


def test_positions_outside_the_batch_are_index_errors():
    context = make()
    context.bind_batch(metas(wire.item(), wire.item()))
    assert context.request_processor[-1] is context.request_processor[1]
    with pytest.raises(IndexError):
        context.get_request_header(2, "a")
    with pytest.raises(IndexError):
        make(Context).get_request_header(0, "a")


def test_a_handler_may_replace_ids_and_processors():
    context = make()
    context.bind_batch(metas(wire.item()))
    context.request_ids = {0: "mine"}
    context.request_processor = [RequestProcessor({"a": "b"})]
    assert (context.get_request_id(0), context.get_request_header(0, "a")) == ("mine", "b")


def test_sequence_header_names_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("TS_REQUEST_SEQUENCE_ID", "x-seq")
    assert make().header_key_sequence_id == "x-seq"


def test_importing_everything_needs_no_third_party_package():
    modules = [
        "jitney.worker.__main__",
        "ts",
        "ts.version",
        "ts.context",
        "ts.service",
        "ts.utils.util",
        "ts.handler_utils.utils",
        "ts.protocol.otf_message_handler",
        "ts.launcher",
        "ts.model_loader",
        "ts.model_service.model_service",
        "ts.model_service_worker",
        "ts.metrics.dimension",
        "ts.metrics.metric",
        "ts.metrics.unit",
        "ts.metrics.metric_type_enum",
        "ts.metrics.metrics_store",
        "ts.metrics.metric_cache_yaml_impl",
        "ts.metrics.metric_cache_errors",
        "ts.metrics.caching_metric",
    ]
    program = f"import sys, importlib; sys.path.insert(0, {wire.PYTHON_DIR!r})\n"
    program += f"for name in {modules!r}: importlib.import_module(name)\n"
    program += "assert not {'numpy', 'torch', 'yaml'} & set(sys.modules)\nimport ts; print(ts.__version__)"
    done = subprocess.run([sys.executable, "-IBS", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0.12.0\n"
