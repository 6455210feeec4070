"""Stock handlers answer what a bare PyTorch script answers: alone, in a batch of 8, and over a worker's socket."""

from __future__ import annotations

import base64
import io
import itertools
import json

import pytest
import torch_models as models
from torch_models import EAGER, image, imagenet, near, torch
from wire import batch, bodies, decode_reply

LABELS = {str(number): ["synset", f"class-{number}"] for number in range(10)}
IMAGES = [image(seed) for seed in range(8)]


def ask(worker, contents, content_type=""):
    """What a worker answers, parsed."""
    return [json.loads(item["body"]) for item in worker.ask(bodies(*contents, content_type=content_type))]


@pytest.fixture
def loaded(raw_worker, tmp_path):
    """Starts a worker with a stock handler and one of the small models."""

    def start(handler, source, config=None, manifest=EAGER, **files):
        worker = raw_worker()
        directory = models.unpack(tmp_path, source, **files)
        worker.load(directory, handler, manifest=manifest, model_yaml_config=config or {}, batch_size=8)
        kind, _, _, payload = worker.read_answer()
        assert kind == 3, payload
        worker.loaded = json.loads(payload)
        return worker

    return start


def classified(content, topk=5):
    """The documented answer of image_classifier, by hand."""
    with torch.no_grad():
        probs = torch.softmax(models.build(models.CLASSIFIER)(imagenet(content)[None])[0], 0)
    best = torch.argsort(probs, descending=True)[:topk].tolist()
    return {f"class-{number}": float(probs[number]) for number in best}


@pytest.mark.parametrize("count", [1, 8])
def test_image_classifier_gives_the_five_likeliest_classes(loaded, count):
    worker = loaded("image_classifier", models.CLASSIFIER, **{"index_to_name.json": LABELS})
    answers = ask(worker, IMAGES[:count])
    assert near(answers, [classified(content) for content in IMAGES[:count]])
    assert all(len(answer) == 5 for answer in answers)


def test_without_names_classes_are_numbers(loaded):
    (answer,) = ask(loaded("image_classifier", models.CLASSIFIER), IMAGES[:1])
    assert set(answer) <= {str(number) for number in range(10)}


@pytest.mark.parametrize("count", [1, 8])
def test_image_segmenter_gives_class_and_probability_of_every_pixel(loaded, count):
    answers = ask(loaded("image_segmenter", models.SEGMENTER), IMAGES[:count])
    with torch.no_grad():
        batch = torch.stack([imagenet(content) for content in IMAGES[:count]])
        probs, classes = torch.softmax(models.build(models.SEGMENTER)(batch)["out"], 1).max(1)
    ours = torch.tensor(answers)
    assert ours.shape == (count, 224, 224, 2)
    assert torch.equal(ours[..., 0], classes.float())
    assert torch.allclose(ours[..., 1], probs, atol=1e-5)


@pytest.mark.parametrize("sizes", [[(300, 260)], [(300, 260)] * 8, [(60, 40), (50, 80)] * 4])
def test_object_detector_gives_boxes_above_the_threshold(loaded, sizes):
    contents = [image(seed, size) for seed, size in enumerate(sizes)]
    answers = ask(loaded("object_detector", models.DETECTOR, **{"index_to_name.json": LABELS}), contents)
    to_tensor = models.torchvision.transforms.ToTensor()
    with torch.no_grad():
        pictures = [to_tensor(models.Image.open(io.BytesIO(content))) for content in contents]
        found = models.build(models.DETECTOR)(pictures)
    assert near(answers, [list(boxes(one)) for one in found])
    assert any(answers)


def boxes(found):
    """The documented form of a detection."""
    for box, score, label in zip(found["boxes"].tolist(), found["scores"].tolist(), found["labels"].tolist()):
        if score >= 0.5:
            yield {f"class-{label}": box, "score": score}


TEXTS = [
    "<b>It's</b> a Café, isn't it?",
    "a b c",
    "nobody knows these words",
    "it is",
    "café",
    "a",
    "is it not a café",
    "b",
]
VOCABULARY = {
    word: number for number, word in enumerate(["<unk>", "it", "is", "a", "cafe", "not", "it is", "is a", "b"])
}


@pytest.mark.parametrize("count", [1, 8])
def test_text_classifier_answers_every_text_of_a_batch(loaded, count):
    buffer = io.BytesIO()
    torch.save(VOCABULARY, buffer)
    worker = loaded("text_classifier", models.BAG_OF_WORDS, **{"source_vocab.pt": buffer.getvalue()})
    answers = ask(worker, [text.encode() for text in TEXTS[:count]], content_type="text/plain")
    model = models.build(models.BAG_OF_WORDS)
    cleaned = [
        "it is a cafe is not it",
        "a b c",
        "nobody knows these words",
        "it is",
        "cafe",
        "a",
        "is it not a cafe",
        "b",
    ]
    for answer, text in zip(answers, cleaned):
        words = text.split()
        pairs = [" ".join(pair) for pair in itertools.pairwise(words)]
        numbers = torch.tensor([VOCABULARY.get(word, 0) for word in words + pairs])
        with torch.no_grad():
            probs = torch.softmax(model(numbers, torch.tensor([0]))[0], 0).tolist()
        assert near(answer, {str(number): prob for number, prob in enumerate(probs)})


@pytest.mark.parametrize("count", [1, 8])
def test_base_handler_takes_and_gives_numbers(loaded, count):
    rows = [[float(number), 1.0, -2.0] for number in range(count)]
    worker = loaded("base_handler", models.LINEAR)
    answers = ask(worker, [json.dumps(row).encode() for row in rows], content_type="application/json")
    assert near(answers, models.build(models.LINEAR)(torch.tensor(rows)).tolist())


def test_an_image_that_cannot_be_decoded_fails_alone(loaded):
    worker = loaded("image_classifier", models.CLASSIFIER, **{"index_to_name.json": LABELS})
    items = worker.ask(bodies(IMAGES[0], b"no image", IMAGES[1], IMAGES[2][:200], IMAGES[3]))
    assert [item["outcome"] for item in items] == [0, 1, 0, 1, 0]
    assert [(item["cause"], item["status"]) for item in items if item["outcome"]] == [(3, 400)] * 2
    assert b"cannot be decoded" in items[1]["body"]
    for place in (0, 2, 4):
        assert near(json.loads(items[place]["body"]), classified([IMAGES[0], None, IMAGES[1], None, IMAGES[3]][place]))


def test_a_batch_of_nothing_but_bad_images_fails_one_by_one(loaded):
    items = loaded("image_classifier", models.CLASSIFIER).ask(bodies(b"", b"x"))
    assert [item["status"] for item in items] == [400, 400]


def test_images_may_come_as_base64_text(loaded):
    worker = loaded("image_classifier", models.CLASSIFIER, **{"index_to_name.json": LABELS})
    text = json.dumps(base64.b64encode(IMAGES[0]).decode()).encode()
    assert near(ask(worker, [text], content_type="application/json"), [classified(IMAGES[0])])


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_images_of_other_modes_are_turned_into_rgb(loaded, mode):
    content = image(1, mode=mode)
    worker = loaded("image_classifier", models.CLASSIFIER, **{"index_to_name.json": LABELS})
    assert near(ask(worker, [content]), [classified(content)])


def test_stages_of_several_batches_overlap_and_answers_stay_in_order(loaded):
    worker = loaded("image_classifier", models.CLASSIFIER, **{"index_to_name.json": LABELS})
    assert worker.loaded["slots"] == 2
    for number in range(6):
        worker.send(two_images(number))
    for number in range(6):
        kind, count, frame_id, payload = worker.read_answer()
        assert (kind, count, frame_id) == (6, 2, number)
        answers = [json.loads(item["body"]) for item in decode_reply(payload, count)]
        assert near(answers, [classified(IMAGES[number]), classified(IMAGES[number + 1])])


def two_images(number):
    """Two neighbouring images as a batch."""
    return batch(bodies(IMAGES[number], IMAGES[number + 1]), number)


@pytest.mark.parametrize(
    "config", [{"overlap": 1}, {"preprocess_threads": 1}, {"preprocess_threads": 3, "torch_threads": 1}]
)
def test_every_way_of_running_gives_the_same_numbers(loaded, config):
    worker = loaded("image_classifier", models.CLASSIFIER, {"jitney": config}, **{"index_to_name.json": LABELS})
    assert near(ask(worker, IMAGES), [classified(content) for content in IMAGES])


@pytest.mark.parametrize("config", [{"channels_last": True}, {"precision": "bfloat16"}])
def test_memory_format_and_precision_are_switches(loaded, config):
    worker = loaded("image_classifier", models.CLASSIFIER, {"jitney": config}, **{"index_to_name.json": LABELS})
    (answer,) = ask(worker, IMAGES[:1])
    best = classified(IMAGES[0])
    assert sum(answer.values()) == pytest.approx(sum(best.values()), abs=0.02)


def test_a_wrong_setting_is_rejected_by_name(raw_worker, tmp_path):
    worker = raw_worker()
    directory = models.unpack(tmp_path, models.CLASSIFIER)
    config = {"jitney": {"precison": "float16"}}
    worker.load(directory, "image_classifier", manifest=EAGER, model_yaml_config=config)
    assert "jitney.precison is unknown" in worker.read_control(4)["message"]
