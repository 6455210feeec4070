"""Classifiers with weights that were made up, so that half precision does not overflow and answers can be checked.

The statistics of the batch normalisations are those of the pictures, as after training; and the last layer knows every
picture: the most likely class of picture 17 is class 17, by a wide margin. So a server that mixes up two requests, or
prepares a picture another way, gives a wrong answer.
"""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torchvision
from PIL import Image

from on_gpu.apart import told_apart

BLOCK = 0.2
"""What a block adds to what it was given; with 1 a deep net that was not trained is chaotic."""

EAGER = """
import torchvision


class Classifier(torchvision.models.ResNet):
    def __init__(self):
        block = torchvision.models.resnet.{block}
        super().__init__(block, {layers})
"""


@dataclass(frozen=True)
class Form:
    """Where a model runs and how."""

    device: str
    precision: str
    channels_last: bool

    def of(self, net: torch.nn.Module) -> torch.nn.Module:
        """The net in this form."""
        net = net.to(self.device).to(getattr(torch, self.precision)).eval()
        return net.to(memory_format=torch.channels_last) if self.channels_last else net

    def batch(self, tensor: torch.Tensor) -> torch.Tensor:
        """A batch of pictures in this form."""
        tensor = tensor.to(self.device).to(getattr(torch, self.precision))
        return tensor.contiguous(memory_format=torch.channels_last) if self.channels_last else tensor

    def settings(self) -> dict:
        """What model-config.yaml says about it."""
        return {"precision": self.precision, "channels_last": self.channels_last}


def prepared(bodies: Iterable[bytes]) -> torch.Tensor:
    """Pictures as ImageNet's usual preparation has them, by Pillow."""
    steps = torchvision.transforms
    prepare = steps.Compose(
        [
            steps.Resize(256),
            steps.CenterCrop(224),
            steps.ToTensor(),
            steps.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )
    return torch.stack([prepare(Image.open(io.BytesIO(body)).convert("RGB")) for body in bodies])


@torch.no_grad()
def made_up(name: str, images: torch.Tensor, device: str) -> torch.nn.Module:
    """A ResNet that tells these pictures apart."""
    torch.manual_seed(0)
    net = getattr(torchvision.models, name)(weights=None).to(device)
    images = images.to(device)
    for part in net.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.reset_running_stats()
            part.momentum = None
        if isinstance(part, torchvision.models.resnet.BasicBlock | torchvision.models.resnet.Bottleneck):
            last = part.bn3 if hasattr(part, "bn3") else part.bn2
            last.weight.fill_(BLOCK)
    net.train()
    for batch in images.split(16):
        net(batch)
    net.eval()
    head, net.fc = net.fc, torch.nn.Identity()
    features = torch.cat([net(batch) for batch in images.split(16)])
    weight, bias = told_apart(features)
    head.weight.zero_()
    head.bias.zero_()
    head.weight[: len(weight)] = weight
    head.bias[: len(bias)] = bias
    net.fc = head
    return net.cpu()


@torch.inference_mode()
def top_classes(net: torch.nn.Module, images: torch.Tensor, form: Form) -> list[int]:
    """The most likely class of each."""
    return [int(best) for batch in images.split(16) for best in net(form.batch(batch)).float().argmax(1)]


def save_script(net: torch.nn.Module, path: pathlib.Path) -> None:
    """As TorchScript, as archives have it."""
    torch.jit.trace(net, torch.zeros(2, 3, 224, 224), check_trace=False).save(str(path))


def eager_source(net: torch.nn.Module) -> str:
    """A model file with the one class that TorchServe asks for."""
    layers = [len(getattr(net, f"layer{number}")) for number in range(1, 5)]
    return EAGER.format(block=type(net.layer1[0]).__name__, layers=layers)


def archive(folder: pathlib.Path, files: dict[str, str], config: dict, weights: pathlib.Path) -> pathlib.Path:
    """A model directory for `image_classifier`; the weights lie elsewhere and are linked."""
    (folder / "MAR-INF").mkdir(parents=True, exist_ok=True)
    about = {"modelName": "bench", "modelVersion": "1.0", "handler": "image_classifier", "serializedFile": "net.pt"}
    about["configFile"] = "model-config.yaml"
    link = folder / "net.pt"
    if not link.exists():
        link.hardlink_to(weights)
    for name, text in files.items():
        (folder / name).write_text(text)
        about["modelFile"] = name
    (folder / "model-config.yaml").write_text(json.dumps(config))
    (folder / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"runtime": "python", "model": about}))
    return folder
