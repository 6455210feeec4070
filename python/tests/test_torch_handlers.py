"""Handlers of users' own making over the stock ones, micro-batching, text cleaning, explanations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch_models as models
import wire
from torch_models import EAGER, image, near, torch
from wire import bodies

from jitney.worker.loader import FAILED_NOTE
from ts.handler_utils.micro_batching import MicroBatching
from ts.handler_utils.timer import timed
from ts.torch_handler import base_handler, text_steps
from ts.torch_handler.text_classifier import TextClassifier
from ts.torch_handler.text_steps import CONTRACTION_MAP
from ts.torch_handler.threads import ItemPool
from ts.utils.util import PredictionException


@pytest.fixture
def own(raw_worker, tmp_path):
    """Starts a worker with a handler written for the test, over the small classifier."""

    def start(source, **fields):
        (tmp_path / "handler.py").write_text(source)
        worker = raw_worker()
        worker.load(models.unpack(tmp_path, models.CLASSIFIER), "handler.py", manifest=EAGER, **fields)
        worker.loaded = worker.read_control(wire.LOADED)
        return worker

    return start


GREY = """
from torchvision import transforms
from ts.torch_handler.image_classifier import ImageClassifier

class Grey(ImageClassifier):
    image_processing = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])

    def inference(self, data):
        return data.mean(dim=(2, 3)).repeat(1, 3)

    def postprocess(self, data):
        return data.argmax(1).tolist() if data.shape[1] == 3 else ["colour"] * len(data)
"""


def test_a_transform_of_its_own_gets_the_image_as_it_was_sent(own):
    answers = own(GREY).ask(bodies(image(1, mode="L"), image(2, mode="L")))
    assert [answer["body"] for answer in answers] == [b"0", b"0"]


PREPARED = """
from ts.torch_handler.image_classifier import ImageClassifier

class Prepared(ImageClassifier):
    def preprocess(self, data):
        self.ids = dict(self.context.request_ids)
        return super().preprocess(data)

    def postprocess(self, data):
        return [self.ids[place] == self.context.get_request_id(place) for place in range(len(data))]
"""


def test_a_handler_that_replaces_preprocess_gets_one_batch_at_a_time(own):
    worker = own(PREPARED)
    assert worker.loaded.get("slots", 1) == 1
    assert [answer["body"] for answer in worker.ask(bodies(image(1), image(2)))] == [b"true", b"true"]


FINISHED = """
import json
from ts.torch_handler.image_classifier import ImageClassifier

class Finished(ImageClassifier):
    def postprocess(self, data):
        ids = [self.context.get_request_id(place) for place in range(len(data))]
        self.context.set_response_header(0, "x-first", ids[0])
        self.context.set_response_status(201, "made", 0)
        return ids
"""


def test_later_stages_see_the_context_of_their_own_batch(own):
    worker = own(FINISHED)
    assert worker.loaded["slots"] == 2
    for number in range(4):
        items = [wire.item([("body", "", image(number))], request_id=f"{number}-{place}") for place in range(2)]
        worker.send(wire.batch(items, number))
    for number in range(4):
        _, count, frame_id, payload = worker.read_answer()
        first, second = wire.decode_reply(payload, count)
        assert (
            frame_id == number and first["body"] == f"{number}-0".encode() and second["body"] == f"{number}-1".encode()
        )
        assert first["status"] == 201 and first["headers"] == [["x-first", f"{number}-0"]] and second["status"] == 200


RAISING = """
from ts.torch_handler.image_classifier import ImageClassifier

class Raising(ImageClassifier):
    def inference(self, data):
        if len(data) > 1:
            raise ValueError("too many")
        return super().inference(data)
"""


def test_an_error_in_a_stage_fails_its_batch_and_no_other(own):
    worker = own(RAISING)
    worker.send(wire.batch(bodies(image(1), image(2)), 1) + wire.batch(bodies(image(1)), 2))
    assert worker.read_answer()[0] == wire.FAILED
    assert worker.read_answer()[0] == wire.REPLY


def test_a_worker_of_overlapping_stages_ends_at_stop(own):
    worker = own(FINISHED)
    worker.send(wire.batch(bodies(image(1)), 1) + wire.control(wire.STOP))
    assert worker.read_answer()[0] == wire.REPLY
    assert worker.ended()


MICRO = """
from ts.handler_utils.micro_batching import MicroBatching
from ts.torch_handler.image_classifier import ImageClassifier

class Micro(ImageClassifier):
    def initialize(self, context):
        super().initialize(context)
        settings = context.model_yaml_config["micro_batching"]
        self.handle = MicroBatching(self, settings["micro_batch_size"], settings["parallelism"])
"""


@pytest.mark.parametrize("size", [1, 3, 16])
def test_micro_batching_gives_the_same_answers(own, size):
    contents = [image(seed) for seed in range(8)]
    plain = own("from ts.torch_handler.image_classifier import ImageClassifier\nclass Plain(ImageClassifier): pass\n")
    wanted = [json.loads(answer["body"]) for answer in plain.ask(bodies(*contents))]
    config = {"micro_batching": {"micro_batch_size": size, "parallelism": {"preprocess": 2, "postprocess": 2}}}
    worker = own(MICRO, model_yaml_config=config)
    assert near([json.loads(answer["body"]) for answer in worker.ask(bodies(*contents))], wanted)


def test_a_handler_need_not_call_the_init_of_its_base(own):
    worker = own("""
from ts.handler_utils.micro_batching import MicroBatching
from ts.torch_handler.image_classifier import ImageClassifier

class Hasty(ImageClassifier):
    def __init__(self):
        self.handle = MicroBatching(self)
""")
    (answer,), (described,) = worker.ask(bodies(image(1))), worker.ask([wire.item(headers=[("describe", "True")])])
    assert len(json.loads(answer["body"])) == 5 and json.loads(described["body"])["device"] == "cpu"


class Belt:
    """A handler that needs no torch."""

    def preprocess(self, data):
        return data

    def inference(self, data):
        if "bad" in data:
            raise ValueError("bad")
        return [(value, threading.current_thread().name) for value in data]

    def postprocess(self, data):
        return data


def test_micro_batches_come_out_in_order_after_an_error_too():
    belt = MicroBatching(Belt(), 2, {"inference": 3})
    for _ in range(3):
        with pytest.raises(ValueError, match="bad"):
            belt(["a", "bad", "c", "d", "e"], None)
        assert [value for value, _ in belt(list(range(11)), None)] == list(range(11))
    assert {stage: len(group) for stage, group in belt.thread_groups.items()} == {
        "preprocess": 1, "inference": 3, "postprocess": 1,
    }  # fmt: skip
    belt.parallelism = {"inference": 1}
    assert len(belt.thread_groups["inference"]) == 1
    assert belt.handle([1, 2]) and belt.get_micro_batch_idx() is None, "this thread is on no belt"
    belt.shutdown()
    with pytest.raises(ValueError, match="no stage"):
        belt.parallelism = {"decode": 2}


@pytest.mark.parametrize("what", ["describe", "explain"])
def test_micro_batching_lets_the_handler_describe_and_explain(worker, what):
    one = worker("""
        from ts.handler_utils.micro_batching import MicroBatching

        class Plain:
            def __init__(self): self.handle = MicroBatching(self)
            def initialize(self, context): pass
            def preprocess(self, data): return [row.get("body") for row in data]
            def inference(self, data): return data
            def postprocess(self, data): return ["predicted"] * len(data)
            def describe_handle(self): return "described"
            def explain_handle(self, prepared, raw): return [f"explained {bytes(prepared[0])} {len(raw)}"]
    """)
    (plain,) = one.ask([wire.item([("body", "", b"x")])])
    (answer,) = one.ask([wire.item([("body", "", b"x")], headers=[(what, "True")])])
    assert plain["body"] == b"predicted"
    assert answer["body"] == {"describe": b"described", "explain": b"explained b'x' 1"}[what]


def test_an_explanation_gets_the_first_request_as_it_came():
    class Explaining(base_handler.BaseHandler):
        def get_insights(self, tensor_data, raw_data, target):
            return [tensor_data, raw_data, target]

    handler = Explaining()
    rows = [{"data": "text", "target": 3}, {"body": "other", "target": 4}]
    assert handler.explain_handle("prepared", rows) == ["prepared", "text", 3]
    assert handler.explain_handle("prepared", [{"body": "text"}]) == ["prepared", "text", 0]
    assert handler.explain_handle("prepared", [[1, 2]]) == ["prepared", [1, 2], 0]


def test_a_trace_lies_under_the_name_of_the_archive(monkeypatch, tmp_path):
    monkeypatch.setenv("ENABLE_TORCH_PROFILER", "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    handler = base_handler.BaseHandler()
    handler.manifest, handler.device, handler.model = {"model": {"modelName": "archived"}}, "cpu", torch.nn.Identity()
    assert handler.handle([[1.0]], SimpleNamespace(model_name="registered")) == [[1.0]]
    assert list((tmp_path / "pytorch_profiler/archived").glob("*.pt.trace.json"))


def test_stages_are_timed_where_a_handler_keeps_the_context_alone():
    class Own:
        context = SimpleNamespace(model_yaml_config={"handler": {"profile": 1}}, metrics=Mock())

        @timed
        def inference(self, data):
            return data

    assert Own().inference(7) == 7
    assert Own.context.metrics.add_metric.call_args.args[0] == "ts_handler_inference"


def test_a_pool_keeps_order_and_hands_errors_back_as_values():
    pool = ItemPool(4)
    results = pool.map(lambda value: 1 // value, [1, 0, -1, 2])
    pool.close()
    assert [results[0], *results[2:]] == [1, -1, 0] and isinstance(results[1], ZeroDivisionError)


def test_threads_of_a_pool_start_no_threads_of_torch():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    pool = ItemPool(2)
    torch.set_num_threads(3)
    assert pool.call(torch.get_num_threads) == 1 and torch.get_num_threads() == 3
    pool.close()
    torch.set_num_threads(before)


def test_contractions_are_written_out():
    assert CONTRACTION_MAP["can't"] == "cannot" and CONTRACTION_MAP["I'm"] == "I am"
    assert text_steps.expanded("I can't, they\u2019re here and It's fine") == "I cannot, they are here and It is fine"
    assert text_steps.expanded("cats' and dogs'") == "cats' and dogs'"


def test_text_is_cut_into_words_and_pairs():
    assert text_steps.basic_english("Hello, World! (yes)") == ["hello", ",", "world", "!", "(", "yes", ")"]
    assert list(text_steps.with_ngrams(["a", "b", "c"], 2)) == ["a", "b", "c", "a b", "b c"]


def test_explanations_without_captum_say_what_to_install(own):
    pytest.importorskip("torch")
    worker = own("from ts.torch_handler.image_classifier import ImageClassifier\nclass Plain(ImageClassifier): pass\n")
    answer = worker.ask([wire.item([("body", "", image(1))], headers=[("explain", "True")])])
    try:
        import captum  # noqa: F401
    except ImportError:
        assert answer["cause"] == "prediction" and "pip install captum" in answer["message"]
    else:
        assert torch.tensor(json.loads(answer[0]["body"])).shape == (3, 224, 224)


def test_an_explanation_of_a_text_has_its_words_and_their_importances_and_nothing_else():
    class Even:
        """As captum's: the same share for each of the numbers."""

        def attribute(self, numbers, target, additional_forward_args):
            return torch.ones(len(numbers), 4)

    handler = TextClassifier()
    handler.lig, handler.device, handler.ngrams = Even(), torch.device("cpu"), 1
    handler._tokenize = str.split
    (found,) = handler.get_insights((torch.tensor([3, 1, 2]), "three small words"), None)
    assert found.keys() == {"words", "importances"} and len(found["importances"]) == 3


def test_a_handler_that_skips_all_of_its_base_is_loaded_without_a_complaint(own):
    worker = own("""
from ts.torch_handler.base_handler import BaseHandler

class Skips(BaseHandler):
    def __init__(self):
        self.initialized = False

    def initialize(self, ctx):
        self.initialized = True

    def preprocess(self, requests):
        return [row["body"].decode() for row in requests]

    def inference(self, inputs):
        return [one.upper() for one in inputs]

    def postprocess(self, outputs):
        return outputs
""")
    assert FAILED_NOTE not in json.dumps(worker.loaded)
    assert [answer["body"] for answer in worker.ask(bodies(b"ab", b"c"))] == [b"AB", b"C"]


def test_a_prediction_exception_in_an_answer_fails_its_request_alone(worker):
    one = worker("""
        from ts.utils.util import PredictionException

        def handle(data, context):
            return [PredictionException("not you", 422) if row["body"] == b"x" else "fine" for row in data or []]
    """)
    bad, good = one.ask(bodies(b"x", b"y"))
    assert (bad["outcome"], bad["cause"], bad["status"], bad["body"]) == (1, 3, 422, b"not you")
    assert good["body"] == b"fine"
    assert PredictionException("m", 1).error_code == 1


def test_a_mock_context_is_enough_to_load_and_ask_a_handler(tmp_path):
    from ts.torch_handler.unit_tests.test_utils.mock_context import MockContext

    torch.jit.script(torch.nn.Identity()).save(str(tmp_path / "model.pt"))
    (tmp_path / "settings.yaml").write_text("handler: {a: 1}\n")
    context = MockContext(model_dir=str(tmp_path), model_file=None, model_yaml_config_file="settings.yaml")
    handler = base_handler.BaseHandler()
    handler.initialize(context)
    assert handler.get_device() == torch.device("cpu") and not base_handler.XLA_AVAILABLE
    assert base_handler.PROFILER_AVAILABLE and context.model_yaml_config == {"handler": {"a": 1}}
    assert handler.handle([[1.0, 2.0]], context) == [[1.0, 2.0]]
    context.explain = True
    assert not context.get_request_header(0, "explain") and context.get_request_header(1, "explain")


ASKS_FOR_OPENVINO = """
import sys
from ts.torch_handler import base_handler, compiling
print("openvino" in sys.modules, flush=True)
print(compiling.known("openvino"))
"""


def test_what_registers_itself_with_torch_is_imported_where_it_is_needed(tmp_path):
    (tmp_path / "torch_tensorrt.py").write_text("print('registered')")
    (tmp_path / "openvino").mkdir()
    (tmp_path / "openvino" / "torch.py").write_text("raise OSError('no driver')")
    command = [sys.executable, "-c", ASKS_FOR_OPENVINO]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert ran.stdout == "registered\nFalse\nTrue\n"
    assert "openvino.torch is installed and cannot be imported: no driver" in ran.stderr
