"""Small models with fixed random weights, the images they see, and archives unpacked for the stock handlers.

A test compares a handler's answer with a bare script over the same weights, so nothing here uses `ts`.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="NO TORCH HERE: these tests need it (make test-torch)")
torchvision = pytest.importorskip("torchvision", reason="NO TORCHVISION HERE: these tests need it (make test-torch)")
from PIL import Image  # noqa: E402

NORMALIZE = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

CLASSIFIER = """
import torch

class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Conv2d(3, 8, 7, stride=4)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, images):
        return self.head(self.features(images).relu().mean(dim=(2, 3)))
"""

SEGMENTER = """
import torch

class Segmenter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Conv2d(3, 5, 3, padding=1)

    def forward(self, images):
        return {"out": self.scores(images)}
"""

DETECTOR = """
import torch

class Detector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.boxes = torch.nn.Linear(3, 16)
        self.scores = torch.nn.Linear(3, 4)

    def forward(self, images):
        means = [image.mean(dim=(1, 2)) for image in images]
        return [
            {"boxes": self.boxes(mean).view(4, 4), "scores": self.scores(mean).sigmoid(), "labels": torch.arange(4)}
            for mean in means
        ]
"""

BAG_OF_WORDS = """
import torch

class BagOfWords(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(40, 6)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, words, offsets):
        return self.head(self.embedding(words, offsets))
"""

LINEAR = """
import torch

class Linear(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
"""


def build(source: str) -> Any:
    """The one model of a source, with weights that are the same every time."""
    names: dict[str, Any] = {}
    exec(source, names)
    torch.manual_seed(7)
    model = next(each for each in names.values() if isinstance(each, type) and issubclass(each, torch.nn.Module))()
    return model.eval()


def unpack(path: Path, source: str, **more: Any) -> Path:
    """A model directory with an eager model; `more` are further files by name, as JSON or bytes."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "net.py").write_text(source)
    torch.save(build(source).state_dict(), path / "net.pt")
    for name, content in more.items():
        (path / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


EAGER = {"model": {"modelName": "m", "modelFile": "net.py", "serializedFile": "net.pt"}}


def image(seed: int, size: tuple[int, int] = (300, 260), mode: str = "RGB", form: str = "PNG") -> bytes:
    """A picture of noise and gradients, always the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    channels = {"RGB": 3, "RGBA": 4, "L": 1}[mode]
    noise = torch.rand(channels, size[1] // 8, size[0] // 8, generator=generator)
    pixels = torch.nn.functional.interpolate(noise[None], size=(size[1], size[0]), mode="bilinear")[0]
    array = (pixels * 255).byte().permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(array[:, :, 0] if mode == "L" else array, mode)
    buffer = io.BytesIO()
    picture.save(buffer, form)
    return buffer.getvalue()


def imagenet(content: bytes) -> Any:
    """The preparation TorchServe documents, step by step."""
    steps = torchvision.transforms
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    picture = steps.CenterCrop(224)(steps.Resize(256)(picture))
    return steps.Normalize(**NORMALIZE)(steps.ToTensor()(picture))


def near(ours: Any, theirs: Any) -> bool:
    """Whether two answers of nested lists and dictionaries agree to 1e-5."""
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(near(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(near, ours, theirs))
    return bool(abs(ours - theirs) <= 1e-5)
