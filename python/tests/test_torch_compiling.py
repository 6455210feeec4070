"""Compiled models: what is configured, what the cache holds, how they come to the graphs. Nothing is compiled here."""

from __future__ import annotations

import gc
import inspect
import json
import os
import sys
import threading
import weakref

import pytest
import torch_models as models
from recorded_calls import ReplayedCalls
from test_torch_warm_up import ask, load, nothing, recorder  # noqa: F401 - fixtures
from torch_models import torch

from jitney.gpu.compile_cache import FILES_MAX, CompileCache, machine_of, sources_of
from jitney.gpu.compiled import CompiledModel, CompilerImport, Slot, inductor_options
from jitney.gpu.graphs import RunShape, SizedModel, Variant
from jitney.gpu.inputs import CannotCompile
from ts.torch_handler import compile_aside, compiling_processes, formats, variants, warm_up
from ts.torch_handler.base_handler import BaseHandler
from ts.torch_handler.compiling import CompilePlan, compile_options, compile_plan
from ts.torch_handler.compiling_processes import CompilingProcesses
from ts.torch_handler.formats import is_script

PT2 = {"compile": {"enable": True}}
SAMPLE = {"jitney_sample.json": [0.1, 0.2, 0.3]}
ROW = [1.0, 2.0, 3.0]


class Compiler:
    """Stands in for torch's: a compiled file holds what it was made for, and calls the model."""

    def __init__(self):
        self.made, self.calls, self.fails_at = [], 0, ()

    def compile_into(self, file, model, example, options):
        if example.count in self.fails_at:
            raise CannotCompile("no such thing")
        self.made.append((example.count, options))
        file.write_text("compiled")

    def compile(self, processes, shapes):
        """In this process instead of another one."""
        compile_aside.compile_model({**processes.request, "shapes": json.loads(json.dumps(shapes))})

    def load_from(self, file, model, answer):
        if file.read_text() != "compiled":
            raise ValueError("broken")

        def call(*args, **kwargs):
            self.calls += 1
            return model(*args, **kwargs)

        return call

    def microseconds(self, call):
        """Compiled code is faster."""
        before = self.calls
        call()
        return 2 if self.calls == before else 1


@pytest.fixture
def compiler(monkeypatch, recorder):  # noqa: F811
    one = Compiler()
    monkeypatch.setattr(variants, "can_compile", lambda: True)
    monkeypatch.setattr(CompilerImport, "start", lambda: None)
    monkeypatch.setattr(CompilingProcesses, "compile", lambda self, shapes: one.compile(self, shapes))
    monkeypatch.chdir(".")  # And back, afterwards.
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr(variants, "compile_into", one.compile_into)
    monkeypatch.setattr(variants, "load_from", one.load_from)
    monkeypatch.setattr(variants, "inductor_options", lambda mode, options: {"mode": mode, **options})
    monkeypatch.setattr(BaseHandler, "_captures", lambda self: True)
    monkeypatch.setattr(recorder, "microseconds", one.microseconds)
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    return one


@pytest.fixture
def start(load, tmp_path):  # noqa: F811
    """A handler whose model is to be compiled, warmed up."""

    def started(pt2=PT2, **more):
        config = {"pt2": pt2, **more.pop("config", {})}
        handler = load(BaseHandler, models.LINEAR, config, files=SAMPLE, compile_cache=str(tmp_path / "cache"), **more)
        return handler, handler.warm_up(nothing)

    return started


def used(handler):
    (graphs,) = handler.model_graphs.sized.graphs.values()
    return {shape.size: graph.variant for shape, graph in graphs.items()}


def test_a_model_is_compiled_once_at_its_sizes_and_found_again(compiler, start, recorder):  # noqa: F811
    handler, report = start()
    assert compiler.made == [(4, {"mode": None}), (1, {"mode": None})]
    assert used(handler) == {4: "compiled", 1: "compiled"} and report.graphs == report.sizes[1] - 2 == 2
    assert ask(handler, ROW) == handler.model(torch.tensor([ROW])).tolist()
    recorded = recorder.recorded
    again, report = start()
    assert len(compiler.made) == 2 and used(again)[4] == "compiled" and "Found the model compiled" in report.notes[0]
    assert recorded == 4 and recorder.recorded == 6, "what was slower is not tried again"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith("inductor")


def test_other_settings_are_compiled_by_themselves(compiler, start, tmp_path):
    start()
    start(config={"jitney": {"precision": "bfloat16"}})
    start({"compile": {"enable": True, "mode": "max-autotune"}})
    assert len(compiler.made) == 6
    start(batch_size=16)
    assert [count for count, _ in compiler.made[6:]] == [16], "the other sizes are there"
    (tmp_path / "helper.py").write_text("changed = True\n")
    start()
    assert len(compiler.made) == 9


def test_a_broken_file_is_made_anew(compiler, start, tmp_path):
    start()
    file = next((tmp_path / "cache").rglob("*.compiled"))
    file.write_text("torn")
    handler, _ = start()
    assert len(compiler.made) == 3 and set(used(handler).values()) == {"compiled"}


def test_sizes_that_cannot_be_compiled_run_as_they_are(compiler, start):
    compiler.fails_at = (1,)
    handler, report = start()
    assert used(handler) == {4: "compiled", 1: "as it is"}
    assert "Compiling the model failed: no such thing" in report.notes
    compiler.fails_at = ()
    handler, _ = start()
    assert used(handler) == {4: "compiled", 1: "compiled"}, "nothing was decided for good"


def test_a_model_that_cannot_be_compiled_has_graphs_as_it_is(compiler, start):
    compiler.fails_at = (1, 4)
    handler, report = start()
    assert set(used(handler).values()) == {"as it is"} and report.graphs == 2
    assert any("The model is not compiled: no batch size" in note for note in report.notes)


def test_the_worker_says_why_a_process_failed(monkeypatch, load):  # noqa: F811
    monkeypatch.setattr(compiling_processes, "MODULE", "ts.torch_handler.no_such_module")
    handler = load(BaseHandler, models.LINEAR)
    with pytest.raises(CannotCompile, match="no_such_module"):
        CompilingProcesses(handler, handler.context).compile([RunShape(1), RunShape(2)])


def test_a_torchscript_program_is_not_compiled_and_that_is_told(compiler, load, tmp_path, recorder):  # noqa: F811
    torch.jit.trace(models.build(models.LINEAR), torch.ones(1, 3)).save(str(tmp_path / "script.pt"))
    manifest = {"model": {"modelName": "m", "serializedFile": "script.pt"}}
    handler = load(BaseHandler, models.LINEAR, {"pt2": PT2}, files=SAMPLE, manifest=manifest)
    assert is_script(handler.model)
    taken = iter([1, 2, 2, 1])  # From the largest size on, as it is and frozen.
    recorder.microseconds = lambda call: next(taken)
    report = handler.warm_up(nothing)
    assert any("TorchScript program cannot be compiled" in note for note in report.notes) and not compiler.made
    assert used(handler) == {4: "as it is", 1: "frozen"}


def test_without_warming_up_torch_compiles_when_the_model_is_called(compiler, load, monkeypatch):  # noqa: F811
    handler = load(BaseHandler, models.LINEAR, {"pt2": PT2})
    assert handler.compile_plan is not None
    monkeypatch.setattr("ts.torch_handler.base_handler.compiled", lambda model, pt2: lambda x: model(x) * 0)
    assert ask(handler, ROW) == [[0.0, 0.0]] and handler.compile_plan is None


def test_this_torch_says_whether_it_can(load, recorder, monkeypatch):  # noqa: F811
    monkeypatch.setattr(BaseHandler, "_captures", lambda self: True)
    monkeypatch.setattr(variants, "can_compile", lambda: False)
    report = load(BaseHandler, models.LINEAR, {"pt2": PT2}, files=SAMPLE).warm_up(nothing)
    assert any("this torch cannot" in note for note in report.notes) and report.graphs == 2


# -- in the background ------------------------------------------------------------------------------


def test_a_model_serves_as_it_is_until_it_is_compiled(compiler, start, monkeypatch):
    begun, go_on, threads = threading.Event(), threading.Event(), []

    def compile_when_told(processes, shapes):
        begun.set()
        assert go_on.wait(60)
        compiler.compile(processes, shapes)

    real = warm_up.BackgroundCompilation.start
    monkeypatch.setattr(CompilingProcesses, "compile", compile_when_told)
    monkeypatch.setattr(warm_up.BackgroundCompilation, "start", lambda self: threads.append(real(self)))
    handler, report = start({"compile": "background"})
    assert begun.wait(60) and not compiler.made
    assert set(used(handler).values()) == {"as it is"} and any("serves as it is until" in note for note in report.notes)
    before = ask(handler, ROW)
    go_on.set()
    threads[0].join()
    assert used(handler) == {4: "compiled", 1: "compiled"} and len(compiler.made) == 2
    assert ask(handler, ROW) == before
    again, _ = start({"compile": "background"})
    assert set(used(again).values()) == {"compiled"} and len(threads) == 1, "what is there is loaded at once"


def test_a_compilation_in_the_background_that_fails_changes_nothing(compiler, start, monkeypatch, caplog):
    threads = []
    real = warm_up.BackgroundCompilation.start
    compiler.fails_at = (1, 4)
    monkeypatch.setattr(warm_up.BackgroundCompilation, "start", lambda self: threads.append(real(self)))
    handler, _ = start({"compile": {"enable": True, "background": True}})
    threads[0].join()
    assert "compiling it in the background failed" in caplog.text and set(used(handler).values()) == {"as it is"}


def test_only_faster_graphs_are_taken_over():
    times = iter([9, 4, 5, 6])
    capture = ReplayedCalls()
    capture.microseconds = lambda call: next(times)
    model = torch.nn.Identity()
    one = SizedModel(model, capture, [1, 2])
    example = (torch.randn(1, 3),)
    one.capture(example, {}, nothing)
    weights = torch.nn.Identity()
    twin = one.twin([Variant("compiled", weights)])
    twin.capture(example, {}, nothing)
    assert one.take(twin) == 1
    alive = weakref.ref(weights)
    del weights, twin
    gc.collect()
    assert alive() is not None, "a graph reads the weights of what was captured"
    (graphs,) = one.graphs.values()
    assert {shape.size: graph.variant for shape, graph in graphs.items()} == {2: "compiled", 1: "as it is"}
    batch = torch.randn(2, 3)
    assert torch.equal(one(batch), batch)


# -- settings and the cache -------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch.compile came with torch 2.0")
def test_background_has_two_spellings():
    plan = CompilePlan(None, {}, True)
    assert compile_plan({"compile": "background"}) == plan
    assert compile_plan({"compile": {"enable": True, "background": True}}) == plan
    assert compile_plan({"compile": {"enable": True}}) == plan._replace(background=False)
    assert compile_plan({"compile": {"enable": True, "backend": "eager"}}) is None and compile_plan(None) is None
    assert compile_options({"compile": "background"}) == {"backend": "inductor"}
    assert compile_plan({"backend": "inductor", "mode": "max-autotune"}).mode == "max-autotune"


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch.compile came with torch 2.0")
def test_modes_come_without_graphs_of_their_own():
    assert inductor_options("reduce-overhead", None) == {}
    assert inductor_options("max-autotune", {"epilogue_fusion": True}).get("max_autotune") is True
    assert "triton.cudagraphs" not in inductor_options("max-autotune", {"triton.cudagraphs": True})
    assert inductor_options(None, {"a": 1}) == {"a": 1}


def test_compiled_code_is_called_with_the_weights_and_the_batch():
    model = torch.nn.Linear(3, 2)
    slots = [Slot("PARAMETER", "model.weight"), Slot("USER_INPUT", ""), Slot("PARAMETER", "model.bias")]

    def function(weight, batch, bias):
        return [batch @ weight.t() + bias, batch]

    compiled = CompiledModel(function, slots, model, {"out": torch.ones(1), "aux": (torch.ones(1), None)})
    batch = torch.randn(4, 3)
    answer = compiled(batch)
    assert torch.allclose(answer["out"], model(batch), atol=1e-6) and answer["aux"] == (batch, None)
    with pytest.raises(CannotCompile, match="neither a parameter nor a buffer"):
        CompiledModel(function, [Slot("CONSTANT_TENSOR", "model.other")], model, None)


def test_the_cache_is_per_torch_and_gpu_and_has_a_bound(tmp_path):
    assert torch.__version__.lower() in machine_of(torch.device("cpu")) and "/" not in machine_of(torch.device("cpu"))
    cache = CompileCache(str(tmp_path), "here")
    cache.path.mkdir()
    assert cache.file(["a", "b"]) != cache.file(["ab"]) and cache.file(["a", "b"]) == cache.file(["a", "b"])
    for number in range(FILES_MAX + 3):
        file = cache.file([str(number)])
        file.write_text("")
        file.with_suffix(".json").write_text("")
        os.utime(file, (number, number))
    cache.trim()
    assert not cache.file(["2"]).exists() and not cache.file(["2"]).with_suffix(".json").exists()
    assert cache.file(["3"]).exists() and len(list(cache.path.glob("*.compiled"))) == FILES_MAX


def test_a_model_is_told_by_its_code(tmp_path):
    (tmp_path / "net.py").write_text("a = 1")
    (tmp_path / "net.pt").write_bytes(b"123")
    before = list(sources_of(str(tmp_path)))
    assert before == list(sources_of(str(tmp_path))) and len(before) == 2
    (tmp_path / "net.py").write_text("a = 2")
    assert list(sources_of(str(tmp_path)))[1] != before[1]


def test_parameters_are_not_filled_before_a_state_dict(tmp_path, monkeypatch):
    source = models.LINEAR.replace(
        "        super().__init__(3, 2)\n",
        """
        super().__init__(3, 2)
        torch.nn.init.ones_(self.weight)
        self.register_buffer("scale", torch.nn.init.ones_(torch.empty(2)), persistent=False)
""",
    )
    path = models.unpack(tmp_path, source)
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.delitem(sys.modules, "net", raising=False)
    wanted, filled = torch.load(path / "net.pt"), torch.nn.init.ones_
    model = formats.load_eager(str(path), "net.py", str(path / "net.pt"), torch.device("cpu"))
    assert torch.equal(model.weight, wanted["weight"]) and torch.equal(model.bias, wanted["bias"])
    assert torch.equal(model.scale, torch.ones(2)), "no parameter"
    assert torch.nn.init.ones_ is filled
    with formats.unfilled_parameters():
        weight = torch.nn.Parameter(torch.zeros(2))
        assert torch.equal(torch.nn.init.ones_(weight), torch.zeros(2))


def mapped(tensor):
    """Whether a tensor lies in pages of a file."""
    start, name = tensor.data_ptr(), ""
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(one, 16) for one in line.split()[0].split("-"))
            name = line.split()[-1] if first <= start < last else name
    return name.endswith("net.pt")


def test_weights_are_pages_of_their_file_where_torch_can_map_it(tmp_path, monkeypatch):
    path = models.unpack(tmp_path, models.LINEAR)
    monkeypatch.syspath_prepend(str(path))
    state = torch.load(path / "net.pt")
    can = "mmap" in inspect.signature(torch.load).parameters
    for kind, wanted in ((torch.float32, can), (torch.float64, False)):
        monkeypatch.delitem(sys.modules, "net", raising=False)
        torch.save({name: one.to(kind) for name, one in state.items()}, path / "net.pt")
        model = formats.load_eager(str(path), "net.py", str(path / "net.pt"), torch.device("cpu"))
        assert torch.equal(model.weight, state["weight"]) and model.weight.dtype == torch.float32
        assert model.weight.requires_grad and mapped(model.weight) == wanted, kind
    with pytest.raises(RuntimeError, match="Unexpected key"):
        formats.take_state(model, {**state, "other": state["bias"]})
