"""Triton's own client examples against its own sample repository, both unchanged, served by Jitney.

    TRITON_SERVER=../server TRITON_CLIENT=../client python tests/examples/triton.py

The two folders are checkouts of triton-inference-server/server and /client. Weights that are not in them are stood in
for by small ones of the same signature, and so are the models that the examples name and the repository lacks. Prints
a line for each model and each example, writes the counts into the page, and ends with 1 if one fails that is not
expected to.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from gallery import conclude

from harness import onnx
from harness.server import Server

SECONDS = 300
MODELS = Path("docs/examples/model_repository")
EXAMPLES = Path("src/python/examples")
NOT_HERE = {
    "simple_grpc_cudashm_client.py": "CUDA shared memory is not served",
    "simple_http_cudashm_client.py": "CUDA shared memory is not served",
    "simple_grpc_model_control.py": "it uploads files, which are not taken from clients",
}
"""Examples that are not expected to work, and why."""

REPEAT_CONFIG = """
name: "repeat_int32"
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: True }
input [
  { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] }
]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
REPEAT = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in pb_utils.get_input_tensor_by_name(request, "IN").as_numpy():
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", number.reshape(1))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


ENSEMBLE_CONFIG = """
name: "preprocess_inception_ensemble"
platform: "ensemble"
max_batch_size: 8
input [ { name: "INPUT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1001 ] label_filename: "labels.txt" } ]
ensemble_scheduling {
  step [
    { model_name: "preprocess" model_version: -1
      input_map { key: "INPUT" value: "INPUT" } output_map { key: "OUTPUT" value: "image" } },
    { model_name: "inception_rows" model_version: -1
      input_map { key: "input:0" value: "image" }
      output_map { key: "InceptionV3/Predictions/Softmax:0" value: "OUTPUT" } }
  ]
}
"""
PREPROCESS_CONFIG = """
name: "preprocess"
backend: "python"
max_batch_size: 8
input [ { name: "INPUT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 299, 299, 3 ] } ]
"""
PREPROCESS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            files = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy().reshape(-1)
            images = [np.resize(np.frombuffer(one, np.uint8), (299, 299, 3)) for one in files]
            images = pb_utils.Tensor("OUTPUT", np.stack(images).astype(np.float32) / 255)
            responses.append(pb_utils.InferenceResponse([images]))
        return responses
"""
ATTRDICT = """
class AttrDict(dict):
    def __getattr__(self, name):
        value = self[name]
        if isinstance(value, list):
            return [AttrDict(one) if isinstance(one, dict) else one for one in value]
        return AttrDict(value) if isinstance(value, dict) else value
"""


class Example(NamedTuple):
    """One run of an example."""

    script: str
    arguments: tuple[str, ...] = ()
    why_not: str = ""
    """Why it is not expected to work here."""

    @property
    def name(self) -> str:
        return " ".join((self.script, *self.arguments))


def examples(folder: Path) -> list[Example]:
    """Every script, and the image client in its other ways; not the one that runs for hours."""
    scripts = sorted(path.name for path in folder.glob("*.py") if path.name != "memory_growth_test.py")
    others = [("-i", "gRPC"), ("-i", "gRPC", "--streaming"), ("-i", "gRPC", "--async")]
    found = [Example(one, (), NOT_HERE.get(one, "")) for one in scripts]
    return found + [Example("image_client.py", one) for one in others if "image_client.py" in scripts]


def densenet(path: Path) -> None:
    """The signature of densenet_onnx: an image becomes a thousand scores."""
    weights = struct.pack("<3000f", *(((at * 37) % 101) / 101 for at in range(3000)))
    onnx.write(
        path,
        [onnx.node("GlobalAveragePool", ["data_0"], "mean"), onnx.node("Conv", ["mean", "w"], "fc6_1")],
        [onnx.value("data_0", onnx.FLOAT, [1, 3, 224, 224])],
        [onnx.value("fc6_1", onnx.FLOAT, [1, 1000, 1, 1])],
        [onnx.tensor(onnx.FLOAT, [1000, 3, 1, 1], weights, "w")],
    )


def inception(path: Path, rows: int | str = 1) -> None:
    """The signature of inception_onnx, whose channels come last."""
    weights = struct.pack("<3003f", *(((at * 53) % 97) / 97 for at in range(3003)))
    output, no_dimension = "InceptionV3/Predictions/Softmax:0", onnx.whole_attribute("keepdims", 0)
    onnx.write(
        path,
        [
            onnx.node("Reshape", ["input:0", "rows"], "flat"),
            onnx.node("ReduceMean", ["flat"], "mean", onnx.whole_list_attribute("axes", [1]), no_dimension),
            onnx.node("MatMul", ["mean", "w"], "scores"),
            onnx.node("Softmax", ["scores"], output, onnx.whole_attribute("axis", 1)),
        ],
        [onnx.value("input:0", onnx.FLOAT, [rows, 299, 299, 3])],
        [onnx.value(output, onnx.FLOAT, [rows, 1001])],
        [
            onnx.tensor(onnx.INT64, [3], struct.pack("<3q", -1, 299 * 299, 3), "rows"),
            onnx.tensor(onnx.FLOAT, [3, 1001], weights, "w"),
        ],
    )


def repository(checkout: Path, home: Path) -> Path:
    """A copy of the sample repository, with stand-ins where weights are missing."""
    models = home / "models"
    shutil.copytree(checkout / MODELS, models)
    for name, write in {"densenet_onnx": densenet, "inception_onnx": inception}.items():
        (models / name / "1").mkdir(exist_ok=True)
        write(models / name / "1/model.onnx")
    return models


def add_others(models: Path) -> None:
    """The models that the examples of decoupled models and of ensembles name."""
    for name, config, code in (("repeat_int32", REPEAT_CONFIG, REPEAT), ("preprocess", PREPROCESS_CONFIG, PREPROCESS)):
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(config)
        (models / name / "1/model.py").write_text(code)
    (models / "inception_rows/1").mkdir(parents=True)
    inception(models / "inception_rows/1/model.onnx", "n")
    ensemble = models / "preprocess_inception_ensemble"
    (ensemble / "1").mkdir(parents=True)
    (ensemble / "config.pbtxt").write_text(ENSEMBLE_CONFIG)
    shutil.copy(models / "inception_onnx/inception_labels.txt", ensemble / "labels.txt")


def attrdict(home: Path) -> None:
    """A stand-in for a package that one example imports and that newer Pythons cannot install."""
    (home / "packages").mkdir()
    (home / "packages/attrdict.py").write_text(ATTRDICT)


def picture(home: Path) -> Path:
    """An image to classify."""
    from PIL import Image

    path = home / "picture.jpg"
    Image.radial_gradient("L").convert("RGB").save(path)
    return path


@contextmanager
def served(models: Path, home: Path, *flags: str) -> Iterator[Server]:
    """The repository on a server."""
    binary = Path(os.environ["JITNEY_BIN"])
    library = os.environ.get("ONNX_LIBRARY") or _library()
    if library:
        flags = (*flags, "--onnx-library", library)
    server = Server(binary, home, ["serve", models, *flags]).started()
    try:
        yield server
    finally:
        server.end()


def _library() -> str:
    """ONNX Runtime's library, where its package is installed: Triton's sample models use what only it has."""
    try:
        import onnxruntime
    except ImportError:
        return ""
    found = sorted(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so*"))
    return str(found[0]) if found else ""


def run(example: Example, folder: Path, server: Server, image: Path) -> str:
    """Runs an example; returns what went wrong, or nothing."""
    grpc = re.search(r"^gRPC inference +(\S+)$", server.stdout, re.MULTILINE)
    assert grpc is not None
    source = (folder / example.script).read_text()
    is_grpc = "grpc" in example.script or "gRPC" in example.arguments or example.script.startswith("reuse")
    url = grpc[1] if is_grpc else server.url("").removeprefix("http://").rstrip("/")
    arguments = [*example.arguments]
    if "image_client" in example.script:
        model = [] if example.script.startswith("ensemble") else ["-m", "densenet_onnx", "-s", "INCEPTION"]
        arguments += [*model, str(image)]
    if example.script.startswith("reuse"):
        arguments += ["-i", "grpc"]
    env = {**os.environ, "PYTHONPATH": str(image.parent / "packages")}
    command = [sys.executable, str(folder / example.script), "-u", url, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder, env=env
        )
    except subprocess.TimeoutExpired:
        return f"no end after {SECONDS} s"
    said = (done.stdout + done.stderr).strip()
    passes = done.returncode == 0 and ("PASS" not in source or "PASS" in done.stdout)
    return "" if passes else (said.splitlines() or [f"it ended with {done.returncode}"])[-1][:200]


def run_all(found: list[Example], folder: Path, server: Server, image: Path) -> dict[str, str]:
    """What became of each example."""
    results = {}
    for example in found:
        why = results[example.name] = run(example, folder, server, image)
        told = f": {example.why_not or why}" if why else ""
        print(f"{'fails' if why else 'works'}  {example.name}{told}", flush=True)
    return results


def main() -> int:
    """Serves, runs and counts."""
    server, client = (os.environ.get(name, "") for name in ("TRITON_SERVER", "TRITON_CLIENT"))
    if not (Path(server) / MODELS).is_dir() or not (Path(client) / EXAMPLES).is_dir():
        print(
            "skipped: TRITON_SERVER and TRITON_CLIENT must be checkouts of triton-inference-server/server and /client"
        )
        return 0
    folder = Path(client).resolve() / EXAMPLES
    found = examples(folder)
    control = [one for one in found if "model_control" in one.script]
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        models, image = repository(Path(server), home), picture(home)
        attrdict(home)
        names = sorted(path.name for path in models.iterdir())
        # The examples of model control ask for exactly so many models.
        seven, eight = home / "seven", home / "eight"
        shutil.copytree(models, seven, ignore=shutil.ignore_patterns("inception_onnx"))
        shutil.copytree(models, eight)
        add_others(models)
        with served(models, home / "server", "--allow-client-shared-memory") as running:
            states = {row["name"]: row for row in running.manage("POST", "/v2/repository/index").json()}
            for name in names:
                print(f"{states[name]['state']}  {name} {states[name].get('reason', '')}", flush=True)
            results = run_all([one for one in found if one not in control], folder, running, image)
        for one in control:
            some = eight if "grpc" in one.script else seven
            with served(some, home / f"server-{some.name}", "--allow-client-config") as running:
                results |= run_all([one], folder, running, image)
    ready = sum(states[name]["state"] == "READY" for name in names)
    text = f"The last run: {ready} of {len(names)} models serve; {{runs}} of {{all}} examples work."
    known = {one.name: one.why_not for one in found if one.why_not}
    return int(ready < len(names)) | conclude("triton.md", "count of tests/examples/triton.py", text, results, known)


if __name__ == "__main__":
    sys.exit(main())
