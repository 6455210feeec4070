"""The look at the head of a JPEG: who can decode it."""

from __future__ import annotations

import io

import pytest

from ts.torch_handler.framing import Framing, framing_of
from ts.torch_handler.jpeg import look

Image = pytest.importorskip("PIL.Image")


def file(mode="RGB", size=(50, 40), form="JPEG", **options):
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(("subsampling", "sampling"), [(0, (1, 1)), (1, (2, 1)), (2, (2, 2))])
def test_a_plain_jpeg_tells_its_size_and_sampling(kind, subsampling, sampling):
    assert look(kind(file(subsampling=subsampling))) == (50, 40, 3, sampling)


def test_a_grey_jpeg_has_one_component():
    assert look(file("L")) == (50, 40, 1, (1, 1))


def test_marks_before_the_frame_are_passed_over():
    content = file(exif=b"Exif\0\0" + file(), icc_profile=b"\xff\xc0" * 2000, comment=b"\xff\xd9")
    assert look(content) == (50, 40, 3, (2, 2))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xd8",
        b"no image at all, but text",
        file(form="PNG"),
        file("CMYK"),
        file(progressive=True),
        file()[:-20],
        file()[:100],
        file()[:100] + b"\xff\xd9",
        b"\xff\xd8" + b"\0" * 40 + b"\xff\xd9",
        b"\xff\xd8" + b"\xff\xe0\0\0" * 40 + b"\xff\xd9",
        b"\xff\xd8" + b"\xff\xe0\0\2" * 100 + b"\xff\xd9",
    ],
)
def test_anything_else_is_for_pillow(content):
    assert look(content) is None


def patched(content, old, new):
    assert content.count(old) == 1
    return content.replace(old, new)


def test_twelve_bits_no_height_other_colours_and_odd_samplings_are_for_pillow():
    frame = b"\xff\xc0\0\x11\x08\0\x28\0\x32\x03\x01\x22\0\x02\x11\x01\x03\x11\x01"
    plain = file()
    for odd in (
        frame.replace(b"\x11\x08", b"\x11\x0c"),
        frame.replace(b"\0\x28", b"\0\0"),
        frame.replace(b"\x02\x11", b"\x02\x21"),
        frame.replace(b"\x03\x01\x22\0\x02\x11\x01\x03", b"\x03R\x22\0G\x11\x01B"),
        frame.replace(b"\xff\xc0", b"\xff\xc9"),
        frame.replace(b"\0\x32\x03", b"\0\x32\x04"),
    ):
        assert odd != frame
        assert look(patched(plain, frame, odd)) is None
    adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0"
    assert look(b"\xff\xd8" + adobe + b"\0" + plain[2:]) is None
    assert look(b"\xff\xd8" + adobe + b"\1" + plain[2:]) == look(plain)


def test_bytes_after_the_end_do_not_matter_if_they_are_few():
    assert look(file() + b"\0" * 8) is not None
    assert look(file() + b"\0" * 80) is None


@pytest.mark.parametrize(
    ("size", "frame"),
    [
        ((400, 500), (256, 320, 16, 48, 5)),
        ((500, 400), (320, 256, 48, 16, 5)),
        ((31, 47), (256, 388, 16, 82, 3)),
        ((256, 256), (256, 256, 16, 16, 3)),
    ],
)
def test_a_frame_is_counted_as_torchvision_does(size, frame):
    assert Framing(256, 224, 224).frame(*size) == frame


def test_a_picture_too_small_for_the_crop_has_no_frame():
    assert Framing(None, 224, 224).frame(224, 223) is None
    assert Framing(200, 224, 224).frame(900, 900) is None


def test_steps_that_end_with_a_crop_make_a_framing():
    assert framing_of([["resize", 256], ["center_crop", 224, 200]]) == Framing(256, 224, 200)
    assert framing_of([["center_crop", 8, 9]]) == Framing(None, 8, 9)
    for steps in ([], [None], [["resize", 256]], [["center_crop", 8, 9], ["resize", 4]], [["resize", 256], None]):
        assert framing_of(steps) is None
