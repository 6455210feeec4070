"""AWS's own unit tests of what user code imports from its toolkits, unchanged, against this project's modules of the
same names.

    python tests/examples/sagemaker_units.py PYTORCH_TOOLKIT INFERENCE_TOOLKIT

These are checkouts of aws/sagemaker-pytorch-inference-toolkit and aws/sagemaker-inference-toolkit. The Python needs
pytest, numpy, scipy, mock and six, for the first one torch as well. No server is started: tests of the modules that
start one in the toolkits (`model_server`, `serving`, `torchserve`, `ts_environment`) concern nothing that is here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gallery import ROOT, RUNS, checkout, commit, conclude, leave_path, tell

FOLDER = "test/unit"
MODULES = (
    "test_decoder",
    "test_default_handler_service",
    "test_default_inference_handler",
    "test_default_pytorch_inference_handler",
    "test_encoder",
    "test_environment",
    "test_handler_service",
    "test_transfomer",
    "test_utils",
)
"""As they are spelt in both toolkits."""
OUTCOME = re.compile(r"^\S*?(\w+)\.py::(.+?) (PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)
ROWS = "it expects that all rows are written to row 0; here each row of a batch has its own type and error"
TRACE = "it expects the traceback in the answer; here it is in the log, and in the answer with `debug_errors`"
GPU = "it needs a GPU, and skips itself without one"
ELASTIC = "Elastic Inference, which AWS has ended"
NOT_HERE = {
    "test_decoder::test_npy_to_numpy[target4]": (
        "a dictionary, which only unpickling brings back; passes with `JITNEY_SAGEMAKER_ALLOW_PICKLE=true`"
    ),
    "test_transfomer::test_batch_transform[Accept]": ROWS,
    "test_transfomer::test_batch_transform[accept]": ROWS,
    "test_transfomer::test_handle_validate_and_initialize_error": TRACE,
    "test_transfomer::test_handle_validate_and_initialize_user_error": TRACE,
    "test_default_pytorch_inference_handler::test_eia_default_model_fn_error": ELASTIC,
    "test_default_pytorch_inference_handler::test_eia_default_predict_fn": ELASTIC,
    "test_default_pytorch_inference_handler::test_default_predict_fn_cpu_gpu": GPU,
    "test_default_pytorch_inference_handler::test_default_predict_fn_gpu_cpu": GPU,
    "test_default_pytorch_inference_handler::test_default_predict_fn_gpu_gpu": GPU,
    "test_default_pytorch_inference_handler::test_default_output_fn_gpu": GPU,
}
TEXT = (
    "AWS's unit tests of the modules that user code imports, of the {name} at `{commit}`, unchanged, against ours: "
    "{{runs}} of {{all}} pass (tests/examples/sagemaker_units.py)."
)
SUITES = ("PyTorch toolkit", "inference toolkit")
WITH_PICKLE = "test_decoder::test_npy_to_numpy[target4]"
SECONDS = 600


def run(found: Path, names: tuple[str, ...] = MODULES, **variables: str) -> dict[str, str]:
    """The outcome of each test of these modules, as far as the checkout has them."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "JITNEY_"))}
    env |= {"PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    files = [str(path) for name in names if (path := found / f"{name}.py").exists()]
    pytest = [sys.executable, "-m", "pytest", "-v", "--noconftest", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as scratch:
        command = [*pytest, "-c", os.devnull, f"--rootdir={found}", *files]
        done = subprocess.run(command, cwd=scratch, env=env, capture_output=True, text=True, timeout=SECONDS)
    outcomes = OUTCOME.findall(done.stdout)
    if not outcomes:
        print(done.stdout[-4000:], done.stderr[-4000:])
    return {f"{file}::{test}": RUNS if word == "PASSED" else word.lower() for file, test, word in outcomes}


def suite(name: str, found: Path) -> int:
    """Runs what a checkout has, and writes the counts down."""
    outcomes = run(found)
    for test, outcome in outcomes.items():
        tell(test, outcome)
    again = run(found, ("test_decoder",), JITNEY_SAGEMAKER_ALLOW_PICKLE="true")
    if again.get(WITH_PICKLE) != RUNS:
        print(f"!!! {WITH_PICKLE} does not pass with pickle either: {again.get(WITH_PICKLE)}")
        return 1
    text = TEXT.format(name=name, commit=commit(found))
    return conclude("sagemaker.md", f"unit tests of the {name}", text, outcomes, NOT_HERE) or int(not outcomes)


def main() -> int:
    """Runs the tests of all checkouts that are named."""
    leave_path()
    failed = 0
    for at, name in enumerate(SUITES, start=1):
        found = checkout(sys.argv[at : at + 1], FOLDER)
        failed |= suite(name, found) if found else 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
