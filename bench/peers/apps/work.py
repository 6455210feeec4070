"""What the models of the workloads do: the same code behind every server, told by three variables which part to play.

python work.py photo FILE       writes the picture that the classifier gets
python work.py answer FILE      prints what the classifier says of it
python work.py bare FILE N      answers N pictures in batches of eight without a server; prints JSON
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence

MODEL = os.environ.get("PEER_MODEL", "noop")
"""noop, sleepy or classifier."""
RAW = os.environ.get("PEER_BODY") == "raw"
"""Whether the input is the body itself; else it is the member `input` of a JSON object."""
BATCH = int(os.environ.get("PEER_BATCH", "32"))
DELAY_MS = float(os.environ.get("PEER_DELAY_MS", "1"))
BARE_BATCH = 8
PHOTO_BYTES = 48_000


def noop(inputs: Sequence) -> list[int]:
    """The lengths of the inputs."""
    return [len(one) for one in inputs]


def sleepy(inputs: Sequence) -> list[int]:
    """Stands in for an accelerator: 5 ms for a batch and 0.2 ms for each of its items."""
    time.sleep(0.005 + 0.0002 * len(inputs))
    return [len(one) for one in inputs]


class Classifier:
    """ResNet-18 with random weights on one thread."""

    def __init__(self) -> None:
        import torch
        import torchvision

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torch = torch
        self.net = torchvision.models.resnet18(weights=None).eval()
        self.prepare = torchvision.transforms.Compose(
            [
                torchvision.transforms.Resize(256),
                torchvision.transforms.CenterCrop(224),
                torchvision.transforms.ToTensor(),
                torchvision.transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __call__(self, inputs: Sequence[bytes]) -> list[int]:
        """The classes of JPEG pictures."""
        from PIL import Image

        rows = [self.prepare(Image.open(io.BytesIO(one)).convert("RGB")) for one in inputs]
        with self.torch.inference_mode():
            return [int(row) for row in self.net(self.torch.stack(rows)).argmax(1)]


def load() -> Callable[[Sequence], list[int]]:
    """The model that this server shall have."""
    return {"noop": noop, "sleepy": sleepy}[MODEL] if MODEL != "classifier" else Classifier()


def photo() -> bytes:
    """A picture with detail enough to weigh 47 KB."""
    import torch
    from PIL import Image

    dice = torch.Generator().manual_seed(1)
    coarse = torch.rand(1, 3, 48, 64, generator=dice)
    smooth = torch.nn.functional.interpolate(coarse, size=(480, 640), mode="bicubic")[0].clamp(0, 1)
    grain = torch.rand(3, 480, 640, generator=dice) * 0.12
    pixels = ((smooth * 0.88 + grain) * 255).byte().permute(1, 2, 0).contiguous().numpy()
    for quality in range(95, 5, -1):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
        if buffer.tell() <= PHOTO_BYTES:
            break
    return buffer.getvalue()


def bare(picture: bytes, count: int) -> dict[str, float]:
    """What the classifier reaches without a server."""
    classify = Classifier()
    classify([picture] * BARE_BATCH)
    started, cpu = time.perf_counter(), time.process_time()
    batches = max(1, count // BARE_BATCH)
    for _ in range(batches):
        classify([picture] * BARE_BATCH)
    took, used = time.perf_counter() - started, time.process_time() - cpu
    items = batches * BARE_BATCH
    return {"requests": items, "rate": items / took, "cpu_us": used * 1e6 / items}


def main(verb: str, file: str, count: str = "64") -> None:
    """The verbs of the command line."""
    if verb == "photo":
        with open(file, "wb") as out:
            out.write(photo())
        return
    with open(file, "rb") as picture:
        data = picture.read()
    print(Classifier()([data])[0] if verb == "answer" else json.dumps(bare(data, int(count))))


if __name__ == "__main__":
    main(*sys.argv[1:])
