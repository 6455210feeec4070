"""Handlers warmed up on the CPU, with recorded calls for graphs: what is captured, what is not, and what is told."""

from __future__ import annotations

import json
import os
import sys

import pytest
import torch_models as models
import wire
from recorded_calls import ReplayedCalls
from torch_models import image, near, torch

from ts.context import Context
from ts.torch_handler import model_form, model_graphs, warm_up
from ts.torch_handler.base_handler import BaseHandler
from ts.torch_handler.image_classifier import ImageClassifier
from ts.torch_handler.text_classifier import TextClassifier


@pytest.fixture
def recorder(monkeypatch):
    """Graphs without a GPU."""
    one = ReplayedCalls()
    monkeypatch.setattr(warm_up, "capture_for", lambda device, stream: one)
    return one


@pytest.fixture
def load(tmp_path, monkeypatch):
    """A handler with a model, initialised."""

    def loaded(handler, source, config=None, batch_size=4, files=None, manifest=models.EAGER, **context):
        path = models.unpack(tmp_path, source, **(files or {}))
        monkeypatch.syspath_prepend(str(path))
        monkeypatch.delitem(__import__("sys").modules, "net", raising=False)
        about = Context("m", str(path), manifest, batch_size, None, "1", model_yaml_config=config or {})
        for name, value in context.items():
            setattr(about, name, value)
        one = handler()
        one.initialize(about)
        return one

    return loaded


def nothing(done, of, what):
    """Progress that nobody watches."""


def ask(handler, *contents):
    return handler.handle([{"body": content} for content in contents], handler.context)


class LoadsAsItLikes(BaseHandler):
    def __init__(self):
        self.initialized = False

    def initialize(self, context):
        self.initialized = True


def test_a_handler_that_replaces_what_the_base_sets_up_is_not_warmed_up():
    handler = LoadsAsItLikes()
    handler.initialize(None)
    assert handler.warm_up(nothing) == warm_up.WarmUpReport()


def test_an_image_handler_is_captured_at_its_sizes(load, recorder):
    handler = load(ImageClassifier, models.CLASSIFIER, batch_size=4)
    pictures = [image(seed) for seed in range(3)]
    wanted, told = ask(handler, *pictures), []
    report = handler.warm_up(lambda *what: told.append(what))
    assert report.sizes == [1, 2, 4] and report.graphs == 3 and not report.notes
    assert [(one.size, one.prepare_us > 0, one.model_us) for one in report.measured] == [
        (1, True, 1), (2, True, 1), (4, True, 1)
    ]  # fmt: skip
    assert told[-1] == (3, 3, "captured batch size 1")
    replayed = recorder.replayed
    assert near([list(one.values()) for one in ask(handler, *pictures)], [list(one.values()) for one in wanted])
    assert recorder.replayed == replayed + 1
    assert handler.describe_handle()["cudaGraphs"] == {"count": 3, "sizes": [1, 2, 4], "bytes": 0}


def test_a_bad_image_fails_alone_at_the_size_of_the_others(load, recorder):
    handler = load(ImageClassifier, models.CLASSIFIER)
    handler.warm_up(nothing)
    good, bad, other = ask(handler, image(1), b"no image", image(2))
    assert "cannot be decoded" in str(bad) and near(list(good.values()), list(ask(handler, image(1))[0].values()))
    assert other == ask(handler, image(2))[0]


def test_sizes_are_the_operators_where_there_are_some(load, recorder):
    handler = load(ImageClassifier, models.CLASSIFIER, batch_size=6, batch_sizes=[3, 1, 16], batch_lengths=[])
    assert handler.warm_up(nothing).sizes == [1, 3, 16]
    assert len(ask(handler, *[image(1)] * 5)) == 5


def test_half_precision_comes_out_in_single(load, recorder):
    config = {"jitney": {"precision": "bfloat16", "channels_last": True}}
    handler = load(ImageClassifier, models.CLASSIFIER, config)
    prepared = handler.begin([{"body": image(1)}], handler.context).batch
    plain = handler.inference(prepared)
    assert handler.warm_up(nothing).graphs == 3
    replayed = handler.inference(prepared)
    assert replayed.dtype == torch.float32 and torch.allclose(plain, replayed, atol=0.02)
    (room,) = next(iter(handler.model_graphs.sized.rooms.values()))[None]
    assert room.dtype == torch.bfloat16 and room.is_contiguous(memory_format=torch.channels_last)


def test_without_a_gpu_and_where_it_is_off_nothing_is_captured(load, monkeypatch, recorder):
    handler = load(ImageClassifier, models.CLASSIFIER, {"jitney": {"cuda_graphs": "off"}})
    report = handler.warm_up(nothing)
    assert (report.sizes, report.measured, report.graphs) == ([], [], 0) and handler.model_graphs is None
    assert "cudaGraphs" not in handler.describe_handle()
    monkeypatch.setattr(warm_up, "capture_for", model_graphs.capture_for)
    handler = load(ImageClassifier, models.CLASSIFIER)
    assert handler.warm_up(nothing).sizes == [] and handler.model_graphs is None


class OwnInference(ImageClassifier):
    def inference(self, data, *args, **kwargs):
        return super().inference(data, *args, **kwargs)


def test_a_handler_with_its_own_inference_runs_as_it_is(load, recorder):
    handler = load(OwnInference, models.CLASSIFIER)
    assert handler.warm_up(nothing).graphs == 0 and recorder.recorded == 0
    assert len(ask(handler, image(1))) == 1


def test_bags_of_words_have_no_rows_and_are_not_captured(load, recorder, tmp_path):
    tmp_path.mkdir(exist_ok=True)
    torch.save({"a": 1, "b": 2, "<unk>": 0}, tmp_path / "source_vocab.pt")
    handler = load(TextClassifier, models.BAG_OF_WORDS)
    assert handler.warm_up(nothing).graphs == 0 and len(ask(handler, "a b", "b")) == 2


def test_a_sample_of_the_archive_gives_the_shape(load, recorder):
    handler = load(BaseHandler, models.LINEAR, files={"jitney_sample.json": [0.1, 0.2, 0.3]})
    report = handler.warm_up(nothing)
    assert report.graphs == 3 and not report.notes
    assert near(ask(handler, [1.0, 2.0, 3.0]), handler.model(torch.tensor([[1.0, 2.0, 3.0]])).tolist())


class OwnPreprocess(BaseHandler):
    def preprocess(self, data):
        return torch.tensor([json.loads(row["body"])["x"] for row in data])


@pytest.mark.parametrize("sample", [{"x": [1.0, 2.0, 3.0]}, None])
def test_a_handler_with_its_own_preprocess_has_graphs(load, recorder, sample):
    files = {"jitney_sample.bin": json.dumps(sample).encode()} if sample else {}
    handler = load(OwnPreprocess, models.LINEAR, {"jitney": {"precision": "float32"}}, files=files)
    report = handler.warm_up(nothing)
    assert report.graphs == (3 if sample else 0)
    assert bool(report.notes) is (sample is None)
    bodies = [json.dumps({"x": [float(number), 1.0, 2.0]}) for number in range(3)]
    wanted = handler.model(torch.tensor([[float(number), 1.0, 2.0] for number in range(3)])).tolist()
    for _ in range(3):
        assert near(ask(handler, *bodies), wanted)
    assert recorder.recorded == 3 and recorder.replayed >= 2


def test_shapes_that_come_once_are_not_captured(load, recorder, caplog):
    class Wide(torch.nn.Module):
        def forward(self, x):
            return x * 2

    handler = load(BaseHandler, models.LINEAR)
    handler.model = Wide()
    handler.warm_up(nothing)
    with caplog.at_level("INFO"):
        for width in range(1, 30):
            assert ask(handler, [1.0] * width) == [[2.0] * width]
    assert recorder.recorded == 0 and handler.model_graphs.seen is None
    assert "too many different shapes" in caplog.text


def test_a_model_that_cannot_be_captured_is_told_once_and_serves(load, recorder):
    handler = load(BaseHandler, models.LINEAR, files={"jitney_sample.json": [0.1, 0.2, 0.3]})

    class Mixing(torch.nn.Module):
        def forward(self, x):
            return x - x.mean(0)

    handler.model = Mixing()
    report = handler.warm_up(nothing)
    (note,) = report.notes
    assert note.startswith("The model runs without CUDA graphs: ") and report.sizes == [] and report.graphs == 0
    assert ask(handler, [1.0, 2.0], [3.0, 4.0]) == [[-1.0, -1.0], [1.0, 1.0]]


def test_a_sample_that_cannot_be_prepared_is_told(load, recorder):
    handler = load(OwnPreprocess, models.LINEAR, files={"jitney_sample.bin": b"{"})
    (note,) = handler.warm_up(nothing).notes
    assert "sample cannot be prepared" in note


def test_explanations_go_through_the_model(load, recorder):
    class Explaining(ImageClassifier):
        def get_insights(self, tensor_data, raw_data, target=0):
            return [type(self.model).__name__]

    handler = load(Explaining, models.CLASSIFIER)
    handler.warm_up(nothing)
    handler.context.request_processor = [
        type("Headers", (), {"get_request_property": lambda self, key: str(key == "explain")})()
    ]
    replayed = recorder.replayed
    assert ask(handler, image(1)) == ["Classifier"] and recorder.replayed == replayed


def native_threads() -> set[str]:
    """All threads of this process, those of libraries too."""
    return set(os.listdir("/proc/self/task"))


def test_the_first_requests_find_everything_there(raw_worker, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    worker = raw_worker()
    made = models.unpack(tmp_path, models.CLASSIFIER)
    worker.load(made, "image_classifier", manifest=models.EAGER, batch_size=4)
    assert worker.read_control(wire.LOADED)["slots"] == 2
    threads, modules = native_threads(), set(sys.modules)
    pictures = [image(seed, form="JPEG") for seed in range(4)]
    worker.ask(wire.bodies(pictures[0]))
    for number, count in enumerate((1, 4, 4, 1)):
        worker.send(wire.batch(wire.bodies(*pictures[:count]), number))
    assert [worker.read_timed()[1][0] for _ in range(4)] == [wire.REPLY] * 4
    assert native_threads() <= threads and set(sys.modules) == modules


def test_a_stage_of_the_users_own_sees_no_picture_that_nobody_sent(load):
    class OwnAnswers(ImageClassifier):
        def postprocess(self, data):
            raise AssertionError

    assert load(OwnAnswers, models.CLASSIFIER).warm_up(nothing).samples == []
    assert [len(rows) for rows in load(ImageClassifier, models.CLASSIFIER).warm_up(nothing).samples] == [1, 4]


class TimedCalls(ReplayedCalls):
    """Recorded calls of which the first ones take what is said here."""

    def __init__(self, *taken: int) -> None:
        super().__init__()
        self.taken = list(taken)

    def microseconds(self, call):
        return self.taken.pop(0) if self.taken else super().microseconds(call)


def formed(load, monkeypatch, config, *taken, source=models.CLASSIFIER):
    """A handler after warming up, in which the trials of its forms take so long, and the notes."""
    recorder = TimedCalls(*taken)
    monkeypatch.setattr(warm_up, "capture_for", lambda device, stream: recorder)
    monkeypatch.setattr(model_form, "HALF", "bfloat16")  # Which a processor can do.
    handler = load(ImageClassifier, source, {"jitney": config} if config else {})
    wanted = ask(handler, image(1))
    notes = handler.warm_up(nothing).notes
    assert near([list(one.values()) for one in ask(handler, image(1))], [list(one.values()) for one in wanted])
    return handler, notes


def is_channels_last(handler) -> bool:
    weight = handler.model.features.weight
    return weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


def test_without_settings_a_model_gets_the_layout_that_is_faster(load, monkeypatch):
    handler, notes = formed(load, monkeypatch, None, 2000, 1500, 900)
    assert is_channels_last(handler) and handler.describe_handle()["channelsLast"] is True
    layout, half = notes
    assert layout.startswith("The model runs in channels-last, which takes 1.50 ms instead of 2.00 for a batch of 4 ")
    assert half.startswith("Half precision would take 0.90 ms instead of 1.50 for a batch of 4; ")
    assert half.endswith("jitney: {precision: bfloat16}")
    assert handler.describe_handle()["precision"] == "float32" and handler.model.features.weight.dtype == torch.float32
    batch = handler.begin([{"body": image(1)}], handler.context).batch
    assert handler.inference(batch).dtype == torch.float32


@pytest.mark.parametrize(
    ("config", "taken", "told"),
    [
        (None, (2000, 1990, 1990), []),
        ({"channels_last": False}, (2000, 900), ["Half precision"]),
        ({"precision": "float32"}, (2000, 2100), []),
        ({"channels_last": False, "precision": "float32"}, (), []),
    ],
)
def test_what_is_not_faster_or_was_decided_stays(load, monkeypatch, config, taken, told):
    handler, notes = formed(load, monkeypatch, config, *taken)
    assert not is_channels_last(handler) and [note[:14] for note in notes] == told


def test_a_layout_that_answers_otherwise_is_not_taken(load, monkeypatch):
    fickle = models.CLASSIFIER.replace("self.head(", "(1 if self.features.weight.is_contiguous() else 2) * self.head(")
    handler, notes = formed(load, monkeypatch, {"precision": "float32"}, 2000, 1000, source=fickle)
    assert not is_channels_last(handler)
    (note,) = notes
    assert note.startswith(
        "Channels-last would take 1.00 ms instead of 2.00 for a batch of 4, but its answers differ: "
    )


def test_a_layout_that_the_models_author_chose_stays(load, monkeypatch):
    own = models.CLASSIFIER.replace(
        "        self.head =", "        self.features.to(memory_format=torch.channels_last)\n        self.head ="
    )
    handler, notes = formed(load, monkeypatch, {"precision": "float32"}, 2000, 3000, source=own)
    assert is_channels_last(handler) and not notes
