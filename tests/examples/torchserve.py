"""Runs TorchServe's own unit tests with Jitney's packages: `python tests/examples/torchserve.py CHECKOUT [SUITE ...]`.

CHECKOUT is a clone of pytorch/serve. Its tests are run in a copy of it; `ts`, `model_archiver` and `workflow_archiver`
are Jitney's, and what only the checkout has (its tests, and what they import from beside them) is found behind them.
The interpreter needs torch, torchvision, captum, transformers, mock, pytest and pytest-mock. Weights are made up where
the tests look for them before they fetch them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from gallery import ROOT, RUNS, checkout, conclude, tell
from torchserve_models import LARGE, fill, stand_in_backbones

SUITES = {
    "ts/tests/unit_tests": ".",
    "ts/torch_handler/unit_tests": ".",
    "model-archiver/model_archiver/tests/unit_tests": "model-archiver",
    "workflow-archiver/workflow_archiver/tests/unit_tests": "workflow-archiver",
}
"""Folders of tests, each with the one that they are run in."""
BESIDE = """
import sys
checkout = sys.argv[1]
sys.path[:] = [one for one in sys.path if one] + [checkout]
import model_archiver, pytest, ts, ts.torch_handler, workflow_archiver
for package, folder in ((ts, "ts"), (ts.torch_handler, "ts/torch_handler"),
                        (model_archiver, "model-archiver/model_archiver"),
                        (workflow_archiver, "workflow-archiver/workflow_archiver")):
    package.__path__.append(f"{checkout}/{folder}")
sys.exit(pytest.main(sys.argv[2:]))
"""
"""Begins pytest with the checkout's packages behind ours."""
KEPT = {
    "torch/hub/checkpoints/resnet18-f37072fd.pth": "image_classifier/resnet_18/model.py",
    ".cache/resnet18-f37072fd.pth": "image_classifier/resnet_18/model.py",
    ".cache/fasterrcnn_resnet50_fpn_coco-258fb6c6.pth": "object_detector/fast-rcnn/model.py",
    ".cache/fcn_resnet101_coco-7ecb50ca.pth": "image_segmenter/fcn/model.py",
}
"""Where the tests keep weights that they fetched, and the models that these are of."""
AWAY = re.compile(r"couldn't connect")
"""Tokenizers that cannot be fetched."""
KNOWN = {
    "test_object_detector.py::test_handle": "it wants a bench to be found, which made-up weights do not do",
    "test_workflow_packaging.py::TestWorkflowPackaging::test_export_workflow_method": (
        "it wants a call of clean_temp_files, which there is nothing for: no temporary file is made"
    ),
}
"""Tests that fail, and why."""


def main() -> int:
    """Runs all suites, or those that are named."""
    source = checkout(sys.argv[1:], ".")
    if source is None:
        return 0
    wanted = sys.argv[2:]
    outcomes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(source, Path(folder, "serve"), symlinks=True)
        stand_in_backbones(copy / "torch")
        fill(copy, {**LARGE, **KEPT})
        for suite, home in SUITES.items():
            if not wanted or suite in wanted:
                outcomes |= run(copy, suite, home)
    if wanted:
        return 0
    text = "`make test-examples` runs {runs} of {all} of TorchServe's unit tests, unchanged, with these packages."
    return conclude("torchserve.md", "count of tests/examples/torchserve.py", text, outcomes, KNOWN)


def run(source: Path, suite: str, home: str) -> dict[str, str]:
    """What went wrong in each test of a suite, in one line."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        flags = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", f"--junitxml={report}"]
        command = [sys.executable, "-c", BESIDE, str(source), *flags, f"--rootdir={source}", str(source / suite)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(command, cwd=source / home, env=environment, stdout=subprocess.DEVNULL, check=False)
        told = read(report)
    outcomes = {name: why for name, why in told.items() if not AWAY.search(why)}
    print(f"left out, since what they need cannot be fetched: {len(told) - len(outcomes)} of {len(told)} of {suite}")
    for name, why in outcomes.items():
        tell(name, why)
    return outcomes


def read(report: Path) -> dict[str, str]:
    """What went wrong in each test that was not skipped."""
    return dict(outcome(case) for case in ElementTree.parse(report).iter("testcase") if case.find("skipped") is None)


def outcome(case: ElementTree.Element) -> tuple[str, str]:
    """A test's name, and the first line of what went wrong."""
    parts = [*str(case.get("classname", "")).split("."), str(case.get("name"))]
    file = next((at for at, part in enumerate(parts) if part.startswith("test_") or part.endswith("_test")), 0)
    failed = case.find("failure") if case.find("failure") is not None else case.find("error")
    why = RUNS if failed is None else (str(failed.get("message", "")).strip() or "it fails").splitlines()[0][:300]
    return "::".join([f"{parts[file]}.py", *parts[file + 1 :]]), why


if __name__ == "__main__":
    sys.exit(main())
