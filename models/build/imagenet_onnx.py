"""The ImageNet classifier of `make models` as an ONNX file with its card and labels.

`.venv/torch/bin/python models/build/imagenet_onnx.py models/out` writes models/out/imagenet-onnx/imagenet.onnx, which
`jitney serve` takes images for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

CARD = """\
image: {resize: 256, crop: 224, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}
labels: labels.txt
softmax: true
"""


def main(out: Path) -> None:
    """Writes the file, its card and its labels beside each other."""
    source, folder = out / "imagenet", out / "imagenet-onnx"
    folder.mkdir(parents=True, exist_ok=True)
    net = torch.jit.load(str(source / "imagenet.pt")).eval()
    dynamic = {"images": {0: "n"}, "scores": {0: "n"}}
    torch.onnx.export(
        net,
        torch.zeros(2, 3, 224, 224),
        str(folder / "imagenet.onnx"),
        input_names=["images"],
        output_names=["scores"],
        dynamic_axes=dynamic,
        opset_version=13,
    )
    names = json.loads((source / "index_to_name.json").read_text())
    (folder / "labels.txt").write_text("".join(names[str(number)] + "\n" for number in range(len(names))))
    (folder / "imagenet.yaml").write_text(CARD)
    print(folder / "imagenet.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
