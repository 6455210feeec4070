"""Decodes lists of JPEGs with nvJPEG, the decoder of CUDA, on the hardware engines of the GPU where it has some.

torchvision has a way to it, but repeats colours where Pillow's decoder interpolates, waits with a busy processor, and
works on a stream of low priority. Here nvJPEG gives the planes as the file holds them, and `Colours` makes Pillow's
pixels of them. All is asked for on the current stream, and nobody waits for it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from jitney.gpu.colours import Colours, Planes
from jitney.gpu.device import has_all_queues
from jitney.gpu.nvrtc import KernelError, library

ANY_BACKEND, HARDWARE = 0, 3
AS_PLANES = 1
"""The output as planes of brightness and colours, as small as they are in the file."""
WITHOUT_PIPELINE = 1
"""One stream for each of the engines, where nvJPEG would take two: with so many, some share a queue of the hardware
with the model's stream and wait for all that was asked for there."""
COMPONENTS_MAX = 4
SAMPLINGS = {0: (1, 1), 1: (2, 1), 2: (2, 2), 3: (1, 2), 6: (0, 0)}
"""How many columns and rows share a colour, by nvJPEG's number of it: 4:4:4, 4:2:2, 4:2:0, 4:4:0 and grey."""
ALIGNED = 256
PITCH_ALIGNED = 64
ROWS_ALIGNED = 16
"""Planes have room for whole blocks of the file, whatever of them is asked for."""
HALVED_FROM = 64
"""A list of so many files is decoded by two threads."""
STREAM_PRIORITY = -5
"""The highest there is: the many small kernels of decoding must not wait for the long ones of the model."""
LISTS_AT_ONCE = 2
"""So many lists may be on their way; the next waits for the first of them."""

VOID, INT, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
SIGNATURES: dict[str, list[Any]] = {
    "nvjpegCreateEx": [INT, VOID, VOID, ctypes.c_uint, VOID],
    "nvjpegJpegStateCreate": [VOID, VOID],
    "nvjpegDecodeBatchedInitialize": [VOID, VOID, INT, INT, INT],
    "nvjpegDecodeBatched": [VOID, VOID, VOID, VOID, VOID, VOID],
    "nvjpegGetImageInfo": [VOID, VOID, SIZE, VOID, VOID, VOID, VOID],
}


class NvjpegError(RuntimeError):
    """nvJPEG is not there, or does not read a file."""


class JpegFile(NamedTuple):
    """A file on the host, and the size its head tells."""

    content: Any
    """A tensor of bytes."""
    height: int
    width: int


class DevicePicture(NamedTuple):
    """A decoded picture: 3 x height x width bytes, plane by plane, somewhere in memory of the device."""

    memory: Any
    """A tensor of bytes, which may hold others too."""
    address: int
    offset: int
    """Where it begins in that memory."""
    height: int
    width: int

    @classmethod
    def of(cls, pixels: Any) -> DevicePicture:
        """A picture that is a tensor already."""
        _, height, width = pixels.shape
        return cls(pixels, pixels.data_ptr(), pixels.storage_offset(), height, width)

    def pixels(self) -> Any:
        """As a tensor."""
        height, width = self.height, self.width
        return self.memory.as_strided((3, height, width), (height * width, width, 1), self.offset)


class Layout(NamedTuple):
    """Where the planes of a picture lie in its memory."""

    pitch: int
    colour_pitch: int
    blue: int
    red: int
    answer: int
    """Its pixels."""
    size: int
    across: int
    """So many columns share a colour, and so many rows; 0 if the picture is grey."""
    down: int


class NvjpegImage(ctypes.Structure):
    """nvjpegImage_t."""

    _fields_ = (("channel", VOID * COMPONENTS_MAX), ("pitch", SIZE * COMPONENTS_MAX))


class ImageInfo(ctypes.Structure):
    """What nvJPEG tells of a file."""

    _fields_ = (
        ("components", INT),
        ("sampling", INT),
        ("widths", INT * COMPONENTS_MAX),
        ("heights", INT * COMPONENTS_MAX),
    )


class DecoderState:
    """A state of nvJPEG, and what must stay until the list that it decodes is done."""

    def __init__(self) -> None:
        self.pointer = VOID()
        self.size = 0
        self.held: Any = None
        self._done: Any = None

    def occupy(self, done: Any, held: Any) -> None:
        """Something is on its way, until `done`."""
        self._done, self.held = done, held

    def wait(self) -> None:
        """Waits until nothing is."""
        if self._done is not None:
            self._done.synchronize()
        self._done = self.held = None


class Nvjpeg:
    """A decoder for one device; any thread may use it, one at a time does.

    The library keeps a processor busy for 30 µs a file. So the second half of a long list is decoded by a thread of
    its own, on a stream of its own, where the process has all queues of the GPU: two streams that share one would wait
    for the model, and the list would take three times as long instead of three quarters.
    """

    def __init__(
        self, device: Any, flags: int = WITHOUT_PIPELINE, nvjpeg: Any = None, colours: Colours | None = None
    ) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._device = device
        self._library = nvjpeg or nvjpeg_calls()
        self._handle = VOID()
        self._lock = threading.Lock()
        self._halved_from = HALVED_FROM if has_all_queues() else sys.maxsize
        self._behind = ThreadPoolExecutor(1, "decode")
        self._own_stream = self._torch.cuda.Stream(device, STREAM_PRIORITY) if device.type == "cuda" else None
        with self._there():
            colours = colours or Colours(device)
            if self._create(HARDWARE, flags):
                check(self._create(ANY_BACKEND, flags), "cannot be started")
            self._first, self._second = (ListDecoder(self._library, self._handle, device, colours) for _ in range(2))

    def _there(self) -> Any:
        """Makes the device the current one of a thread, and then the one that was: each thread has its own to go back
        to. With its number torch finds the device and the stream at once."""
        return self._torch.cuda.device(self._device.index or 0) if self._device.type == "cuda" else nullcontext()

    def _create(self, backend: int, flags: int) -> int:
        return int(self._library.nvjpegCreateEx(backend, None, None, flags, ctypes.byref(self._handle)))

    def decode(self, files: Sequence[JpegFile]) -> list[DevicePicture]:
        """Pictures in memory that is there when the current stream is so far; raises if one file cannot be read."""
        with self._lock, self._there():
            if len(files) < self._halved_from:
                return self._first.decode(files)
            half = len(files) // 2
            behind = self._behind.submit(self._decode_behind, files[half:])
            try:
                pictures = self._first.decode(files[:half])
            finally:
                others = behind.result()
                if self._own_stream is not None:
                    self._torch.cuda.current_stream(self._device.index or 0).wait_stream(self._own_stream)
            return pictures + others

    def _decode_behind(self, files: Sequence[JpegFile]) -> list[DevicePicture]:
        if self._own_stream is None:
            return self._second.decode(files)
        with self._there(), self._torch.cuda.stream(self._own_stream):
            return self._second.decode(files)


class ListDecoder:
    """What one thread needs to decode lists on its current stream."""

    def __init__(self, nvjpeg: Any, handle: Any, device: Any, colours: Colours) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._library, self._handle, self._device, self._colours = nvjpeg, handle, device, colours
        self._states: list[DecoderState] = []
        self._info = ImageInfo()
        first = ctypes.addressof(self._info)
        self._info_places = tuple(first + getattr(ImageInfo, name).offset for name, _ in ImageInfo._fields_)
        for _ in range(LISTS_AT_ONCE):
            state = DecoderState()
            made = nvjpeg.nvjpegJpegStateCreate(handle, ctypes.byref(state.pointer))
            check(made, "cannot be started")
            self._states.append(state)

    def decode(self, files: Sequence[JpegFile]) -> list[DevicePicture]:
        """The pictures of a list, all or none."""
        state = self._states.pop(0)
        self._states.append(state)
        state.wait()
        return self._decode(state, files)

    def _decode(self, state: DecoderState, files: Sequence[JpegFile]) -> list[DevicePicture]:
        torch, device = self._torch, self._device
        addresses, lengths = array("Q"), array("Q")
        layouts, room, highest, widest = [], 0, 1, 1
        for content, height, width in files:
            address, length = content.data_ptr(), content.numel()
            addresses.append(address)
            lengths.append(length)
            layout = self._layout(address, length, height, width)
            layouts.append(layout)
            room += layout.size
            if height > highest:
                highest = height
            if width > widest:
                widest = width
        memory = torch.empty(room, dtype=torch.uint8, device=device)
        first = bright = memory.data_ptr()
        images, numbers, pictures = array("Q"), array("q"), []
        for (_, height, width), (pitch, colour_pitch, blue, red, answer, size, across, down) in zip(files, layouts):
            blue, red, answer = bright + blue, bright + red, bright + answer
            images.extend((bright, blue, red, 0, pitch, colour_pitch, colour_pitch, 0))
            numbers.extend(Planes(bright, blue, red, pitch, colour_pitch, height, width, across, down, answer))
            pictures.append(DevicePicture(memory, answer, answer - first, height, width))
            bright += size
        stream = torch.cuda.current_stream(device.index or 0) if device.type == "cuda" else None
        table = torch.frombuffer(numbers, dtype=torch.int64)
        try:
            if stream is not None:
                table = table.pin_memory().to(device, non_blocking=True)
            self._run(state, addresses, lengths, images, stream)
            self._colours.convert(table, len(files), highest, widest, stream)
        finally:  # nvJPEG may have begun to read the files and to write into the planes.
            done = None
            if stream is not None:
                done = torch.cuda.Event(blocking=True)  # Who waits for it sleeps.
                done.record(stream)
            state.occupy(done, (files, memory, table))
        return pictures

    def _run(
        self, state: DecoderState, addresses: array[int], lengths: array[int], images: array[int], stream: Any
    ) -> None:
        nvjpeg, count = self._library, len(addresses)
        if state.size != count:
            state.size = 0
            status = nvjpeg.nvjpegDecodeBatchedInitialize(self._handle, state.pointer, count, 1, AS_PLANES)
            check(status, "takes no such list")
        status = nvjpeg.nvjpegDecodeBatched(
            self._handle,
            state.pointer,
            *(numbers.buffer_info()[0] for numbers in (addresses, lengths, images)),
            None if stream is None else stream.cuda_stream,
        )
        state.size = 0 if status else count
        check(status, "does not read one of the files")

    def _layout(self, address: int, length: int, height: int, width: int) -> Layout:
        """What nvJPEG will write for a file. Raises unless it finds the size that memory is taken for: it writes as
        much as the file asks for."""
        status = self._library.nvjpegGetImageInfo(self._handle, address, length, *self._info_places)
        check(status, "does not read the head of a file")
        return layout_of(height, width, bytes(self._info))


def check(status: int, what: str) -> None:
    """Raises unless nvJPEG did what it was asked for."""
    if status:
        raise NvjpegError(f"nvJPEG {what} (status {status})")


def nvjpeg_calls() -> Any:
    """The calls of the library that are used, with what they take."""
    nvjpeg = library(nvjpeg_names())
    quick = ctypes.PyDLL(nvjpeg._name)
    calls = SimpleNamespace()
    for name, kinds in SIGNATURES.items():
        # The head of a file is read faster than the interpreter changes threads, so there it does not.
        call = getattr(quick if name == "nvjpegGetImageInfo" else nvjpeg, name, None)
        if call is None:
            raise KernelError(f"{nvjpeg._name} has no {name}")
        call.argtypes, call.restype = kinds, INT
        setattr(calls, name, call)
    return calls


@functools.lru_cache(maxsize=4096)
def layout_of(height: int, width: int, told: bytes) -> Layout:
    """The planes of a picture, if what nvJPEG told of it (`ImageInfo`) is about this size. A grey one has room for
    colours too: nvJPEG may write grey ones."""
    info = ImageInfo.from_buffer_copy(told)
    sampling = SAMPLINGS.get(info.sampling)
    if sampling is None or info.components != (3 if sampling[0] else 1):
        raise NvjpegError("nvJPEG finds colours in a file that it is not asked for")
    colour_height, colour_width = -(-height // (sampling[1] or 1)), -(-width // (sampling[0] or 1))
    sizes = [(height, width), (colour_height, colour_width), (colour_height, colour_width)][: info.components]
    if list(zip(info.heights, info.widths))[: info.components] != sizes:
        raise NvjpegError("nvJPEG finds another size in the head of a file")
    pitch, colour_pitch = aligned(width, PITCH_ALIGNED), aligned(colour_width, PITCH_ALIGNED)
    blue = aligned(pitch * aligned(height, ROWS_ALIGNED), ALIGNED)
    red = blue + aligned(colour_pitch * aligned(colour_height, ROWS_ALIGNED), ALIGNED)
    answer = 2 * red - blue
    size = answer + aligned(3 * height * width, ALIGNED)
    return Layout(pitch, colour_pitch, blue, red, answer, size, *sampling)


def aligned(size: int, unit: int) -> int:
    """The next multiple."""
    return -(-size // unit) * unit


def nvjpeg_names() -> list[str]:
    """Where nvJPEG may be: beside torchvision, among the packages that torch needs, or installed."""
    torch: Any = importlib.import_module("torch")
    major = str(torch.version.cuda or "").split(".")[0]
    packages = Path(torch.__file__).parent.parent
    patterns = (f"torchvision.libs/libnvjpeg*.so.{major}*", f"nvidia/*/lib/libnvjpeg.so.{major}*")
    beside = [str(path) for pattern in patterns for path in sorted(packages.glob(pattern))]
    return [*beside, f"libnvjpeg.so.{major}", "libnvjpeg.so"]
