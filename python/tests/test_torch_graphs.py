"""Models captured at allowed sizes, on CPU tensors: a recorded call stands in for a graph of the GPU."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch_models as models
from recorded_calls import ReplayedCalls
from torch_models import torch

from jitney.gpu.graphs import RunShape, SizedModel, Variant
from jitney.gpu.inputs import CannotCapture
from jitney.gpu.trees import difference, rebuilt, structure_of, tensors_of


def nothing(done, of, what):
    """Progress that nobody watches."""


def sized(model, sizes=(1, 2, 4, 8), lengths=(), **more):
    return SizedModel(model, more.pop("capture", None) or ReplayedCalls(), sizes, lengths, **more)


@pytest.fixture
def linear():
    torch.manual_seed(3)
    return torch.nn.Linear(5, 3).eval()


def test_a_batch_is_padded_to_the_next_size_and_its_rows_come_back(linear):
    one = sized(linear)
    one.capture((torch.randn(1, 5),), {}, nothing)
    seen = []
    room = one.graphs[next(iter(one.graphs))][RunShape(4)].inputs[0]
    for count in (1, 3, 4, 8):
        batch = torch.randn(count, 5)
        answer = one(batch)
        assert torch.allclose(answer, linear(batch), atol=1e-6)
        seen.append(torch.equal(room[: min(count, 4)], batch[:4]))
    assert all(seen), "sizes share the memory of the largest"
    assert one.recorder.recorded == 4 and one.captured_sizes() == [1, 2, 4, 8]


def test_a_larger_batch_and_another_shape_go_to_the_model(linear):
    one = sized(linear)
    one.capture((torch.randn(2, 5),), {}, nothing)
    replayed = one.recorder.replayed
    assert one.find((torch.randn(9, 5),), {}) is None and one(torch.randn(9, 5)).shape == (9, 3)
    assert one.find((torch.randn(2, 2, 5),), {}) is None and one(torch.randn(2, 2, 5)).shape == (2, 2, 3)
    assert one.find((torch.randn(0, 5),), {}) is None
    assert one.find(([1.0],), {}) is None and one.find((), {}) is None
    assert one.recorder.replayed == replayed


def test_answers_stay_when_the_next_batch_runs(linear):
    one = sized(linear)
    one.capture((torch.randn(2, 5),), {}, nothing)
    batch = torch.randn(2, 5)
    first = one(batch)
    one(torch.randn(2, 5))
    assert torch.allclose(first, linear(batch), atol=1e-6)


def test_the_input_may_come_in_another_precision_and_layout():
    model = torch.nn.Conv2d(3, 2, 3).eval().to(memory_format=torch.channels_last)
    one = sized(model, to_single=True)
    one.capture((torch.randn(1, 3, 6, 6).contiguous(memory_format=torch.channels_last),), {}, nothing)
    batch = torch.randn(3, 3, 6, 6, dtype=torch.float64)
    answer = one(batch)
    room = next(iter(one.rooms.values()))[None][0]
    assert room.is_contiguous(memory_format=torch.channels_last) and answer.dtype == torch.float32
    assert torch.allclose(answer, model(batch.float()), atol=1e-5)
    assert one.find((torch.zeros(1, 3, 6, 6, dtype=torch.int64),), {}) is None, "numbers are not rounded"


def test_progress_goes_from_the_largest_size_down(linear):
    told = []
    sized(linear).capture((torch.randn(1, 5),), {}, lambda *what: told.append(what))
    assert told[0] == (1, 4, "captured batch size 8") and told[-1] == (4, 4, "captured batch size 1")


class Answer(collections.OrderedDict):
    """A dictionary with attributes, like those of transformers."""


@dataclasses.dataclass
class Pair:
    one: object
    other: object = None


Named = collections.namedtuple("Named", "one other")


@pytest.mark.parametrize(
    "shaped",
    [
        lambda x: x,
        lambda x: (x, x + 1),
        lambda x: [x, {"deep": (x + 2,)}],
        lambda x: Answer(out=x, aux=None),
        lambda x: Pair(x, [x]),
        lambda x: Named(x, x * 2),
    ],
)
def test_answers_keep_their_structure(shaped):
    one = sized(lambda x: shaped(x * 2))
    one.capture((torch.randn(1, 4),), {}, nothing)
    batch = torch.randn(3, 4)
    assert one.find((batch,), {}) is not None
    assert difference(one(batch), shaped(batch * 2)) is None
    assert type(one(batch)) is type(shaped(batch))


def test_several_inputs_and_named_ones_are_told_apart():
    one = sized(lambda x, scale, mask=None: x * scale + (0 if mask is None else mask))
    one.capture((torch.randn(1, 4), 3), {"mask": torch.zeros(1, 4)}, nothing)
    batch, mask = torch.randn(3, 4), torch.randn(3, 4)
    assert torch.equal(one(batch, 3, mask=mask), batch * 3 + mask)
    assert one.find((batch, 3), {"mask": mask}) is not None
    assert one.find((batch, 4), {"mask": mask}) is None and one.find((batch, 3), {}) is None
    assert one.find((batch, 3), {"mask": mask[:2]}) is None


def refused(model, *inputs, match, **more):
    one = sized(model, **more)
    with pytest.raises(CannotCapture, match=match):
        one.capture(inputs or (torch.randn(2, 5),), {}, nothing)
    assert len(one) == 0 and not one.rooms
    return one


def test_a_model_whose_rows_depend_on_each_other_is_found_out():
    refused(torch.nn.BatchNorm1d(5).train(), match="depends on the other|differ|Expected more than 1 value")
    refused(lambda x: x - x.mean(0, keepdim=True), match="depends on the other items")
    torch.nn.BatchNorm1d(5).eval()
    sized(torch.nn.BatchNorm1d(5).eval()).capture((torch.randn(2, 5),), {}, nothing)


def test_a_model_with_dropout_is_captured_in_eval_only():
    refused(torch.nn.Dropout(0.5).train(), torch.ones(2, 5), match="differ|depends")
    sized(torch.nn.Dropout(0.5).eval()).capture((torch.ones(2, 5),), {}, nothing)


def test_answers_without_a_row_per_item_are_found_out():
    refused(lambda x: x.sum(), match="one row per item")
    refused(lambda x: (x, x.mean(0)), match="one row per item")
    refused(lambda x: (x, 7), match="tensors only")
    refused(lambda x: None, match="tensors only")
    refused(lambda x, y: x, torch.randn(2, 5), torch.randn(3, 5), match="one row per item")


class Broken(ReplayedCalls):
    """Cannot record what is larger than a limit, for some reason."""

    def __init__(self, error, limit=0):
        super().__init__()
        self.error, self.limit = error, limit

    def record(self, call):
        if len(tensors_of(call())[0]) > self.limit:
            raise self.error
        return super().record(call)


def test_a_model_that_cannot_be_recorded_runs_as_before(linear):
    error = RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")
    one = refused(linear, match="not permitted when stream is capturing", capture=Broken(error))
    batch = torch.randn(3, 5)
    assert torch.equal(one(batch), linear(batch))


def test_smaller_sizes_stay_where_memory_ends(linear):
    one = sized(linear, capture=Broken(RuntimeError("CUDA out of memory. Tried"), limit=2))
    told = []
    one.capture((torch.randn(2, 5),), {}, lambda *what: told.append(what[2]))
    assert one.captured_sizes() == [1, 2] and len(one.notes) == 2 and "too little memory" in one.notes[0]
    assert told[0] == "no memory for batch size 8"
    assert one.find((torch.randn(3, 5),), {}) is None and one(torch.randn(3, 5)).shape == (3, 3)
    refused(linear, match="too little memory", capture=Broken(RuntimeError("CUDA out of memory. Tried")))


def test_values_that_overflow_in_both_count_as_equal():
    one = sized(lambda x: torch.where(x > 0, torch.full_like(x, float("nan")), x))
    one.capture((torch.tensor([[1.0, -1.0]]),), {}, nothing)
    assert len(one) == 4


@pytest.mark.parametrize(
    ("kind", "near", "far"), [("float16", 1e-2, 5e-2), ("bfloat16", 3e-2, 0.2), ("float32", 5e-4, 5e-3)]
)
def test_the_tolerance_is_that_of_the_precision(kind, near, far):
    wanted = torch.tensor([1.0, 0.25]).to(getattr(torch, kind))
    assert difference(wanted + near, wanted) is None
    assert "differ by" in difference(wanted + far, wanted)


def test_differences_are_told():
    ones = torch.ones(2)
    assert difference((ones,), [ones]) == "another structure"
    assert "instead of" in difference(ones, torch.ones(3))
    assert "whole numbers" in difference(torch.tensor([1, 2]), torch.tensor([1, 3]))
    infinite = torch.tensor([1.0, float("inf")])
    assert "not finite" in difference(infinite, ones) and "not finite" in difference(ones, infinite)
    assert difference(ones, infinite, other_way=True) is None
    assert "not finite" in difference(infinite, ones, other_way=True)
    assert difference(infinite, torch.tensor([1.0, float("nan")])) is None
    assert difference(torch.ones(0), torch.ones(0)) is None


class Timed(ReplayedCalls):
    """Calls take what was set for them, one after another."""

    def __init__(self, *taken):
        super().__init__()
        self.taken = list(taken)

    def microseconds(self, call):
        return self.taken.pop(0)


def test_the_fastest_variant_of_each_size_is_kept(linear):
    other = Variant("frozen", lambda x: linear(x) + 0)
    # Sizes 2 and 1, each as it is and frozen.
    one = sized(linear, (1, 2), capture=Timed(10, 12, 9, 4), variants=[Variant("as it is", linear), other])
    one.capture((torch.randn(1, 5),), {}, nothing)
    (graphs,) = one.graphs.values()
    assert {shape.size: graph.variant for shape, graph in graphs.items()} == {2: "as it is", 1: "frozen"}
    assert one.measured() == [(1, 0, 4), (2, 0, 10)]


def test_what_was_the_fastest_before_is_tried_first(linear):
    one = sized(linear, (1, 2), variants=[Variant("as it is", linear), Variant("frozen", lambda x: linear(x) + 0)])
    one.preferred = {"batch size 2": "frozen", "batch size 1": "gone"}
    one.capture((torch.randn(1, 5),), {}, nothing)
    assert one.choices() == {"batch size 2": "frozen", "batch size 1": "as it is"} and one.recorder.recorded == 3
    broken = Variant("frozen", lambda x: linear(x) * 2)
    one = sized(linear, (2,), variants=[Variant("as it is", linear), broken])
    one.preferred = {"batch size 2": "frozen"}
    one.capture((torch.randn(1, 5),), {}, nothing)
    assert one.choices() == {"batch size 2": "as it is"}


def test_a_variant_that_answers_otherwise_is_not_used(linear):
    def breaks(x):
        raise ValueError("no")

    for other, told in ((lambda x: linear(x) * 2, "differ"), (breaks, "ValueError: no")):
        one = sized(linear, (2,), variants=[Variant("frozen", other), Variant("as it is", linear)])
        one.capture((torch.randn(1, 5),), {}, nothing)
        (graphs,) = one.graphs.values()
        assert graphs[RunShape(2)].variant == "as it is"
        assert "frozen is not used at batch size 2" in one.notes[0] and told in one.notes[0]


class Encoder(torch.nn.Module):
    """Sums of embeddings under a mask, per word and per text."""

    def __init__(self, masked=True, width=6):
        super().__init__()
        self.embedding, self.masked = torch.nn.Embedding(50, width), masked

    def forward(self, ids, mask):
        words = self.embedding(ids)
        weights = mask.unsqueeze(-1).to(words.dtype) if self.masked else torch.ones_like(words)
        pooled = (words * weights).sum(1) / weights.sum(1).clamp(min=1)
        return {"words": words + pooled.unsqueeze(1), "pooled": pooled}


def text(count, length):
    return torch.randint(1, 50, (count, length)), torch.ones(count, length, dtype=torch.int64)


@pytest.mark.parametrize("width", [6, 8])
def test_texts_run_at_the_next_size_and_length(width):
    torch.manual_seed(5)
    model = Encoder(width=width).eval()
    one = sized(model, (1, 4), (4, 8))
    one.capture(text(1, 6), {}, nothing)
    assert one.recorder.recorded == 4 and one.captured_sizes() == [1, 4]
    for count, length in ((1, 1), (1, 8), (3, 5), (4, 4), (2, 7), (3, 3)):
        ids, mask = text(count, length)
        mask[0, -1:] = 0
        replay = one.find((ids, mask), {})
        assert replay is not None and difference(replay(), model(ids, mask)) is None
    assert one.find(text(1, 9), {}) is None and one.find(text(5, 4), {}) is None


def test_a_model_that_minds_padding_has_no_graphs():
    refused(Encoder(masked=False).eval(), *text(1, 6), match="change when inputs are padded", lengths=(4, 8))
    refused(Encoder().eval(), *text(1, 1), match="too short", lengths=(4, 8))


def test_kinds_of_input_have_a_bound():
    one = sized(torch.nn.Identity(), (1,))
    for width in range(1, 5):
        batch = (torch.randn(1, width),)
        assert not one.knows(batch, {})
        one.capture(batch, {}, nothing)
        assert one.knows(batch, {})
    assert one.knows((torch.randn(1, 9),), {}) and len(one) == 4


def test_the_classifier_of_the_other_tests_can_be_captured():
    model = models.build(models.CLASSIFIER)
    one = sized(model)
    one.capture((torch.randn(1, 3, 224, 224),), {}, nothing)
    batch = torch.randn(5, 3, 224, 224)
    assert torch.allclose(one(batch), model(batch), atol=1e-5)


def test_answers_of_transformers_are_kept_and_its_inputs_read():
    transformers = pytest.importorskip("transformers", reason="NO TRANSFORMERS HERE")
    answer = transformers.modeling_outputs.BaseModelOutputWithPooling(
        last_hidden_state=torch.ones(2, 3), pooler_output=torch.ones(2, 1)
    )
    fresh = rebuilt(answer, lambda tensor: tensor + 1)
    assert type(fresh) is type(answer) and torch.equal(fresh.pooler_output, torch.full((2, 1), 2.0))
    assert torch.equal(answer.pooler_output, torch.ones(2, 1)) and structure_of(fresh) == structure_of(answer)
    given = transformers.BatchEncoding({"input_ids": torch.ones(2, 3)})
    assert torch.equal(rebuilt(given, lambda tensor: tensor * 5)["input_ids"], torch.full((2, 3), 5.0))
    assert given["input_ids"][0, 0] == 1
