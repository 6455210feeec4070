"""Serves TorchServe's examples from a checkout: `JITNEY_BIN=... python tests/examples/torchserve_examples.py CHECKOUT`.

CHECKOUT is a clone of pytorch/serve. Handlers, model files, configurations and samples are used from there as they are;
only weights are made up, from the example's own model file. The interpreter needs torch, torchvision and requests.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gallery import ROOT, RUNS, checkout, conclude, tell

CLASSIFIERS = "image_classifier"
LABELS = "image_classifier/index_to_name.json"


def is_digit(text: str) -> bool:
    """Whether an answer is one digit."""
    return text.strip() in set("0123456789")


def has_five_labels(text: str) -> bool:
    """Whether an answer is five labels with their scores."""
    told = json.loads(text)
    return len(told) == 5 and all(isinstance(score, float) for score in told.values())


@dataclass(frozen=True)
class Example:
    """What an example is made of, in files of the folder `examples`."""

    model: str
    sample: str = f"{CLASSIFIERS}/kitten.jpg"
    handler: str = "image_classifier"
    fits: Callable[[str], bool] = has_five_labels
    extra: str = LABELS
    config: str = ""
    scripted: bool = False
    requests: int = 1


EXAMPLES = {
    "image_classifier/mnist": Example(
        "image_classifier/mnist/mnist.py",
        "image_classifier/mnist/test_data/3.png",
        "image_classifier/mnist/mnist_handler.py",
        is_digit,
        extra="",
    ),
    **{
        f"image_classifier/{name}": Example(f"image_classifier/{name}/model.py")
        for name in ("resnet_18", "resnet_152_batch", "alexnet", "squeezenet", "densenet_161")
    },
    "image_classifier/resnet_18 in TorchScript": Example("image_classifier/resnet_18/model.py", scripted=True),
    "micro_batching": Example(
        "image_classifier/resnet_18/model.py",
        handler="micro_batching/micro_batching_handler.py",
        config="micro_batching/config.yaml",
        requests=10,
    ),
}
KNOWN: dict[str, str] = {}
"""Examples that do not run, and why."""


def main() -> int:
    """Serves all of them, or those that are named, one after the other."""
    source = checkout(sys.argv[1:], "examples")
    if source is None:
        return 0
    wanted = sys.argv[2:]
    outcomes: dict[str, str] = {}
    for name, example in EXAMPLES.items():
        if not wanted or name in wanted:
            outcomes[name] = serve(source, example)
            tell(name, outcomes[name])
    text = "It serves {runs} of {all} of TorchServe's examples for pictures, with their own handlers and settings."
    return 0 if wanted else conclude("torchserve.md", "count of torchserve_examples.py", text, outcomes, KNOWN)


def serve(source: Path, example: Example) -> str:
    """What goes wrong with an example, in one line."""
    sys.path.insert(0, str(ROOT / "tests"))
    from harness.server import Server

    binary = Path(os.environ["JITNEY_BIN"])
    with tempfile.TemporaryDirectory() as folder:
        pack(binary, source, example, Path(folder))
        command = ["serve", Path(folder, "model.mar"), "--python", sys.executable]
        server = Server(binary, Path(folder, "server"), command)
        try:
            server.started()
            for _ in range(example.requests):
                answer = server.predict("model", (source / example.sample).read_bytes())
                if not answer.ok or not example.fits(answer.text):
                    return f"{answer.status_code}: {answer.text[:300]}"
        except (RuntimeError, TimeoutError, AssertionError) as error:
            return " ".join(str(error).split())[:300]
        finally:
            server.end()
    return RUNS


def pack(binary: Path, source: Path, example: Example, folder: Path) -> None:
    """Makes the archive as the example's page says."""
    handler = source / example.handler if example.handler.endswith(".py") else example.handler
    command = ["archive", "--model-name", "model", "--version", "1.0", "--handler", handler, "--export-path", folder]
    command += ["--serialized-file", weights(source / example.model, folder, example.scripted)]
    if not example.scripted:
        command += ["--model-file", source / example.model]
    if example.extra:
        command += ["--extra-files", source / example.extra]
    if example.config:
        command += ["--config-file", source / example.config]
    subprocess.run([binary, *command], check=True, stdout=subprocess.DEVNULL)


def weights(file: Path, folder: Path, scripted: bool) -> Path:
    """Random weights of the model that a file defines."""
    import torch

    spec = importlib.util.spec_from_file_location("example_model", file)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{file} is no Python file")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == "example_model"]
    torch.manual_seed(0)
    network = own[0]().eval()
    path = folder / "weights.pt"
    torch.jit.script(network).save(str(path)) if scripted else torch.save(network.state_dict(), path)
    return path


if __name__ == "__main__":
    sys.exit(main())
