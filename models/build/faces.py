"""68 face landmarks as a TorchScript program, from the weights of the npm package @vladmandic/face-api."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import torch
from fetch import FACE_API, unpacked
from torch.nn.functional import avg_pool2d, conv2d, pad, relu

PARTS = Path(__file__).parent.parent / "parts"
HANDLER = "faces_handler.py"
SERIALIZED = "faces.pt"
EXTRA: list[str] = []
BLOCKS, LAYERS = 4, 4
MEAN = [122.782, 117.001, 104.298]


class Landmarks(torch.nn.Module):
    """Four blocks of separable convolutions whose outputs are added up, a mean, and a linear layer."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1))
        for name, value in weights.items():
            self.register_buffer(name.replace("/", "_"), value)

    def part(self, block: int, layer: int, name: str) -> torch.Tensor:
        """A weight by its block, layer and name."""
        return getattr(self, f"dense{block}_conv{layer}_{name}")

    def convolved(self, images: torch.Tensor, block: int, layer: int) -> torch.Tensor:
        """One layer; the first of a block halves the image, padding right and below as TensorFlow does."""
        stride = 2 if layer == 0 else 1
        images = pad(images, (0, 1, 0, 1) if layer == 0 else (1, 1, 1, 1))
        bias = self.part(block, layer, "bias")
        if block == 0 and layer == 0:
            return conv2d(images, self.part(0, 0, "filters").permute(3, 2, 0, 1), bias, stride)
        depthwise = self.part(block, layer, "depthwise_filter").permute(2, 3, 0, 1)
        images = conv2d(images, depthwise, None, stride, groups=depthwise.shape[0])
        return conv2d(images, self.part(block, layer, "pointwise_filter").permute(3, 2, 0, 1), bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [N, 3, 112, 112] of 0 to 1 to [N, 136]: x and y of 68 points, of 0 to 1."""
        images = (images * 255.0 - self.mean) / 255.0
        for block in range(BLOCKS):
            summed = relu(self.convolved(images, block, 0))
            for layer in range(1, LAYERS):
                summed = summed + self.convolved(relu(summed), block, layer)
            images = relu(summed)
        pooled = avg_pool2d(images, 7, 2).flatten(1)
        return pooled @ self.fc_weights + self.fc_bias


def read_weights(model: Path) -> dict[str, torch.Tensor]:
    """Weights stored as bytes with a scale and a minimum."""
    manifest = json.loads((model / "face_landmark_68_model-weights_manifest.json").read_text())
    content = (model / "face_landmark_68_model.bin").read_bytes()
    weights, at = {}, 0
    for entry in manifest[0]["weights"]:
        count = math.prod(entry["shape"])
        stored = torch.frombuffer(bytearray(content[at : at + count]), dtype=torch.uint8).float()
        scale = entry["quantization"]
        weights[entry["name"]] = (stored * scale["scale"] + scale["min"]).view(entry["shape"])
        at += count
    return weights


def build(folder: Path, cache: Path) -> None:
    """Writes the parts of the archive."""
    net = Landmarks(read_weights(unpacked(FACE_API, cache) / "package" / "model")).eval()
    with torch.no_grad():
        torch.jit.trace(net, torch.zeros(2, 3, 112, 112)).save(str(folder / SERIALIZED))
    shutil.copy(PARTS / HANDLER, folder)
