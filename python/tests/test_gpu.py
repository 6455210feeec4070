"""What only a GPU can show: nvJPEG, CUDA graphs and streams under a worker's real loop.

Elsewhere they are skipped. `make test-gpu` runs them, and so does `python3 python/tests/test_gpu.py [WORDS ...]` where
there is no pytest. JITNEY_TEST_MODELS is the folder of `make models`; JITNEY_TEST_PHOTOS one of photos, beside those
that scikit-image and scikit-learn bring.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import os
import pathlib
import socket
import sys
import tempfile
import threading
import time
import traceback
import unittest
from collections import deque
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parent)]

try:
    import pytest

    torch = pytest.importorskip("torch", reason="NO TORCH HERE: these tests need it (make test-torch)")
    torchvision = pytest.importorskip(
        "torchvision", reason="NO TORCHVISION HERE: these tests need it (make test-torch)"
    )
    pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
except ImportError:
    import torch

import wire
from PIL import Image

from jitney.gpu.graphed import graphed_models
from jitney.loaders.loader import LoadOptions
from jitney.loaders.torch_export import ExportedLoader
from jitney.loaders.torch_script import ScriptLoader
from jitney.worker.loop import serve

GPU = 0
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = pathlib.Path(os.environ.get("JITNEY_TEST_MODELS", ROOT / "models" / "out"))
SHORTER_SIDES, QUALITIES, SUBSAMPLINGS = (120, 256, 512, 1080), (40, 75, 95), (0, 1, 2)
BATCH = 16
TIE = 0.001
"""Which of two classes is first is chance when their probabilities are so close."""
NUMBERS = itertools.count()

CLASSIFIER = """
import torch

class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 7, stride=4), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
            torch.nn.Conv2d(16, 32, 5, stride=4),
        )
        self.head = torch.nn.Linear(32 * 9, 50)

    def forward(self, images):
        cells = torch.nn.functional.adaptive_avg_pool2d(self.features(images), 3)
        return self.head(cells.flatten(1)) * 4
"""

LOOKS_AT_ITS_INPUT = CLASSIFIER.replace(
    "        cells =", "        if images.mean().item() > 1e9:\n            return images\n        cells ="
)


class Worker(wire.Server):
    """A worker's loop in a thread of this process, with a model on the GPU."""

    def __init__(self, folder: pathlib.Path, manifest: dict, config: dict, **fields: Any) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self.thread = threading.Thread(target=self._serve, args=(theirs,))
        self.thread.start()
        fields = {"batch_size": BATCH, "gpu_id": GPU, **fields}
        self.load(str(folder), "image_classifier", manifest=manifest, model_yaml_config=config, **fields)
        self.loaded = json.loads(self.next_frame(wire.LOADED)[2])
        self.slots = int(self.loaded.get("slots", 1))

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            serve(sock, "token")

    def next_frame(self, *wanted: int) -> tuple[int, int, bytes]:
        """Kind, id and payload of the next frame that is no progress and no times."""
        while True:
            kind, _, frame_id, payload = self.read()
            if kind not in (wire.PROGRESS, wire.TIMES):
                assert kind in wanted, (kind, payload[:2000])
                return kind, frame_id, payload

    def answer_all(self, batches: list[list[bytes]]) -> list[list[Any]]:
        """Answers by batch, as many batches on their way as the worker holds: an answer, or the status of a failure."""
        on_the_way: deque[int] = deque()
        found: list[list[Any]] = []
        for number, contents in enumerate(batches):
            if len(on_the_way) >= self.slots:
                found.append(self._answer(on_the_way.popleft(), batches))
            self.send(wire.batch(wire.bodies(*contents), number + 1))
            on_the_way.append(number)
        return found + [self._answer(number, batches) for number in on_the_way]

    def describe(self) -> dict[str, Any]:
        """What the handler tells of itself."""
        self.send(wire.batch([wire.item(headers=[("describe", "True")])], 1))
        (told,) = wire.decode_reply(self.next_frame(wire.REPLY)[2], 1)
        return json.loads(told["body"])

    def _answer(self, number: int, batches: list[list[bytes]]) -> list[Any]:
        _, frame_id, payload = self.next_frame(wire.REPLY)
        assert frame_id == number + 1, "batches are answered in order"
        items = wire.decode_reply(payload, len(batches[number]))
        return [json.loads(item["body"]) if item["status"] == 200 else item["status"] for item in items]

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()
        self.thread.join(wire.PATIENCE_SECONDS)


def model(folder: str, source: str = CLASSIFIER, script: bool = False) -> tuple[pathlib.Path, dict]:
    """A model directory and its manifest. Each has a module of its own name: all are imported by this process."""
    name = f"net_{next(NUMBERS)}"
    path = pathlib.Path(folder, name)
    path.mkdir()
    names: dict[str, Any] = {}
    exec(source, names)
    net = names["Classifier"]().eval()
    about = {"modelName": "m", "serializedFile": "net.pt"}
    if script:
        torch.jit.trace(net, torch.zeros(2, 3, 224, 224)).save(str(path / "net.pt"))
    else:
        (path / f"{name}.py").write_text(source)
        torch.save(net.state_dict(), path / "net.pt")
        about["modelFile"] = f"{name}.py"
    return path, {"model": about}


def picture(seed: int, size: tuple[int, int] = (500, 400), form: str = "JPEG", mode: str = "RGB") -> bytes:
    """A picture of soft colours, another one for each seed."""
    noise = torch.rand(1, 3, 5, 6, generator=torch.Generator().manual_seed(seed))
    pixels = torch.nn.functional.interpolate(noise, size=(size[1], size[0]), mode="bicubic")[0].clamp(0, 1)
    array = (pixels * 255).byte().permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(array).convert(mode).save(buffer, form)
    return buffer.getvalue()


def apart(ours: dict[str, float], theirs: dict[str, float]) -> float:
    """The largest difference of a probability; more than 1 where another class is the likeliest, and it is no tie."""
    first, wanted = next(iter(ours)), next(iter(theirs))
    if first != wanted and theirs[wanted] - theirs.get(first, 0.0) > TIE:
        return 1 + ours[first]
    return max(abs(ours[name] - theirs[name]) for name in ours.keys() & theirs.keys())


def photos() -> list[pathlib.Path]:
    """Photos of the folder that was named, and of the libraries that bring some."""
    folders = [os.environ.get("JITNEY_TEST_PHOTOS")]
    for library, inside in (("skimage", "data"), ("sklearn", "datasets/images")):
        found = importlib.util.find_spec(library)
        folders.append(os.path.join(os.path.dirname(found.origin), inside) if found and found.origin else None)
    there = [pathlib.Path(folder) for folder in folders if folder]
    return sorted(path for one in there for path in one.glob("*.*") if path.suffix in (".jpg", ".jpeg", ".png"))


def saved(photo: Image.Image, shorter: int) -> list[bytes]:
    """A photo as JPEGs of one size, several qualities and subsamplings."""
    share = shorter / min(photo.size)
    image = photo.resize([max(1, round(side * share)) for side in photo.size], Image.LANCZOS)
    found = []
    for quality, subsampling in itertools.product(QUALITIES, SUBSAMPLINGS):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality, subsampling=subsampling)
        found.append(buffer.getvalue())
    return found


def batches_of(contents: list[bytes], most: int = BATCH) -> list[list[bytes]]:
    return [contents[at : at + most] for at in range(0, len(contents), most)]


def flat(answers: list[list[Any]]) -> list[Any]:
    return [answer for batch in answers for answer in batch]


def test_photos_decoded_on_the_gpu_answer_as_pillows_do():
    folder = MODELS / "imagenet"
    if not (folder / "imagenet.pt").is_file():
        raise unittest.SkipTest(f"needs the ImageNet model of `make models` in {MODELS}")
    originals = [Image.open(path).convert("RGB") for path in photos()]
    if not originals:
        raise unittest.SkipTest("needs photos: install scikit-image, or name a folder in JITNEY_TEST_PHOTOS")
    sized = [(photo, shorter) for photo in originals for shorter in SHORTER_SIDES if min(photo.size) * 1.6 >= shorter]
    contents = [content for photo, shorter in sized for content in saved(photo, shorter)]
    manifest = {"model": {"modelName": "m", "serializedFile": "imagenet.pt"}}
    found = {}
    for decode in ("auto", "cpu"):
        with Worker(folder, manifest, {"jitney": {"decode": decode}}) as worker:
            found[decode] = flat(worker.answer_all(batches_of(contents)))
            assert ("decodesOn" in worker.describe()) == (decode == "auto")
    most = max(map(apart, found["auto"], found["cpu"]))
    print(f"{len(contents)} JPEGs of {len(originals)} photos: largest difference of a probability {most:.4f}")
    assert most <= 0.01


def test_graphs_answer_as_eager_at_every_size():
    contents = [picture(seed) for seed in range(BATCH)]
    counts = [contents[:count] for count in range(1, BATCH + 1)]
    with tempfile.TemporaryDirectory() as folder:
        for script, precision in itertools.product((False, True), ("float32", "float16")):
            path, manifest = model(folder, script=script)
            found = {}
            for graphs in ("auto", "off"):
                config = {"jitney": {"cuda_graphs": graphs, "precision": precision, "channels_last": True}}
                with Worker(path, manifest, config) as worker:
                    found[graphs] = flat(worker.answer_all(counts))
                    assert bool(worker.loaded.get("graphs")) == (graphs == "auto"), worker.loaded
            most = max(map(apart, found["auto"], found["off"]))
            assert most <= (1e-4 if precision == "float32" else 0.01), (script, precision, most)


def test_warm_up_covers_the_sizes_and_measures_them():
    with tempfile.TemporaryDirectory() as folder:
        path, manifest = model(folder)
        with Worker(path, manifest, {}, sizes=[1, 4, 16]) as worker:
            assert worker.loaded["sizes"] == [1, 4, 16]
            assert [row[0] for row in worker.loaded["measured"]] == [1, 4, 16]
            assert all(row[2] > 0 for row in worker.loaded["measured"])
            assert worker.loaded["graphs"]["count"] == 3


def test_without_settings_the_answers_are_those_of_the_usual_layout():
    contents = [picture(seed) for seed in range(BATCH)]
    with tempfile.TemporaryDirectory() as folder:
        for script in (False, True):
            path, manifest = model(folder, script=script)
            found = []
            for config in ({}, {"jitney": {"precision": "float32", "channels_last": False}}):
                with Worker(path, manifest, config) as worker:
                    found.append(flat(worker.answer_all([contents, contents[:1]])))
                    told = worker.describe()
                    print(told["channelsLast"], worker.loaded.get("notes"))
                    assert told["precision"] == "float32"
            assert max(map(apart, *found)) <= 5e-3


def test_the_first_requests_take_no_new_memory_and_start_no_thread():
    with tempfile.TemporaryDirectory() as folder:
        path, manifest = model(folder)
        with Worker(path, manifest, {}) as worker:
            before = facts_of_this_process()
            for count in (1, BATCH, 1):
                worker.answer_all([[picture(count)] * count])
            after = facts_of_this_process()
    assert after["segments"] == before["segments"] and after["threads"] <= before["threads"], (before, after)


def facts_of_this_process() -> dict[str, Any]:
    """How often torch has taken memory of the GPU, and all threads, those of libraries too."""
    threads = set(os.listdir("/proc/self/task"))
    return {"segments": torch.cuda.memory_stats(GPU)["segment.all.allocated"], "threads": threads}


def test_a_compiled_model_answers_as_eager_and_is_compiled_once():
    contents = [picture(seed) for seed in range(7)]
    with tempfile.TemporaryDirectory() as folder:
        path, manifest = model(folder)
        cache = pathlib.Path(folder, "compiled")
        with Worker(path, manifest, {"jitney": {"cuda_graphs": "off"}}) as worker:
            plain = flat(worker.answer_all([contents, contents[:1]]))
        made = []
        for _ in range(2):
            config = {"pt2": {"compile": {"enable": True}}}
            with Worker(path, manifest, config, sizes=[1, 8], compile_cache=str(cache)) as worker:
                found = flat(worker.answer_all([contents, contents[:1]]))
                assert worker.loaded["sizes"] == [1, 8, BATCH], "the largest batch is always among them"
                assert worker.loaded["graphs"]["count"] == 3, worker.loaded
            assert max(map(apart, found, plain)) <= 1e-3
            made.append({file: file.stat().st_mtime_ns for file in cache.rglob("*.compiled")})
        assert made[0] and made[0] == made[1], made


def test_a_model_that_cannot_be_captured_serves_without_graphs():
    contents = [picture(seed) for seed in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        path, manifest = model(folder, LOOKS_AT_ITS_INPUT)
        with Worker(path, manifest, {}) as worker:
            assert not worker.loaded.get("graphs") and worker.loaded.get("notes"), worker.loaded
            found = flat(worker.answer_all([contents, contents[:1]]))
        path, manifest = model(folder)
        with Worker(path, manifest, {"jitney": {"cuda_graphs": "off"}}) as worker:
            plain = flat(worker.answer_all([contents, contents[:1]]))
    assert max(map(apart, found, plain)) <= 1e-4


def test_a_bad_image_fails_alone_and_other_forms_are_read():
    good = picture(1)
    cut = good[: len(good) // 3]
    others = [picture(2, form="PNG"), picture(3, mode="CMYK"), picture(4, mode="L"), picture(5, (301, 997))]
    batch = [good, b"no image", others[0], cut[:20], others[1], others[2], cut, others[3], good]
    with tempfile.TemporaryDirectory() as folder:
        path, manifest = model(folder)
        found = {}
        for decode in ("gpu", "cpu"):
            with Worker(path, manifest, {"jitney": {"decode": decode}}) as worker:
                found[decode] = flat(worker.answer_all([batch, [b"no image"], [good]]))
    assert [status for status in found["gpu"] if isinstance(status, int)] == [400, 400, 400, 400]
    for ours, theirs in zip(found["gpu"], found["cpu"]):
        assert ours == theirs if isinstance(theirs, int) else apart(ours, theirs) <= 0.02, (ours, theirs)


def test_batches_that_overlap_are_not_mixed_up():
    contents = [picture(seed, (300 + 7 * seed, 260 + 5 * (seed % 9))) for seed in range(48)]
    order = torch.Generator().manual_seed(5)
    counts = torch.randint(1, BATCH + 1, (150,), generator=order).tolist()
    chosen = [torch.randint(0, len(contents), (count,), generator=order).tolist() for count in counts]
    with tempfile.TemporaryDirectory() as folder:
        path, manifest = model(folder)
        with Worker(path, manifest, {"jitney": {"precision": "float16", "channels_last": True}}) as worker:
            assert worker.slots > 1
            alone = flat(worker.answer_all([[content] for content in contents]))
            assert len({next(iter(answer)) for answer in alone}) > 5, "pictures must have answers of their own"
            answers = worker.answer_all([[contents[number] for number in numbers] for numbers in chosen])
    for numbers, batch in zip(chosen, answers):
        for number, answer in zip(numbers, batch):
            assert apart(answer, alone[number]) <= 0.02, (number, answer, alone[number])


def test_files_of_programs_and_scripts_are_captured_and_answer_as_before():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten())
    net, picture = net.eval(), torch.randn(5, 3, 8, 8)
    named = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        program, script = pathlib.Path(folder, "net.pt2"), pathlib.Path(folder, "net.pt")
        batch = torch.export.Dim("batch", min=1, max=64)
        torch.export.save(torch.export.export(net, (picture,), dynamic_shapes=({0: batch},)), program)
        torch.jit.trace(net, picture).save(str(script))
        script.with_name("net.tensors.json").write_text(json.dumps(named))
        for loader, path in ((ExportedLoader(LoadOptions()), program), (ScriptLoader(LoadOptions()), script)):
            loader.load(path, f"cuda:{GPU}")
            [name] = loader.tensors().inputs
            loader.capture()
            made = graphed_models()[-1]
            for count in (5, 1):
                [found] = loader.run({name: picture[:count]}).values()
                torch.testing.assert_close(found.cpu(), net(picture[:count]), rtol=2e-3, atol=2e-3)
            assert made.sized is not None and len(made.sized) >= 5 and not made.notes, made.notes


def main(words: list[str]) -> int:
    """Runs the tests whose names have one of these words, without pytest."""
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or (words and not any(word in name for word in words)):
            continue
        here, started = os.getcwd(), time.perf_counter()
        try:
            if not torch.cuda.is_available():
                raise unittest.SkipTest("needs a CUDA device")
            test()
            told = "passed"
        except unittest.SkipTest as why:
            told = f"SKIPPED: {why}"
        except BaseException:
            failed += 1
            told = "FAILED\n" + traceback.format_exc()
        os.chdir(here)
        print(f"{name}: {told} ({time.perf_counter() - started:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
