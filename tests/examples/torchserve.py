"""Runs TorchServe's own unit tests with Jitney's packages, and its handler for transformers with the server:
`JITNEY_BIN=... python tests/examples/torchserve.py CHECKOUT [SUITE ...]`.

CHECKOUT is a clone of pytorch/serve. Its tests are run where they lie; `ts`, `model_archiver` and `workflow_archiver`
are Jitney's, and what only the checkout has (its tests, and what they import from beside them) is found behind them.
The interpreter needs torch, torchvision, captum, transformers, mock, pytest and pytest-mock. Tests that fetch weights
are left out where these cannot be fetched.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from gallery import ROOT, RUNS, checkout, conclude, tell

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
HANDLER = "examples/Huggingface_Transformers/Transformer_handler_generalized.py"
SETTINGS = {
    "model_name": "bert-small", "mode": "sequence_classification", "do_lower_case": True, "num_labels": "2",
    "save_mode": "pretrained", "max_length": "60", "captum_explanation": True, "embedding_name": "bert",
    "BetterTransformer": False, "model_parallel": False,
}  # fmt: skip
"""What the handler asks its model-config.yaml for."""
AWAY = re.compile(r"URLError|couldn't connect|mnist_cnn\.pt'")
"""Weights that cannot be fetched, or that a copy without large files lacks."""
KNOWN = {
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
    for suite, home in SUITES.items():
        if not wanted or suite in wanted:
            outcomes |= run(source, suite, home)
    if not wanted or HANDLER in wanted:
        outcomes[HANDLER] = serve(source / HANDLER)
        tell(HANDLER, outcomes[HANDLER])
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
        told = dict(map(outcome, ElementTree.parse(report).iter("testcase")))
    outcomes = {name: why for name, why in told.items() if not AWAY.search(why)}
    print(f"left out, since weights cannot be fetched: {len(told) - len(outcomes)} of {len(told)} of {suite}")
    for name, why in outcomes.items():
        tell(name, why)
    return outcomes


def serve(handler: Path) -> str:
    """What goes wrong when the handler classifies its own sample with a small model."""
    sys.path.insert(0, str(ROOT / "tests"))
    from harness.server import Server

    binary = Path(os.environ["JITNEY_BIN"])
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(Path(folder, "model"))
        names = handler.parent / "Seq_classification_artifacts" / "index_to_name.json"
        command = [
            binary, "archive", "--model-name", "bert", "--version", "1.0", "--handler", handler,
            "--serialized-file", model / "model.safetensors", "--extra-files", f"{model},{names}",
            "--config-file", model / "model-config.yaml", "--export-path", folder,
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        server = Server(binary, Path(folder, "server"), ["serve", Path(folder, "bert.mar"), "--python", sys.executable])
        try:
            sample = handler.parent / "Seq_classification_artifacts" / "sample_text_captum_input.txt"
            answer = server.started().predict("bert", sample.read_bytes())
        finally:
            server.end()
    known = json.loads(names.read_text()).values()
    return RUNS if answer.ok and answer.text in known else f"{answer.status_code}: {answer.text}"


def small_model(folder: Path) -> Path:
    """A classifier of two classes with random weights, and its words."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir()
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nis\na")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForSequenceClassification(BertConfig(vocab_size=8, num_labels=2, **sizes)).save_pretrained(folder)
    (folder / "model-config.yaml").write_text(json.dumps({"handler": SETTINGS}))
    return folder


def outcome(case: ElementTree.Element) -> tuple[str, str]:
    """A test's name, and the first line of what went wrong."""
    parts = [*str(case.get("classname", "")).split("."), str(case.get("name"))]
    file = next((at for at, part in enumerate(parts) if part.startswith("test_") or part.endswith("_test")), 0)
    failed = case.find("failure") if case.find("failure") is not None else case.find("error")
    why = RUNS if failed is None else (str(failed.get("message", "")).strip() or "it fails").splitlines()[0][:300]
    return "::".join([f"{parts[file]}.py", *parts[file + 1 :]]), why


if __name__ == "__main__":
    sys.exit(main())
