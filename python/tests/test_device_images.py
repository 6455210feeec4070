"""Images decoded and resized on the device, with the CPU in its place: who reads what, and which numbers come out."""

from __future__ import annotations

import base64
import io
import logging

import pytest
import torch_models as models
from cuda_shim import ShimKernels

from jitney.gpu.nvjpeg import DevicePicture
from ts.torch_handler import device_images as module
from ts.torch_handler import device_trial
from ts.torch_handler.device_images import BatchForm, DeviceImages, batch_form
from ts.torch_handler.framing import Framing
from ts.torch_handler.image_classifier import ImageClassifier
from ts.torch_handler.images import Image, Recipe, torch, transforms
from ts.torch_handler.object_detector import ObjectDetector
from ts.torch_handler.resize_source import SOURCE
from ts.torch_handler.resizing import KernelResizer, Picture, Shades, TorchResizer
from ts.torch_handler.settings import HandlerSettings, read_settings
from ts.torch_handler.threads import ItemPool

CPU = torch.device("cpu")
STOCK = Recipe(ImageClassifier.image_processing, True)
PLAIN = BatchForm(torch.float32, torch.contiguous_format)
ONE_LEVEL = 1.01 / 255 / 0.224
SIZES = [(640, 480), (480, 640), (256, 256), (257, 256), (999, 256), (300, 301), (31, 47), (900, 17), (1023, 333)]
SHAPES = {"weigh": (2, 4), "narrow_rows": (3, 4), "shorten_columns_16": (5, 5), "shorten_columns_32": (5, 5)}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return KernelResizer(CPU, ShimKernels(SOURCE, SHAPES, tmp_path_factory.mktemp("kernels")))


@pytest.fixture(params=[1, 4])
def pool(request):
    threads = ItemPool(request.param)
    yield threads
    threads.close()


def noise(size, seed=0):
    """A picture of width x height."""
    pixels = torch.randint(0, 256, (size[1], size[0], 3), generator=torch.Generator().manual_seed(seed))
    return Image.frombytes("RGB", size, bytes(pixels.flatten().tolist()))


def planes(image):
    content = torch.frombuffer(bytearray(image.convert("RGB").tobytes()), dtype=torch.uint8)
    return content.view(image.size[1], image.size[0], 3).permute(2, 0, 1).contiguous()


class Pillow:
    """Decodes like Pillow, all or nothing, and keeps count. Files with one of the bad words are refused."""

    def __init__(self, bad=()):
        self.calls, self.bad = [], bad

    def __call__(self, files):
        self.calls.append(len(files))
        contents = [bytes(file.content.tolist()) for file in files]
        if any(word in content for content in contents for word in self.bad):
            raise RuntimeError("nvJPEG: no")
        return [DevicePicture.of(planes(Image.open(io.BytesIO(content)))) for content in contents]


def on_cpu(decode=None):
    return DeviceImages(CPU, decode or Pillow(), TorchResizer())


def jpeg(seed, size=(60, 50), mode="RGB"):
    return models.image(seed, size, mode, "JPEG")


def cmyk(seed):
    buffer = io.BytesIO()
    noise((60, 50), seed).convert("CMYK").save(buffer, "JPEG")
    return buffer.getvalue()


def prepared(reader, rows, pool, recipe=STOCK, form=PLAIN):
    return reader.prepare(recipe, [{"data": row} for row in rows], form, pool)


def expected(rows, recipe=STOCK):
    return torch.stack([recipe._finished(recipe.read(row)) for row in rows])


def near(batch, rows):
    assert batch.shape == (len(rows), 3, 224, 224)
    assert (batch.float() - expected(rows)).abs().max() < ONE_LEVEL


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_kernels_give_the_numbers_of_pillow(kernels, dtype, memory_format):
    framing, normalize = STOCK.framing(), STOCK.normalize
    images = [noise(size, place) for place, size in enumerate(SIZES)]
    places = list(reversed(range(len(SIZES))))
    pictures = [
        Picture(DevicePicture.of(planes(image)), framing.frame(*reversed(image.size)), place)
        for image, place in zip(images, places)
    ]
    batch = torch.full((len(SIZES), 3, 224, 224), 9.0).to(dtype).contiguous(memory_format=memory_format)
    kernels.resize(pictures, framing, Shades(normalize, dtype, CPU), batch)
    for image, place in zip(images, places):
        wanted = ImageClassifier.image_processing(image).to(dtype)
        if image.size[1] > 2 * image.size[0]:  # New versions of Pillow begin with the columns of tall pictures.
            assert (batch[place].float() - wanted.float()).abs().max() < (ONE_LEVEL if dtype is torch.float32 else 0.04)
        else:
            assert torch.equal(batch[place], wanted), image.size


@pytest.mark.parametrize("framing", [Framing(None, 31, 17), Framing(33, 33, 33), Framing(7, 5, 3), Framing(600, 8, 8)])
def test_kernels_crop_alone_and_enlarge(kernels, framing):
    image = noise((47, 35))
    steps = [transforms.Resize(framing.short)] if framing.short else []
    steps = [*steps, transforms.CenterCrop((framing.height, framing.width)), transforms.ToTensor()]
    batch = torch.empty((1, 3, framing.height, framing.width))
    normalize = transforms.Normalize([0.0] * 3, [1.0] * 3)
    for resizer in (kernels, TorchResizer()):
        picture = Picture(DevicePicture.of(planes(image)), framing.frame(35, 47), 0)
        resizer.resize([picture], framing, Shades(normalize, torch.float32, CPU), batch)
        far = (batch[0] - transforms.Compose(steps)(image)).abs().max() * 255
        assert far == 0 if resizer is kernels else far < 1.01


def test_the_trial_finds_out_kernels_that_do_something_else(kernels):
    device_trial.check(kernels, CPU)
    device_trial.check(TorchResizer(), CPU)

    class Wrong(TorchResizer):
        def resize(self, pictures, framing, shades, batch):
            super().resize([picture._replace(place=1 - picture.place) for picture in pictures], framing, shades, batch)

    with pytest.raises(RuntimeError):
        device_trial.check(Wrong(), CPU)


def nearest(files):
    """Decodes without interpolating colours."""
    pictures = []
    for picture in [each.pixels() for each in Pillow()(files)]:
        for plane in (0, 2):
            picture[plane, 1::2], picture[plane, :, 1::2] = picture[plane, :-1:2], picture[plane, :, :-1:2]
        pictures.append(DevicePicture.of(picture))
    return pictures


def test_the_first_way_to_decode_with_the_pixels_of_pillow_is_taken(caplog):
    def missing(device):
        raise RuntimeError("a library is missing")

    def other_colours(device):
        return nearest

    good = Pillow()
    decode, samplings = device_trial.decoder_for(CPU, [missing, other_colours, lambda device: good, missing])
    assert decode is good
    assert samplings == {(1, 1), (2, 1), (2, 2), (1, 2)}
    assert [record.getMessage() for record in caplog.records] == [
        "A way to nvJPEG does not work on cpu: a library is missing"
    ]
    assert device_trial.decoder_for(CPU, [missing, other_colours]) == (None, set())


def test_the_trial_finds_out_other_colours_and_they_are_left_to_pillow(pool):
    for name in device_trial.SAMPLINGS.values():
        assert device_trial.is_faithful(Pillow(), CPU, name)
        assert not device_trial.is_faithful(nearest, CPU, name)
    decode = Pillow()
    rows = [jpeg(0), jpeg(1, mode="L")]
    batch, _ = prepared(DeviceImages(CPU, decode, TorchResizer(), {(1, 1)}), rows, pool)
    assert decode.calls == [1]
    near(batch, rows)


def test_pictures_of_many_sizes_come_out_in_order(pool):
    rows = [jpeg(seed, size) for seed, size in enumerate(SIZES)]
    decode = Pillow()
    batch, failures = prepared(on_cpu(decode), rows, pool)
    assert (decode.calls, failures) == ([len(rows)], {})
    near(batch, rows)


def test_what_nvjpeg_does_not_read_is_read_by_pillow_at_its_place(pool):
    rows = [
        models.image(1, (60, 50), "RGB", "PNG"),
        jpeg(2),
        cmyk(3),
        base64.b64encode(jpeg(4)).decode(),
        memoryview(jpeg(5, mode="L")),
        base64.b64encode(models.image(6, (60, 50), "RGBA", "PNG")).decode(),
        bytearray(jpeg(7, (30, 900))),
    ]
    decode = Pillow()
    batch, failures = prepared(on_cpu(decode), rows, pool)
    assert (decode.calls, failures) == ([4], {})
    near(batch, rows)


def test_a_file_that_nvjpeg_refuses_is_found_and_read_by_pillow(pool):
    rows = [jpeg(seed) for seed in range(9)]
    decode = Pillow(bad=[rows[3], rows[7]])
    batch, failures = prepared(on_cpu(decode), rows, pool)
    assert failures == {}
    assert decode.calls[0] == 9
    near(batch, rows)


def broken(content):
    """A JPEG that looks whole, and is cut in the middle."""
    return content[: len(content) // 2] + content[-2:]


def test_a_broken_file_fails_alone_with_the_error_of_pillow(pool):
    rows = [jpeg(0), broken(jpeg(1, (200, 200))), jpeg(2)[:300], jpeg(3), b"no image", "%%%", jpeg(4)]
    decode = Pillow(bad=[rows[1]])
    batch, failures = prepared(on_cpu(decode), rows, pool)
    alone = ItemPool(1).map(STOCK.read, rows)
    errors = {place: str(item) for place, item in enumerate(alone) if isinstance(item, Exception)}
    assert {place: str(failure) for place, failure in failures.items()} == errors
    assert {2, 4, 5} <= set(errors)
    near(batch, [row for place, row in enumerate(rows) if place not in failures])


def test_a_batch_comes_in_the_form_of_the_model_also_without_its_failures(pool):
    form = batch_form(HandlerSettings(precision="float16", channels_last=True))
    for rows in ([jpeg(0), jpeg(1)], [jpeg(0), b"no image", models.image(1, (60, 50), "RGB", "PNG")]):
        batch, failures = prepared(on_cpu(), rows, pool, form=form)
        assert (len(batch), batch.dtype) == (2, torch.float16)
        assert batch.is_contiguous(memory_format=torch.channels_last)
        wanted = expected([row for place, row in enumerate(rows) if place not in failures])
        assert (batch.float() - wanted).abs().max() < ONE_LEVEL + 0.01


def test_prepared_numbers_go_with_pictures(pool):
    numbers = torch.arange(3 * 224 * 224.0).view(3, 224, 224)
    batch, failures = prepared(on_cpu(), [numbers.tolist(), jpeg(1)], pool)
    assert failures == {}
    assert torch.equal(batch[0], numbers)
    near(batch[1:], [jpeg(1)])
    assert prepared(on_cpu(), [[[1.0]], jpeg(1)], pool) is None


def test_other_transforms_and_batches_without_jpegs_are_not_for_the_device(pool):
    own = transforms.Compose([transforms.Resize((30, 30)), transforms.ToTensor(), STOCK.normalize])
    grey = transforms.Compose([*STOCK.head, transforms.ToTensor(), transforms.Normalize([0.5], [0.5])])
    for processing in (own, grey, transforms.ToTensor(), None):
        assert prepared(on_cpu(), [jpeg(0)], pool, Recipe(processing, True)) is None
    assert prepared(on_cpu(), [b"no image", models.image(6, (60, 50), "RGB", "PNG")], pool) is None
    assert prepared(on_cpu(), [jpeg(0, mode="L")], pool, Recipe(STOCK.processing, False)) is None


def test_a_picture_of_too_many_pixels_is_refused_by_pillow(pool, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60 * 50)
    _, failures = prepared(on_cpu(), [jpeg(0), jpeg(1, (61, 50))], pool)
    assert list(failures) == [1]
    assert "too large" in str(failures[1])


def test_files_are_decoded_in_groups_of_so_many_pixels(pool, monkeypatch):
    monkeypatch.setattr(module, "PIXELS_AT_ONCE", 60 * 50 * 2)
    decode = Pillow()
    rows = [jpeg(seed) for seed in range(5)]
    near(prepared(on_cpu(decode), rows, pool)[0], rows)
    assert decode.calls == [2, 2, 1]


def test_a_device_that_keeps_failing_is_left_alone_and_the_log_says_so(pool, caplog):
    class Failing(TorchResizer):
        def resize(self, *arguments):
            raise RuntimeError("CUDA error: out of memory")

    reader = DeviceImages(CPU, Pillow(), Failing())
    with caplog.at_level(logging.WARNING):
        for _ in range(module.FAILURES_MAX + 3):
            assert prepared(reader, [jpeg(0)], pool) is None
    assert len(caplog.records) == module.FAILURES_MAX
    assert "no more are tried" in caplog.messages[-1]


def test_without_a_gpu_nothing_is_decoded_there(caplog):
    with caplog.at_level(logging.WARNING):
        for wish in ("auto", "cpu", "gpu"):
            assert device_trial.device_images(CPU, read_settings({"jitney": {"decode": wish}})) is None
    assert [message for message in caplog.messages if "jitney.decode is gpu" in message] == caplog.messages
    assert len(caplog.messages) == 1


def test_detectors_get_pictures_of_their_own_sizes(pool):
    handler = ObjectDetector()
    decode = Pillow()
    handler.device, handler.on_device, handler.pool = CPU, on_cpu(decode), pool
    rows = [jpeg(0, (40, 30)), models.image(1, (20, 25), "RGB", "PNG"), b"no image", jpeg(2, (50, 60), "L")]
    good, batch, failures = handler.prepare([{"data": row} for row in rows])
    assert (decode.calls, list(failures), [row["data"] for row in good]) == ([2], [2], [rows[0], rows[1], rows[3]])
    wanted = [handler.image_processing(Image.open(io.BytesIO(row["data"])).convert("RGB")) for row in good]
    assert all(map(torch.equal, batch, wanted))
    assert handler.prepare([{"data": rows[0]}])[1].shape == (1, 3, 30, 40)


class Handler(ImageClassifier):
    """With a device that is the CPU."""

    def __init__(self, settings):
        super().__init__()
        self.device, self.handler_settings, self.on_device = CPU, settings, on_cpu()


def test_handlers_hand_on_good_rows_and_failures():
    rows = [{"data": row} for row in (jpeg(0), b"no image", jpeg(1))]
    handler = Handler(HandlerSettings(precision="float16", channels_last=True))
    good, batch, failures = handler.prepare(rows)
    assert (good, list(failures), batch.dtype) == ([rows[0], rows[2]], [1], torch.float16)
    near(handler.preprocess([rows[0], rows[2]]), [jpeg(0), jpeg(1)])
    with pytest.raises(type(failures[1])):
        handler.preprocess(rows)
    good, batch, failures = handler.prepare([{"data": b"no image"}])
    assert (good, batch, list(failures)) == ([], None, [0])


def test_an_inference_of_the_users_own_gets_single_precision():
    class Own(Handler):
        def inference(self, data):
            return data

    _, batch, _ = Own(HandlerSettings(precision="float16")).prepare([{"data": jpeg(0)}])
    assert batch.dtype == torch.float32
