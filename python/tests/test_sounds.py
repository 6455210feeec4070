"""WAV files as samples."""

from __future__ import annotations

import io
import struct
import wave

import pytest

from jitney.files.limits import FileRejected, limits
from jitney.files.sounds import open_sound

numpy = pytest.importorskip("numpy")

HERTZ = 16000


def wav(samples, bits: int = 16, hertz: int = HERTZ, channels: int = 1, kind: int = 1) -> bytes:
    """A file of samples from -1 to 1."""
    if kind == 3:
        data = numpy.asarray(samples, f"<f{bits // 8}").tobytes()
    elif bits == 8:
        data = (numpy.asarray(samples) * 127 + 128).astype(numpy.uint8).tobytes()
    else:
        whole = (numpy.asarray(samples) * (2 ** (bits - 1) - 1)).astype("<i4")
        data = whole.view(numpy.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()
    frame = channels * bits // 8
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, kind, channels, hertz, hertz * frame, frame, bits)
    body = b"WAVE" + b"LIST" + struct.pack("<I", 3) + b"abc\0" + head + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


TONE = 0.5 * numpy.sin(2 * numpy.pi * 440 * numpy.arange(HERTZ) / HERTZ)


@pytest.mark.parametrize(("bits", "kind"), [(8, 1), (16, 1), (24, 1), (32, 1), (32, 3), (64, 3)])
def test_all_kinds_of_samples_are_the_same_sound(bits: int, kind: int) -> None:
    found = open_sound(wav(TONE, bits, kind=kind), HERTZ)
    assert found.dtype == numpy.float32
    numpy.testing.assert_allclose(found, TONE, atol=0.02 if bits == 8 else 1e-4)


def test_a_file_of_the_standard_library() -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((2, 2, HERTZ, 0, "NONE", ""))
        both = numpy.stack([TONE, -TONE / 2], axis=1)
        writer.writeframes((both * 32767).astype("<i2").tobytes())
    numpy.testing.assert_allclose(open_sound(file.getvalue(), HERTZ), TONE / 4, atol=1e-4)


@pytest.mark.parametrize("hertz", [8000, 22050, 44100, 48000])
def test_other_rates_are_the_same_sound(hertz: int) -> None:
    tone = 0.5 * numpy.sin(2 * numpy.pi * 440 * numpy.arange(hertz) / hertz)
    found = open_sound(wav(tone, 32, hertz, kind=3), HERTZ)
    assert len(found) == HERTZ
    numpy.testing.assert_allclose(found[200:-200], TONE[200:-200], atol=5e-3)


def test_what_the_lower_rate_cannot_carry_is_gone() -> None:
    high = numpy.sin(2 * numpy.pi * 15000 * numpy.arange(48000) / 48000)
    assert numpy.abs(open_sound(wav(high, hertz=48000), HERTZ)[500:-500]).max() < 0.01


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no WAV file"),
        (b"ID3" + bytes(100), "ffmpeg -i IN"),
        (wav(TONE)[:30], "ends before its samples"),
        (wav([]), "no samples"),
        (wav(TONE, hertz=1), "which no sound has"),
        (wav(TONE, channels=65), "which no sound has"),
        (wav(TONE, kind=7), "not known here"),
        (wav(TONE).replace(struct.pack("<H", 16), struct.pack("<H", 12), 2), "ends before its samples|not known here"),
    ],
)
def test_what_is_no_sound_says_what_to_send(content: bytes, why: str) -> None:
    with pytest.raises(FileRejected, match=why):
        open_sound(content, HERTZ)


def test_a_sample_that_claims_to_last_long_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "expanded", 1000)
    assert len(open_sound(wav(TONE), HERTZ)) == HERTZ
    with pytest.raises(FileRejected, match="max_expanded_size"):
        open_sound(wav(TONE, bits=8, hertz=1000), HERTZ)
