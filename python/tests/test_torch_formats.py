"""The forms a model may come in, the options it may be loaded with, and what is said when something is missing."""

from __future__ import annotations

import logging
import shutil
import sys

import pytest
import torch_models as models
import wire
from torch_models import EAGER, near, torch

from ts.context import Context
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from ts.torch_handler.base_handler import BaseHandler
from ts.torch_handler.compiling import compile_options, compiled
from ts.torch_handler.devices import choose_device

ROWS = [{"body": [1.0, 2.0, 3.0]}, {"body": [0.5, 0.0, -1.0]}]


def expected():
    """The linear model's answer for the rows."""
    return models.build(models.LINEAR)(torch.tensor([row["body"] for row in ROWS])).tolist()


def context_of(directory, manifest, config=None, gpu=None):
    """A context as the worker makes it."""
    metrics = MetricsCacheYamlImpl()
    metrics.set_model_name("m")
    return Context("m", str(directory), manifest, 2, gpu, "0.12.0", True, metrics, config)


def ready(directory, manifest, config=None):
    """A base handler that has loaded a model."""
    sys.path.insert(0, str(directory))
    handler = BaseHandler()
    handler.initialize(context_of(directory, manifest, config))
    return handler


def serialized(name):
    """The manifest of a model without a model file."""
    return {"model": {"modelName": "m", "serializedFile": name}}


def test_a_state_dict_is_loaded_into_the_class_of_the_model_file(tmp_path):
    handler = ready(models.unpack(tmp_path, models.LINEAR), EAGER)
    assert near(handler.handle(ROWS, handler.context), expected())
    assert handler.initialized and handler.device.type == "cpu" and handler.mapping is None
    assert not handler.model.training


def test_a_torchscript_program_needs_no_model_file(tmp_path):
    torch.jit.trace(models.build(models.LINEAR), torch.ones(2, 3)).save(str(tmp_path / "net.pt"))
    handler = ready(tmp_path, serialized("net.pt"))
    assert near(handler.handle(ROWS, handler.context), expected())


def test_an_onnx_model_runs_in_onnx_runtime(tmp_path):
    pytest.importorskip("onnxruntime", reason="NO ONNXRUNTIME HERE")
    path = wire.PYTHON_DIR + "/../models/magika/model.onnx"
    (tmp_path / "net.onnx").symlink_to(path)
    handler = ready(tmp_path, serialized("net.onnx"))
    answers = handler.handle([{"body": [65] * 2048}] * 3, handler.context)
    assert len(answers) == 3 and len(answers[0]) == 214 and sum(answers[0]) == pytest.approx(1, abs=1e-3)


@pytest.mark.skipif(not hasattr(torch, "export"), reason="torch.export came with torch 2.1")
def test_an_exported_program_is_a_model(tmp_path):
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        models.build(models.LINEAR), (torch.ones(2, 3),), dynamic_shapes={"input": {0: batch}}
    )
    torch.export.save(program, tmp_path / "net.pt2")
    handler = ready(tmp_path, serialized("net.pt2"))
    assert near(handler.handle(ROWS, handler.context), expected())


@pytest.mark.skipif(not hasattr(torch, "export"), reason="AOTInductor packages came with torch 2.6")
def test_an_aotinductor_package_is_a_model(tmp_path):
    inductor = pytest.importorskip("torch._inductor")
    if not hasattr(inductor, "aoti_compile_and_package") or not shutil.which("g++"):
        pytest.skip("needs torch 2.6 and a C++ compiler")
    batch = torch.export.Dim("batch", min=1, max=64)
    example = (torch.ones(2, 3),)
    program = torch.export.export(models.build(models.LINEAR), example, dynamic_shapes={"input": {0: batch}})
    inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "net.pt2"))
    handler = ready(tmp_path, serialized("net.pt2"))
    assert near(handler.handle(ROWS, handler.context), expected())


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch.compile came with torch 2.0")
def test_a_model_is_compiled_when_its_configuration_says_so(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    config = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}
    handler = ready(models.unpack(tmp_path, models.LINEAR), EAGER, config)
    assert near(handler.handle(ROWS, handler.context), expected())
    assert "Compiled model with backend eager" in caplog.text


@pytest.mark.parametrize(
    ("pt2", "options"),
    [
        ("inductor", {"backend": "inductor"}),
        ("nonsense", None),
        ({"backend": "eager", "mode": "max-autotune"}, {"backend": "eager", "mode": "max-autotune"}),
        ({"compile": {"enable": True}}, {"backend": "inductor"}),
        ({"compile": {"enable": False, "backend": "eager"}}, None),
        ({"compile": {"backend": "eager"}}, None),
        ({"export": {"aot_compile": True}}, None),
        (None, None),
    ],
)
def test_compile_options_have_three_spellings(pt2, options):
    assert compile_options(pt2) == options


def test_a_model_that_cannot_be_compiled_runs_as_it_is(monkeypatch):
    monkeypatch.delattr(torch, "compile", raising=False)
    assert compiled("model", "inductor") == "model"


@pytest.mark.parametrize("name", ["net.so", "net.bin"])
def test_an_unknown_form_is_rejected(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(RuntimeError, match=f"No model weights could be loaded: {name}"):
        ready(tmp_path, serialized(name))


def test_two_classes_in_a_model_file_are_rejected(tmp_path):
    models.unpack(tmp_path, models.LINEAR)
    (tmp_path / "net.py").write_text(models.LINEAR + "class Other: pass\n")
    with pytest.raises(ValueError, match="Expected only one class as model definition"):
        ready(tmp_path, EAGER)


def test_a_gpu_is_used_only_where_the_server_assigned_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert str(choose_device(1)) == "cuda:1"
    assert choose_device(None).type != "cuda"
    assert str(choose_device(1, "cpu")) == "cpu"


def test_profiled_handlers_report_the_time_of_every_stage(tmp_path, caplog):
    caplog.set_level("INFO")
    handler = ready(models.unpack(tmp_path, models.LINEAR), EAGER, {"handler": {"profile": True}})
    handler.handle(ROWS, handler.context)
    lines = caplog.text
    for name in ("ts_handler_preprocess", "ts_handler_inference", "ts_handler_postprocess", "HandlerTime"):
        assert f"[METRICS]{name}.Milliseconds:" in lines


def test_the_torch_profiler_writes_a_trace(tmp_path, monkeypatch):
    monkeypatch.setenv("ENABLE_TORCH_PROFILER", "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "traces"))
    handler = ready(models.unpack(tmp_path / "model", models.LINEAR), EAGER)
    assert near(handler.handle(ROWS, handler.context), expected())
    assert list((tmp_path / "traces" / "pytorch_profiler" / "m").iterdir())


def test_a_handler_without_torch_says_what_to_install(raw_worker, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("ts.torch_handler")]:
        monkeypatch.delitem(sys.modules, name)
    worker = raw_worker()
    worker.load(tmp_path, "image_classifier")
    message = worker.read_control(wire.LOAD_FAILED)["message"]
    assert "needs torch" in message and "pip install torch" in message


def test_a_description_tells_device_and_threads(worker_of_linear):
    item = wire.item([("body", "", b"")], headers=[("describe", "True")])
    (answer,) = worker_of_linear.ask([item])
    assert b'"device": "cpu"' in answer["body"] and b'"torchThreads"' in answer["body"]


@pytest.fixture
def worker_of_linear(raw_worker, tmp_path):
    """A worker with the base handler."""
    one = raw_worker()
    one.load(models.unpack(tmp_path, models.LINEAR), "base_handler", manifest=EAGER)
    one.read_control(wire.LOADED)
    return one
