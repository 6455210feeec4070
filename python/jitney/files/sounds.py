"""Opens WAV files: whole numbers of 8 to 32 bits and floating point, any number of channels, which become one. Other
formats would need decoders in native code, which are not let near what clients send."""

from __future__ import annotations

import struct
from typing import Any

from jitney.files.limits import FileRejected, limits

WHOLE, FLOATING, EXTENDED = 1, 3, 0xFFFE
"""How samples are written; an extended header says it in its first bytes behind the common ones."""
HERTZ = range(1000, 768_001)
CHANNELS_MAX = 64
SEND_WAV = "send a WAV file, such as `ffmpeg -i IN -ac 1 -ar 16000 OUT.wav` writes"


def open_sound(content: Any, hertz: int) -> Any:
    """The samples of a WAV file as a numpy array of single precision, one channel at so many hertz."""
    import numpy

    content = memoryview(content)
    kind, channels, own_hertz, bits, data = _read(content)
    frame = channels * bits // 8
    count = len(data) // frame
    if not count:
        raise FileRejected("it has no samples")
    limits.check_expansion(2 * count * hertz // own_hertz, len(content))
    samples = _numbers(numpy, data[: count * frame], kind, bits).reshape(count, channels).mean(axis=1)
    return samples if own_hertz == hertz else _at_rate(numpy, samples, own_hertz, hertz)


def _read(content: memoryview) -> tuple[int, int, int, int, memoryview]:
    """The kind of numbers, channels, hertz, bits and samples of a file."""
    if bytes(content[:4]) != b"RIFF" or bytes(content[8:12]) != b"WAVE":
        raise FileRejected(f"it is no WAV file: {SEND_WAV}")
    told: tuple[int, int, int, int] | None = None
    at = 12
    while at + 8 <= len(content):
        name, size = bytes(content[at : at + 4]), int(struct.unpack_from("<I", content, at + 4)[0])
        part = content[at + 8 : at + 8 + size]
        if name == b"fmt " and len(part) >= 16:
            kind, channels, hertz, _, _, bits = struct.unpack_from("<HHIIHH", part)
            told = (struct.unpack_from("<H", part, 24)[0] if kind == EXTENDED and len(part) >= 26 else kind,
                    channels, hertz, bits)  # fmt: skip
        elif name == b"data" and told is not None:
            return (*_checked(*told), part)
        at += 8 + size + size % 2
    raise FileRejected("it is a WAV file that ends before its samples")


def _checked(kind: int, channels: int, hertz: int, bits: int) -> tuple[int, int, int, int]:
    if (kind, bits) not in {(WHOLE, 8), (WHOLE, 16), (WHOLE, 24), (WHOLE, 32), (FLOATING, 32), (FLOATING, 64)}:
        raise FileRejected(f"its samples are coded in a way that is not known here ({kind}, {bits} bits): {SEND_WAV}")
    if hertz not in HERTZ or not 1 <= channels <= CHANNELS_MAX:
        raise FileRejected(f"it says that it has {channels} channels at {hertz} hertz, which no sound has: {SEND_WAV}")
    return kind, channels, hertz, bits


def _numbers(numpy: Any, data: memoryview, kind: int, bits: int) -> Any:
    """Samples from -1 to 1."""
    if kind == FLOATING:
        return numpy.nan_to_num(numpy.frombuffer(data, f"<f{bits // 8}").astype(numpy.float32))
    if bits == 8:
        return (numpy.frombuffer(data, numpy.uint8).astype(numpy.float32) - 128) / 128
    if bits == 24:  # As the upper bytes of 32 bits.
        wide = numpy.zeros((len(data) // 3, 4), numpy.uint8)
        wide[:, 1:] = numpy.frombuffer(data, numpy.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(numpy.float32) / 2**31
    return numpy.frombuffer(data, f"<i{bits // 8}").astype(numpy.float32) / 2 ** (bits - 1)


def _at_rate(numpy: Any, samples: Any, own: int, hertz: int) -> Any:
    """The same sound at another rate, without what the lower one of the two cannot carry. The silence behind it keeps
    its end from its beginning."""
    padded = numpy.concatenate([samples, numpy.zeros(own)])
    count = len(padded) * hertz // own
    spectrum = numpy.fft.rfft(padded)[: count // 2 + 1]
    moved = numpy.fft.irfft(spectrum, count) * (count / len(padded))
    return moved[: len(samples) * hertz // own].astype(numpy.float32)
