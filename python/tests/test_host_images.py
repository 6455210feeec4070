"""Batches that threads fill in the memory of the host: the same numbers as image by image."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import torch_models as models

from ts.torch_handler.base_handler import BaseHandler
from ts.torch_handler.image_classifier import ImageClassifier
from ts.torch_handler.images import WRITTEN, HostBatch, Image, Recipe, torch, transforms
from ts.torch_handler.settings import HandlerSettings, read_settings
from ts.torch_handler.threads import ItemPool
from ts.utils.util import PredictionException

STOCK = Recipe(ImageClassifier.image_processing, True)
SIZES = [(640, 480), (300, 301), (31, 47), (256, 256)]


@pytest.fixture(params=[1, 3])
def handler(request):
    made = ImageClassifier()
    made.device, made.handler_settings, made.pool = torch.device("cpu"), HandlerSettings(), ItemPool(request.param)
    yield made
    made.pool.close()


def alone(row):
    return STOCK._finished(STOCK.read(row))


def test_threads_write_the_numbers_that_torchvision_gives(handler):
    rows = [
        models.image(seed, size, mode, form)
        for seed, (size, mode, form) in enumerate(
            [(size, mode, form) for size in SIZES for mode, form in (("RGB", "JPEG"), ("L", "JPEG"), ("RGBA", "PNG"))]
        )
    ]
    found, batch, failures = handler.prepare([{"data": row} for row in rows])
    assert (len(found), failures, batch.dtype) == (len(rows), {}, torch.float32)
    assert batch.is_contiguous()
    assert torch.equal(batch, torch.stack([alone(row) for row in rows]))


def test_a_bad_image_leaves_no_gap(handler):
    rows = [models.image(0), b"no image", models.image(2), "%%%"]
    found, batch, failures = handler.prepare([{"data": row} for row in rows])
    assert sorted(failures) == [1, 3]
    assert [row["data"] for row in found] == [rows[0], rows[2]]
    assert torch.equal(batch, torch.stack([alone(rows[0]), alone(rows[2])]))
    assert handler.prepare([{"data": b"no image"}])[:2] == ([], None)


def test_prepared_numbers_go_with_images_of_their_size(handler):
    numbers = torch.arange(3 * 224 * 224.0).view(3, 224, 224)
    _, batch, failures = handler.prepare([{"data": numbers.tolist()}, {"data": models.image(1)}, {"data": b"no"}])
    assert list(failures) == [2]
    assert torch.equal(batch, torch.stack([numbers, alone(models.image(1))]))
    with pytest.raises(RuntimeError):
        handler.prepare([{"data": [[1.0]]}, {"data": models.image(1)}])


def test_an_image_of_another_size_is_no_part_of_the_batch():
    small = Recipe(STOCK.processing, True)
    batch = HostBatch(small, STOCK.framing()._replace(width=200), [models.image(0)])
    (item,) = batch.read(ItemPool(1))
    assert item is not WRITTEN
    assert item.size == (224, 224)


@pytest.mark.parametrize(
    "step",
    [
        transforms.Resize((256, 256)),
        transforms.Resize(256, interpolation=transforms.InterpolationMode.NEAREST),
        transforms.Resize(256, max_size=300),
        transforms.RandomHorizontalFlip(),
        transforms.Resize(256),
        lambda image: image,
    ],
)
def test_a_transform_of_other_steps_has_no_framing(step):
    whole = [step, transforms.ToTensor(), STOCK.normalize]
    assert Recipe(transforms.Compose(whole), True).framing() is None
    assert Recipe(step, True).framing() is None


def test_an_image_that_pillow_only_warns_of_is_its_clients_mistake(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400 * 250)
    with pytest.raises(PredictionException, match="401 x 250 pixels, and the server takes at most 100000") as caught:
        STOCK.read(models.image(1, (401, 250)))
    assert caught.value.error_code == 400
    assert STOCK.read(models.image(1, (400, 250))).size == (224, 224)


def test_settings_of_helper_processes_do_no_harm(caplog, monkeypatch):
    monkeypatch.setattr(BaseHandler, "initialize", lambda self, context: None)
    handler = ImageClassifier()
    handler.device, handler.torch_threads = torch.device("cpu"), 1
    handler.handler_settings = read_settings({"jitney": {"decode_processes": 4}})
    with caplog.at_level(logging.INFO):
        handler.initialize(SimpleNamespace(system_properties={}))
    handler.pool.close()
    assert "decode_processes has no effect" in caplog.text
    with pytest.raises(ValueError, match="decode_processes is -1, not a number from 0 to 128"):
        read_settings({"jitney": {"decode_processes": -1}})
