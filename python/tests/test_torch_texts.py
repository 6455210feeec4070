"""Texts of many lengths: padded to allowed lengths and captured at allowed sizes, on CPU tensors."""

from __future__ import annotations

import importlib
import importlib.util
import random
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="NO TORCH HERE: these tests need it (make test-torch)")
from recorded_calls import ReplayedCalls  # noqa: E402

import jitney  # noqa: E402
import jitney.testing  # noqa: E402
from jitney.execution.execution import Instance  # noqa: E402
from jitney.execution.warm_up import warm_up  # noqa: E402
from jitney.gpu import graphed, sized_shapes  # noqa: E402
from jitney.gpu.device import Device  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "encoder.py"
SHAPES = "SIZES, LENGTHS = [1, 2, 4, 8, 16, 32, 64], [32, 64, 128, 256, 512]"
SNIPPET = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def encoder(monkeypatch, tmp_path):
    """The example with a small model and few shapes: on a processor the larger ones take most of a minute."""
    monkeypatch.setenv("ENCODER_SHAPE", "2,32,4")
    source = EXAMPLE.read_text().replace(SHAPES, "SIZES, LENGTHS = [1, 4, 40], [32, 64, 160]")
    assert SHAPES not in source
    (tmp_path / "encoder_example.py").write_text(source)
    spec = importlib.util.spec_from_file_location("encoder_example", tmp_path / "encoder_example.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return module


@pytest.fixture
def recorder(monkeypatch):
    """A GPU that `jitney.graphs` finds, whose tensors are the processor's."""
    made = ReplayedCalls()
    monkeypatch.setattr(graphed, "device", lambda: Device("cuda:0"))
    monkeypatch.setattr(sized_shapes, "CudaCapture", lambda place, stream: made)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda place=None: None)
    monkeypatch.setattr(graphed, "_made", [])
    return made


def texts(count: int) -> list[list[int]]:
    dice = random.Random(7)
    return [[dice.randrange(30000) for _ in range(dice.choice((1, 5, 31, 32, 33, 60, 129)))] for _ in range(count)]


def bare(model: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    """One text by itself, without padding."""
    ids = torch.tensor([tokens])
    with torch.inference_mode():
        return model(ids, torch.ones_like(ids, dtype=torch.bool))[0]


def test_padded_lists_are_tensors_of_an_allowed_length_with_a_mask():
    ids, mask = jitney.pad([[5, 6, 7], [8]], value=1)
    assert ids.tolist() == [[5, 6, 7], [8, 1, 1]]
    assert mask.tolist() == [[True, True, True], [True, False, False]]
    assert jitney.pad([]).values.shape == (0, 0)


def test_texts_answer_padded_and_together_as_they_do_alone(encoder):
    with jitney.testing.load(encoder.Encoder) as served:
        tokens = texts(12)
        answers = served.batch([{"tokens": one} for one in tokens])
        model = served._instance._object.model
        for answer, one in zip(answers, tokens):
            assert torch.allclose(answer, bare(model, one), atol=1e-5)


def test_graphs_are_captured_at_the_shapes_of_the_decorator_while_it_warms_up(encoder, recorder):
    definition = jitney.define(encoder.Encoder)
    instance = Instance(definition)
    told = []
    report = warm_up(instance, lambda done, of, what: told.append(what))
    shapes = definition.default.shapes.all()
    assert (report.notes, report.graphs, recorder.recorded) == ([], len(shapes), len(shapes))
    assert report.sizes == encoder.SIZES
    assert [(row.size, row.length) for row in report.measured] == shapes
    assert f"captured batch size {shapes[0][0]} at length {shapes[0][1]}" in told
    assert told[-1] == "ran 1 item of length 32"

    replayed = recorder.replayed
    tokens = texts(40)
    served = instance._object
    for size in (1, 3, 40):
        answers = instance.call(definition.default, [jitney.testing.Item({"tokens": one}) for one in tokens[:size]])
        for answer, one in zip(answers, tokens):
            assert torch.allclose(answer, bare(served.model.model, one), atol=1e-5)
    assert recorder.replayed == replayed + 3
    assert served.model.training is False, "it has the attributes of the model"


def test_a_model_that_cannot_be_captured_runs_as_it_is_and_says_so_once(recorder):
    class Summing(torch.nn.Module):
        def forward(self, x):
            return x / x.sum()  # What one item gets depends on the others.

    summing = jitney.graphs(Summing(), sizes=[1, 2, 4])
    batch = torch.rand(3, 2) + 1
    for _ in range(2):
        assert torch.equal(summing(batch), batch / batch.sum())
    (note,) = summing.notes
    assert note.startswith("Summing runs without CUDA graphs: the answer for an item depends on the other items")


def test_without_a_gpu_the_model_stays_what_it_is():
    model = torch.nn.Linear(2, 2)
    if not torch.cuda.is_available():
        assert jitney.graphs(model) is model


@pytest.fixture
def snippet(tmp_path, monkeypatch):
    """A file of the page on definitions, imported."""
    monkeypatch.syspath_prepend(tmp_path)
    texts = dict(SNIPPET.findall((ROOT / "docs" / "guides" / "definitions.md").read_text()))

    def load(name: str) -> object:
        (tmp_path / f"{name}.py").write_text(texts[name])
        return importlib.import_module(name)

    return load


def test_the_snippets_of_the_page_on_definitions_run(snippet):
    with jitney.testing.load(snippet("nearest").Nearest) as model:
        assert [int(one) for one in model.batch([{"colour": [200, 9, 0]}, {"colour": [0, 0, 9]}])] == [0, 2]
    with jitney.testing.load(snippet("scorer").Scorer) as model:
        alone = model.call(features=[1.0, 2.0, 3.0])
        assert torch.allclose(alone, model.batch([{"features": [1.0, 2.0, 3.0]}] * 3)[2])
    with jitney.testing.load(snippet("vectors").Vectors) as model:
        one, _ = model.batch([{"tokens": [5]}, {"tokens": list(range(40))}])
        assert torch.allclose(one, model._instance._object.words.weight[5])
