"""AWS's own integration tests of its PyTorch toolkit and of its images, unchanged, with this server in place of the
container.

    JITNEY_BIN=… python tests/examples/sagemaker.py TOOLKIT [IMAGES]

TOOLKIT is a checkout of aws/sagemaker-pytorch-inference-toolkit, IMAGES one of aws/deep-learning-containers in which
images with TorchServe are still tested, such as a70e18c. The Python needs torch, torchvision, transformers, scipy,
packaging and pytest, for IMAGES one before 9: they mark a fixture. The SDK's local mode and docker are stood in for
(sagemaker_sdk), weights and pictures that are not in the checkout by made-up ones of the same shape. The tests ask port
8080, so they run in a network of their own, as root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gallery import ROOT, RUNS, checkout, conclude, tell

SDK = Path(__file__).resolve().parent / "sagemaker_sdk"
TOOLKIT = ("integration/local/test_mnist_serving.py", "integration/local/test_multi_model_endpoint_local.py")
OUTCOME = re.compile(r"^\S+::(test_\w+) (PASSED|FAILED|ERROR|SKIPPED)", re.MULTILINE)
NOT_HERE = {"test_serve_cpu_model_on_gpu": "it needs a GPU, and skips itself without one"}
TEXT = (
    "AWS's integration tests of the PyTorch toolkit with local containers (`test_mnist_serving.py`, "
    "`test_multi_model_endpoint_local.py`), unchanged: {runs} of {all} pass. The SDK's local mode and docker are stood "
    "in for (tests/examples/sagemaker.py), and weights that a checkout lacks are made up. The tests keep their models "
    "beside `/opt/ml/models`, so the server has `JITNEY_MODEL_STORE=/` there."
)
IMAGES = "test/sagemaker_tests/pytorch/inference"
IMAGES_TESTS = ("integration/local/test_serving.py",)
IMAGES_TEXT = (
    "AWS's tests of its PyTorch images with local containers (`test_serving.py` of deep-learning-containers), "
    "unchanged, with the same stand-ins: {runs} of {all} pass."
)
SECONDS = 1800


def weights(resources: Path) -> None:
    """Networks that a checkout may lack."""
    import torch
    import torchvision

    network = torch.jit.script(torchvision.models.resnet18(weights=None).eval())
    for name in ("mme/resnet18", "resnet18/default_model"):
        if not (resources / name / "model.pt").exists():
            torch.jit.save(network, str(resources / name / "model.pt"))
    for name in ("mme/traced_resnet18", "resnet18/default_traced_resnet"):
        if not (resources / name / "traced_resnet18.pt").exists():
            torch.jit.save(network, str(resources / name / "traced_resnet18.pt"))


def digits(resources: Path) -> None:
    """Pictures of digits, where a checkout lacks them: only their number and their shape are looked at."""
    import torch

    folder = resources / "mnist/data/training/MNIST/processed"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("training.pt", "test.pt"):
        if not (folder / name).exists():
            torch.save((torch.randint(0, 256, (600, 28, 28)).to(torch.uint8), torch.arange(600) % 10), folder / name)


def run(home: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Runs these tests of the folder `test`; the outcome of each."""
    path = [str(SDK), str(home / "test"), str(ROOT / "python")]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "TS_"))}
    env |= {"PYTHONPATH": ":".join(path), "PATH": f"{SDK}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env |= {"DOCKER_ROOT": str(home / "root"), "JITNEY_BIN": str(Path(os.environ["JITNEY_BIN"]).resolve())}
    env |= {"JITNEY_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    tests = [str(home / "test" / name) for name in names]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "--noconftest",
        "-p",
        "aws_fixtures",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    inside = [
        "unshare",
        "--mount",
        "--net",
        "--propagation",
        "private",
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "sh",
    ]
    done = subprocess.run([*inside, *command], cwd=home, env=env, capture_output=True, text=True, timeout=SECONDS)
    print(done.stdout[-8000:], done.stderr[-4000:])
    return {name: RUNS if word == "PASSED" else word.lower() for name, word in OUTCOME.findall(done.stdout)}


def toolkit(found: Path) -> int:
    """Runs the tests of a checkout of the toolkit."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        shutil.copytree(found, home / "test")
        weights(home / "test/resources")
        digits(home / "test/resources")
        outcomes = run(home, TOOLKIT)
    return told("integration tests of the toolkit", TEXT, outcomes)


def images(found: Path) -> int:
    """Runs the tests of a checkout of the images."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        shutil.copytree(found, home / "test")
        digits(home / "test/resources")
        outcomes = run(home, IMAGES_TESTS)
    return told("tests of the images", IMAGES_TEXT, outcomes)


def told(mark: str, text: str, outcomes: dict[str, str]) -> int:
    """Says and writes down what came out."""
    for name, outcome in outcomes.items():
        tell(name, outcome)
    return conclude("sagemaker.md", mark, text, outcomes, NOT_HERE) or int(not outcomes)


def main() -> int:
    """Runs all tests of the checkouts that are named."""
    failed = 0
    for arguments, folder, tests in ((sys.argv[1:2], "test", toolkit), (sys.argv[2:3], IMAGES, images)):
        found = checkout(arguments, folder)
        failed |= tests(found) if found else 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
