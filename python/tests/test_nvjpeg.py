"""JPEGs decoded by nvJPEG, with the CPU in its place: the colours are Pillow's to the last bit, and nvJPEG is given
what its header asks for."""

from __future__ import annotations

import ctypes
import io

import pytest
import torch_models  # noqa: F401  Skips where there is no torch.
from coded_jpeg import CodedJpeg
from cuda_shim import ShimKernels

from jitney.gpu import colours as colours_module
from jitney.gpu import nvjpeg as nvjpeg_module
from jitney.gpu.colours import Colours, Planes
from jitney.gpu.nvjpeg import JpegFile, Nvjpeg, NvjpegError, NvjpegImage
from jitney.gpu.nvrtc import KernelError
from ts.torch_handler.images import Image, torch

CPU = torch.device("cpu")
SAMPLINGS = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:2:0": (2, 2), "4:4:0": (1, 2), "grey": (0, 0)}
NUMBERS = {(1, 1): 0, (2, 1): 1, (2, 2): 2, (1, 2): 3, (0, 0): 6}
"""What nvjpeg.h calls NVJPEG_CSS_444, _422, _420, _440 and _GRAY."""
SIZES = [(64, 48), (37, 29), (38, 30), (131, 9), (5, 40), (4, 4), (3, 3), (2, 5), (1, 1), (132, 17), (16, 1), (1, 16)]


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    return Colours(CPU, ShimKernels(colours_module.SOURCE, {"to_rgb": (1, 0)}, tmp_path_factory.mktemp("colours")))


def grey(content):
    """A grey file as rows of bytes, with a rest at the end of every row that nobody may read."""
    image = Image.open(io.BytesIO(content))
    rows = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(image.size[1], image.size[0])
    return torch.nn.functional.pad(rows, (0, 7), value=99).contiguous()


def rgb(content):
    """A file as Pillow reads it, plane by plane."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    rows = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return rows.view(image.size[1], image.size[0], 3).permute(2, 0, 1)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_colours_are_those_of_pillow_to_the_last_bit(colours, sampling):
    across, down = SAMPLINGS[sampling]
    files = [CodedJpeg(*size, across, down, seed) for seed, size in enumerate(SIZES)]
    held = [[grey(file.plane(number)) for number in range(len(file.units))] for file in files]
    answers = [torch.zeros(3, file.height, file.width, dtype=torch.uint8) for file in files]
    pictures = [
        Planes(
            *(planes[number if across else 0].data_ptr() for number in range(3)),
            planes[0].shape[1],
            planes[-1].shape[1],
            file.height,
            file.width,
            across,
            down,
            answer.data_ptr(),
        )
        for file, planes, answer in zip(files, held, answers)
    ]
    table = torch.tensor(pictures, dtype=torch.int64)
    colours.convert(table, len(files), max(file.height for file in files), max(file.width for file in files), None)
    for file, answer in zip(files, answers):
        assert torch.equal(answer, rgb(file.content())), (file.width, file.height)


class FakeNvjpeg:
    """The calls of nvJPEG, for files of `CodedJpeg`. It writes planes to where it is told, and keeps count."""

    def __init__(self, files, refuse=(), hardware=True):
        self.files = {file.content(): file for file in files}
        self.refuse, self.hardware = refuse, hardware
        self.calls = []
        self.sizes = {}

    def nvjpegCreateEx(self, backend, device_allocator, pinned_allocator, flags, handle):
        assert flags == 1  # NVJPEG_FLAGS_HW_DECODE_NO_PIPELINE
        self.calls.append(("create", backend))
        handle._obj.value = 77
        return 0 if self.hardware or backend == 0 else 7

    def nvjpegJpegStateCreate(self, handle, state):
        assert handle.value == 77
        state._obj.value = 100 + len(self.calls)
        self.calls.append(("state", state._obj.value))
        return 0

    def nvjpegDecodeBatchedInitialize(self, handle, state, size, threads, output):
        self.calls.append(("initialize", state.value, size, output))
        self.sizes[state.value] = size
        return 0

    def nvjpegGetImageInfo(self, handle, data, length, components, sampling, widths, heights):
        file = self.files.get(ctypes.string_at(data, length))
        if file is None:
            return 3
        sizes = file.plane_sizes()
        write(components, ctypes.c_int, [len(sizes)])
        write(sampling, ctypes.c_int, [NUMBERS.get((file.across, file.down), 4)])
        write(widths, ctypes.c_int, [width for width, _ in sizes])
        write(heights, ctypes.c_int, [height for _, height in sizes])
        return 0

    def nvjpegDecodeBatched(self, handle, state, data, lengths, images, stream):
        assert stream is None
        size = self.sizes[state.value]
        self.calls.append(("decode", state.value, size))
        pointers = (ctypes.c_void_p * size).from_address(data)
        counts = (ctypes.c_size_t * size).from_address(lengths)
        targets = (NvjpegImage * size).from_address(images)
        for pointer, count, target in zip(pointers, counts, targets):
            content = ctypes.string_at(pointer, count)
            if content in self.refuse:
                return 4
            file = self.files[content]
            for number in range(len(file.units)):
                image = Image.open(io.BytesIO(file.plane(number)))
                width, height = image.size
                for row in range(height):
                    line = image.tobytes()[row * width : (row + 1) * width]
                    ctypes.memmove(target.channel[number] + row * target.pitch[number], line, width)
        return 0


def write(address, kind, values):
    (kind * len(values)).from_address(address)[:] = values


def jpeg_file(file):
    return JpegFile(torch.frombuffer(bytearray(file.content()), dtype=torch.uint8), file.height, file.width)


def test_a_list_of_all_samplings_is_decoded_in_one_call(colours):
    files = [
        CodedJpeg(*size, *sampling, seed)
        for seed, (sampling, size) in enumerate(
            (s, z) for s in SAMPLINGS.values() for z in [(37, 29), (40, 8), (300, 3)]
        )
    ]
    fake = FakeNvjpeg(files)
    found = Nvjpeg(CPU, nvjpeg=fake, colours=colours).decode([jpeg_file(file) for file in files])
    for file, picture in zip(files, found):
        assert torch.equal(picture.pixels(), rgb(file.content())), (file.width, file.height, file.across, file.down)
    assert [call[0] for call in fake.calls].count("decode") == 1


@pytest.fixture
def long_list(monkeypatch):
    """Lists of four files are long, and there are queues enough."""
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    monkeypatch.setattr(nvjpeg_module, "HALVED_FROM", 4)


def test_a_long_list_is_decoded_by_two_threads_and_its_pictures_keep_their_order(colours, long_list):
    files = [CodedJpeg(24 + seed, 16, 2, 2, seed) for seed in range(5)]
    fake = FakeNvjpeg(files)
    found = Nvjpeg(CPU, nvjpeg=fake, colours=colours).decode([jpeg_file(file) for file in files])
    assert sorted(call[2] for call in fake.calls if call[0] == "decode") == [2, 3]
    for file, picture in zip(files, found, strict=True):
        assert torch.equal(picture.pixels(), rgb(file.content()))


def test_where_queues_are_shared_one_thread_decodes_the_whole_list(colours, long_list, monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS")
    files = [CodedJpeg(24, 16, 2, 2, seed) for seed in range(5)]
    fake = FakeNvjpeg(files)
    Nvjpeg(CPU, nvjpeg=fake, colours=colours).decode([jpeg_file(file) for file in files])
    assert [call[2] for call in fake.calls if call[0] == "decode"] == [5]


@pytest.mark.parametrize("bad", [0, 3])
def test_a_bad_file_in_either_half_fails_the_list_and_the_next_one_is_decoded(colours, long_list, bad):
    files = [CodedJpeg(24, 16, 2, 2, seed) for seed in range(5)]
    fake = FakeNvjpeg(files, refuse=[files[bad].content()])
    nvjpeg = Nvjpeg(CPU, nvjpeg=fake, colours=colours)
    with pytest.raises(NvjpegError, match="does not read one of the files"):
        nvjpeg.decode([jpeg_file(file) for file in files])
    good = [file for place, file in enumerate(files) if place != bad]
    found = nvjpeg.decode([jpeg_file(file) for file in good])
    assert all(torch.equal(picture.pixels(), rgb(file.content())) for file, picture in zip(good, found, strict=True))


def test_a_state_is_initialised_again_only_for_another_size_or_after_a_failure(colours):
    files = [CodedJpeg(24, 16, 2, 2, seed) for seed in range(3)]
    fake = FakeNvjpeg(files, refuse=[files[2].content()])
    nvjpeg = Nvjpeg(CPU, nvjpeg=fake, colours=colours)
    first, second, *_ = (call[1] for call in fake.calls if call[0] == "state")
    good, bad = [jpeg_file(file) for file in files[:2]], [jpeg_file(files[0]), jpeg_file(files[2])]
    del fake.calls[:]
    for batch in (good, good, good, good[:1], good):
        nvjpeg.decode(batch)
    assert [call[:2] for call in fake.calls if call[0] == "initialize"] == [
        ("initialize", first),
        ("initialize", second),
        ("initialize", second),
    ]
    del fake.calls[:]
    with pytest.raises(NvjpegError, match="does not read one of the files"):
        nvjpeg.decode(bad)
    for _ in range(2):
        assert torch.equal(nvjpeg.decode(good)[1].pixels(), rgb(files[1].content()))
    assert [call[0] for call in fake.calls] == ["initialize", "decode", "decode", "initialize", "decode"]


def test_a_file_of_another_size_than_told_or_of_other_colours_is_refused_before_anything_is_written(colours):
    file, strange = CodedJpeg(24, 16, 2, 2), CodedJpeg(32, 16, 4, 1)
    fake = FakeNvjpeg([file, strange])
    nvjpeg = Nvjpeg(CPU, nvjpeg=fake, colours=colours)
    with pytest.raises(NvjpegError, match="another size"):
        nvjpeg.decode([jpeg_file(file)._replace(height=15)])
    with pytest.raises(NvjpegError, match="colours"):
        nvjpeg.decode([jpeg_file(strange)])
    with pytest.raises(NvjpegError, match="head"):
        nvjpeg.decode([JpegFile(torch.zeros(9, dtype=torch.uint8), 16, 24)])
    assert "decode" not in [call[0] for call in fake.calls]


def test_without_hardware_for_it_nvjpeg_is_started_as_it_can(colours):
    fake = FakeNvjpeg([], hardware=False)
    Nvjpeg(CPU, nvjpeg=fake, colours=colours)
    assert [call for call in fake.calls if call[0] == "create"] == [("create", 3), ("create", 0)]


def test_the_structure_of_an_image_is_four_addresses_and_four_pitches():
    assert ctypes.sizeof(NvjpegImage) == 64
    assert NvjpegImage.pitch.offset == 32


def test_a_missing_library_is_told(monkeypatch):
    monkeypatch.setattr(nvjpeg_module, "nvjpeg_names", lambda: ["libno-such-jpeg.so"])
    with pytest.raises(KernelError, match="missing"):
        Nvjpeg(CPU)


def test_the_library_beside_torchvision_is_tried_first(tmp_path, monkeypatch):
    beside = tmp_path / "torchvision.libs" / "libnvjpeg.36e11081.so.13"
    packaged = tmp_path / "nvidia" / "cu13" / "lib" / "libnvjpeg.so.13"
    for path in (beside, packaged, tmp_path / "nvidia" / "nvjpeg" / "lib" / "libnvjpeg.so.12"):
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert nvjpeg_module.nvjpeg_names() == [str(beside), str(packaged), "libnvjpeg.so.13", "libnvjpeg.so"]
