"""The images of clients are opened within a limit of pixels, with or without Pillow's consent."""

import sys
from types import SimpleNamespace

import pytest

from jitney.call.errors import BadInput
from jitney.files import images
from jitney.files.limits import limits
from jitney.values.convert import convert


class Bomb(Exception):
    pass


class Picture:
    """As large as its content says."""

    loaded = False

    def __init__(self, content=None, formats=()):
        self.size = tuple(map(int, content.read().split(b"x")))

    def load(self):
        self.loaded = True


@pytest.fixture
def pillow(monkeypatch):
    errors = {"DecompressionBombError": Bomb, "UnidentifiedImageError": OSError}
    module = SimpleNamespace(Image=Picture, open=Picture, MAX_IMAGE_PIXELS=100, **errors)
    monkeypatch.setitem(sys.modules, "PIL.Image", module)
    monkeypatch.setattr(limits, "pixels", None)
    return module


def test_an_image_above_the_limit_is_not_decoded(pillow):
    assert images.open_image(b"10x10").loaded
    with pytest.raises(images.TooManyPixels, match="11 x 10 pixels, and the server takes at most 100"):
        images.open_image(b"11x10")
    with pytest.raises(BadInput, match="the image is too large: it has 11 x 10 pixels"):
        convert("photo", b"11x10", Picture)


def test_the_operators_limit_holds_once_pillow_is_there(pillow):
    limits.set(None, 50, None)
    assert images.pixel_limit() == pillow.MAX_IMAGE_PIXELS == 50
    with pytest.raises(images.TooManyPixels):
        images.open_image(b"6x10")


def test_a_model_may_lift_the_limit(pillow):
    pillow.MAX_IMAGE_PIXELS = None
    limits.set(None, 50, None)
    assert images.open_image(b"1000x1000").loaded


def test_what_pillow_itself_rejects_is_too_large_too(pillow):
    def explode(content, formats):
        raise Bomb("could be a decompression bomb")

    pillow.open = explode
    with pytest.raises(images.TooManyPixels, match="decompression bomb"):
        images.open_image(b"1x1")
