"""Helpers that decode images: the same pixels as without them, and nothing lost when they die."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch_models as models
import wire
from torch_models import EAGER, image
from wire import bodies

from ts.torch_handler import decoders as module
from ts.torch_handler.decoder import prepared
from ts.torch_handler.decoders import Decoders
from ts.torch_handler.image_classifier import ImageClassifier
from ts.torch_handler.images import Image, Recipe, transforms
from ts.torch_handler.settings import HandlerSettings, read_settings
from ts.torch_handler.threads import decode_processes, preprocess_threads
from ts.utils.util import PredictionException

STOCK = Recipe(ImageClassifier.image_processing, True)
SIZES = [(640, 480), (480, 640), (256, 256), (257, 256), (256, 999), (300, 301), (31, 47), (17, 900), (1023, 333)]


@pytest.fixture
def two():
    """Two helpers, gone after the test."""
    helpers = Decoders(2)
    processes = [helper.process for helper in helpers._helpers]
    yield helpers
    helpers.close()
    assert all(process.poll() is not None for process in processes)


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition):
    end = time.monotonic() + wire.PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_helper_makes_the_pixels_torchvision_makes(size, mode, form):
    if form == "JPEG" and mode == "RGBA":
        return
    content = image(1, size, mode, form)
    ours, theirs = prepared(content, json.loads(STOCK.plan())), STOCK.read(content)
    assert (ours.mode, ours.size, ours.tobytes()) == ("RGB", theirs.size, theirs.tobytes())


@pytest.mark.parametrize(
    "step",
    [
        transforms.Resize((256, 256)),
        transforms.Resize(256, interpolation=transforms.InterpolationMode.NEAREST),
        transforms.Resize(256, max_size=300),
        transforms.RandomHorizontalFlip(),
        lambda image: image,
    ],
)
def test_a_transform_that_helpers_do_not_know_has_no_plan(step):
    whole = [step, transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)]
    assert Recipe(transforms.Compose(whole), True).plan() is None
    assert Recipe(step, True).plan() is None


def test_helpers_reject_unusual_images(two):
    plan = STOCK.plan()
    small = Recipe(transforms.Compose([transforms.CenterCrop(64), *STOCK.processing.transforms[2:]]), True)
    assert two.decode(plan, b"no image") is None
    assert two.decode(plan, image(1)[:200]) is None
    assert two.decode(small.plan(), image(1, (32, 32))) is None
    assert two.decode(Recipe(STOCK.processing, False).plan(), image(1, mode="L")) is None
    assert two.decode(plan, image(1)).size == (224, 224)
    assert len(two) == 2


def test_a_decompression_bomb_is_rejected_unless_the_operator_removed_the_limit(two, monkeypatch):
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    assert two.decode(STOCK.plan(), bomb.getvalue()) is None
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert json.loads(STOCK.plan())["pixels"] is None


def test_an_image_that_pillow_only_warns_of_is_its_clients_mistake(two, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400 * 250)
    large, fits = image(1, (401, 250)), image(1, (400, 250))
    with pytest.raises(PredictionException, match="401 x 250 pixels, and the server takes at most 100000") as caught:
        STOCK.read(large, two, STOCK.plan())
    assert caught.value.error_code == 400
    assert two.decode(STOCK.plan(), large) is None
    assert two.decode(STOCK.plan(), fits) is not None


def test_a_killed_helper_is_replaced_and_its_image_read_by_the_worker(two):
    content = image(2)
    for helper in list(two._helpers):
        helper.process.kill()
        helper.process.wait()
    for _ in range(2):  # As many as have died: each is noticed by whom it fails.
        assert STOCK.read(content, two, STOCK.plan()).tobytes() == STOCK.read(content).tobytes()
    assert len(two) == 2
    assert two.decode(STOCK.plan(), content) is not None


def test_helpers_that_keep_exiting_are_not_replaced_for_ever(two, monkeypatch):
    monkeypatch.setattr(module.decoder, "__name__", "no.such.module")  # The next helper exits at once.
    two._replacements = 3
    for helper in list(two._helpers):
        helper.process.kill()
    wait_until(lambda: STOCK.read(image(3), two, STOCK.plan()).tobytes() and len(two) == 0)
    assert STOCK.read(image(3), two, STOCK.plan()).tobytes() == STOCK.read(image(3)).tobytes()


def test_a_helper_that_hangs_is_replaced_and_its_image_read_by_the_worker(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.3)
    helpers = Decoders(1)
    (helper,) = helpers._helpers
    helper.process.send_signal(signal.SIGSTOP)
    content = image(4)
    assert STOCK.read(content, helpers, STOCK.plan()).tobytes() == STOCK.read(content).tobytes()
    assert helper.process.poll() is not None
    helpers.close()


@pytest.fixture
def loaded(raw_worker, tmp_path):
    def start(config):
        worker = raw_worker()
        worker.load(
            models.unpack(tmp_path, models.CLASSIFIER), "image_classifier", manifest=EAGER, batch_size=8,
            model_yaml_config={"jitney": config},
        )  # fmt: skip
        assert worker.read()[0] == 3
        return worker

    return start


def test_answers_are_the_same_with_and_without_helpers(loaded):
    good = [image(0), image(1, mode="L"), image(2, form="JPEG"), image(4), image(5)]
    contents = [good[0], b"no image", good[1], good[2], image(3)[:300], good[3], b"", good[4]]
    with_helpers, alone = (
        loaded(config).ask(bodies(*contents)) for config in ({"decode_processes": 2}, {"preprocess_threads": 1})
    )
    assert [item["outcome"] for item in alone] == [0, 1, 0, 0, 1, 0, 1, 0]
    assert with_helpers == alone


def test_helpers_are_for_large_shares_unless_configured(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert (decode_processes(HandlerSettings()), preprocess_threads(HandlerSettings())) == (0, 4)
    three = HandlerSettings(decode_processes=3)
    assert decode_processes(three) == preprocess_threads(three) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    assert (decode_processes(HandlerSettings()), preprocess_threads(HandlerSettings())) == (12, 12)
    assert decode_processes(HandlerSettings(decode_processes=0)) == 0
    assert decode_processes(HandlerSettings(preprocess_threads=1)) == 0
    with pytest.raises(ValueError, match="decode_processes is -1, not a number from 0 to 128"):
        read_settings({"jitney": {"decode_processes": -1}})


def test_helpers_end_with_their_worker():
    program = (
        "import sys, time; from ts.torch_handler.decoders import Decoders; helpers = Decoders(2)\n"
        "print(*[helper.process.pid for helper in helpers._helpers], flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
    for end in (lambda process: process.stdin.close(), lambda process: process.kill()):
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        pids = list(map(int, process.stdout.readline().split()))
        assert all(map(alive, pids))
        end(process)
        process.wait(wire.PATIENCE_SECONDS)
        wait_until(lambda pids=pids: not any(map(alive, pids)))
