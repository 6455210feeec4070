"""A `model.tar.gz` with an `inference.py`, served by this program and by AWS's own toolkit over TorchServe in the same run.

    JITNEY_BIN=target/release/jitney python bench/sagemaker.py --out sagemaker.json
    ... bench/sagemaker.py --rows plain --seconds 3 --rounds 1

The workers of both use the Python that runs this script; it needs torch, xgboost and transformers. The toolkit,
TorchServe and what they need are fetched once (bench/peers/install.py says where to); Java and wrk must be there.
Both get the same folder and the same variables: one worker, batches of at most 8. TorchServe waits 5 ms for a batch, and
sends one when it is full. 32 connections, each of which waits for its answer. Rows: `plain` (a `predict_fn` without a
model), `pytorch` (a small network), `xgboost` (a forest of 100 trees), `huggingface` (a small BERT). Weights are made
up: only the speed means anything.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from peers.install import home
from peers.measure import Figures, measure, wait_until_ready
from peers.processes import Running, free_ports
from peers.servers import Ask
from peers.servers.jitney import BINARY
from peers.workloads import Load

REQUIREMENTS = (
    "torchserve==0.12.0",
    "torch-model-archiver==0.12.0",
    "sagemaker-inference==1.10.1",
    "sagemaker-pytorch-inference==2.0.25",
    "retrying",
    "psutil",
    "six",
    "setuptools<80",
    "boto3",
)
"""The toolkit still imports pkg_resources. What else it asks for, torch and numpy, the Python that runs this has."""
START = """
import sys
from sagemaker_pytorch_serving_container import serving, torchserve

torchserve.TS_CONFIG_FILE = sys.argv[1]  # Else it writes to /etc.
serving.main()
"""
LOAD = Load("32 connections", connections=32)
BATCH, DELAY_MS = 8, 5
JSON = "application/json"
PATIENCE_S, WARM_S = 300.0, 4.0
HEAD = """
import json, os

def input_fn(data, content_type):
    return json.loads(data)["inputs"]

def output_fn(prediction, accept):
    return json.dumps({"outputs": prediction})
"""
PLAIN = """
def model_fn(model_dir):
    return 2.0

def predict_fn(data, model):
    return [model * value for value in data]
"""
PYTORCH = """
import torch

def model_fn(model_dir):
    return torch.jit.load(os.path.join(model_dir, "network.pt")).eval()

@torch.inference_mode()
def predict_fn(data, model):
    return model(torch.tensor([data])).tolist()
"""
XGBOOST = """
import numpy, xgboost

def model_fn(model_dir):
    booster = xgboost.Booster()
    booster.load_model(os.path.join(model_dir, "forest.json"))
    booster.set_param({"nthread": 1})
    return booster

def predict_fn(data, model):
    return model.inplace_predict(numpy.asarray([data])).tolist()
"""
HUGGINGFACE = """
import torch, transformers

def model_fn(model_dir):
    return transformers.AutoModelForSequenceClassification.from_pretrained(model_dir).eval()

@torch.inference_mode()
def predict_fn(data, model):
    return model(torch.tensor([data])).logits.softmax(-1).tolist()
"""
NUMBERS = [0.5, 1.5, 2.5, 3.5]


def main() -> None:
    """Runs rows and prints what they gave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    packages = toolkit()
    found = {}
    print("| row | server | requests/s | p50 ms | p99 ms | CPU µs/request | of it the front | not answered |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.rows.split(","):
        found[name] = row(name, packages, options)
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


def toolkit() -> pathlib.Path:
    """A folder with AWS's toolkit and TorchServe, fetched once for each Python."""
    folder = home() / f"sagemaker-toolkit-{sys.version_info.major}.{sys.version_info.minor}"
    note = folder / "requirements.json"
    if not (note.exists() and json.loads(note.read_text()) == list(REQUIREMENTS)):
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        *plain, boto3 = REQUIREMENTS
        subprocess.run([*pip, "--no-deps", *plain], check=True)
        subprocess.run([*pip, boto3], check=True)
        note.write_text(json.dumps(REQUIREMENTS))
    return folder


def row(name: str, packages: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """One model behind both servers, by turns."""
    code, given, make = ROWS[name]
    body = json.dumps({"inputs": given}).encode()
    headers = {"Content-Type": JSON, "Accept": JSON}
    ask = Ask(path="/invocations", body=body, headers=headers, answer="outputs")
    with tempfile.TemporaryDirectory(prefix="jitney-sagemaker-") as scratch:
        base = unpacked(pathlib.Path(scratch), HEAD + code, make)
        turns = ((server, start) for _ in range(options.rounds) for server, start in SERVERS.items())
        found = [(server, one(start, base, packages, ask, options)) for server, start in turns]
    figures = {server: medians([them for who, them in found if who == server]) for server in SERVERS}
    for server, them in figures.items():
        costs = f"{them['cpu_us']:.0f} | {them.get('front_us', 0.0):.0f} | {them['not_ok']:.0f}"
        print(f"| {name} | {server} | {them['rate']:.0f} | {them['p50_ms']:.2f} | {them['p99_ms']:.2f} | {costs} |")
    ours, theirs = figures["jitney"], figures["toolkit"]
    ratios = {"rate": ours["rate"] / theirs["rate"], "front": ours["front_us"] / theirs["front_us"]}
    print(f"| {name} | ratio | {ratios['rate']:.2f} | | | | {ratios['front']:.2f} | |", flush=True)
    return {**figures, "ratios": ratios}


def unpacked(scratch: pathlib.Path, code: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """SageMaker's `/opt/ml`, with what is in the archive below `model`."""
    source, base = scratch / "source", scratch / "ml"
    (source / "code").mkdir(parents=True)
    (source / "code" / "inference.py").write_text(code)
    make(source)
    with tarfile.open(scratch / "model.tar.gz", "w:gz") as archive:
        archive.add(source, ".")
    with tarfile.open(scratch / "model.tar.gz") as archive:
        archive.extractall(base / "model", filter="data")
    return base


def one(
    start: Callable[..., Any], base: pathlib.Path, packages: pathlib.Path, ask: Ask, options: argparse.Namespace
) -> Figures:
    """One server from its start to its end: warmed up, then measured."""
    with (
        tempfile.TemporaryDirectory(prefix="jitney-server-") as folder,
        start(pathlib.Path(folder), base, packages) as (running, port),
    ):
        wait_until_ready(ask, port, running, None, PATIENCE_S)
        measure(LOAD, ask, port, running, pathlib.Path(folder), min(WARM_S, options.seconds))
        figures = measure(LOAD, ask, port, running, pathlib.Path(folder), options.seconds)
        if "cpu_us" not in figures:
            raise RuntimeError(f"no answer in {options.seconds:g} s; give it more --seconds\n{running.tail()}")
        return figures


def medians(rounds: list[Figures]) -> Figures:
    """The median of each figure."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def variables(base: pathlib.Path, port: int) -> dict[str, str]:
    """What SageMaker sets, for both."""
    batches = {"BATCH_SIZE": BATCH, "MAX_BATCH_DELAY": DELAY_MS, "MIN_WORKERS": 1, "MAX_WORKERS": 1}
    return {
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(base),
        "SAGEMAKER_BASE_DIR": str(base),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "SAGEMAKER_TS_RESPONSE_TIMEOUT": "120",
        **{f"SAGEMAKER_TS_{name}": str(value) for name, value in batches.items()},
    }


@contextmanager
def jitney(folder: pathlib.Path, base: pathlib.Path, _packages: pathlib.Path) -> Iterator[tuple[Running, int]]:
    """This program, as its image starts it."""
    port, management, metrics, *grpc = free_ports(5)
    env = variables(base, port) | {"JITNEY_PYTHON": sys.executable, "JITNEY_MANAGEMENT_PORT": str(management)}
    env |= {"JITNEY_METRICS_PORT": str(metrics), "JITNEY_GRPC_PORT": str(grpc[0])}
    env |= {"JITNEY_GRPC_MANAGEMENT_PORT": str(grpc[1])}
    with ended(Running([str(BINARY), "serve"], env, folder, "jitney")) as running:
        yield running, port


@contextmanager
def over_torchserve(folder: pathlib.Path, base: pathlib.Path, packages: pathlib.Path) -> Iterator[tuple[Running, int]]:
    """AWS's toolkit, as AWS's image starts it, with ports of its own."""
    port, management, metrics, *grpc = free_ports(5)
    env = variables(base, port)
    env |= {"PATH": f"{packages / 'bin'}:{env['PATH']}", "PYTHONPATH": str(packages)}
    env |= {"TS_MANAGEMENT_ADDRESS": f"http://127.0.0.1:{management}"}
    env |= {"TS_METRICS_ADDRESS": f"http://127.0.0.1:{metrics}"}
    env |= {"TS_GRPC_INFERENCE_PORT": str(grpc[0]), "TS_GRPC_MANAGEMENT_PORT": str(grpc[1])}
    command = [sys.executable, "-c", START, str(folder / "ts.properties")]
    with ended(Running(command, env, folder, "java")) as running:
        yield running, port


@contextmanager
def ended(running: Running) -> Iterator[Running]:
    """Leaves nothing of it behind."""
    try:
        yield running
    finally:
        running.stop()


def nothing(_folder: pathlib.Path) -> None:
    """No weights."""


def network(folder: pathlib.Path) -> None:
    """Two layers of torch."""
    import torch

    layers = torch.nn.Sequential(torch.nn.Linear(len(NUMBERS), 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    torch.jit.save(torch.jit.script(layers.eval()), str(folder / "network.pt"))


def forest(folder: pathlib.Path) -> None:
    """Boosted trees."""
    import numpy
    import xgboost

    chance = numpy.random.default_rng(0)
    rows = chance.standard_normal((2000, len(NUMBERS)))
    data = xgboost.DMatrix(rows, label=(rows.sum(axis=1) > 0).astype(int))
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 6}, data, num_boost_round=100)
    booster.save_model(folder / "forest.json")


def bert(folder: pathlib.Path) -> None:
    """A classifier of texts; it is given tokens."""
    import transformers

    shape = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512}
    config = transformers.BertConfig(vocab_size=1000, num_labels=4, **shape)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)


SERVERS: dict[str, Callable[..., Any]] = {"jitney": jitney, "toolkit": over_torchserve}
ROWS: dict[str, tuple[str, list[Any], Callable[[pathlib.Path], None]]] = {
    "plain": (PLAIN, NUMBERS, nothing),
    "pytorch": (PYTORCH, NUMBERS, network),
    "xgboost": (XGBOOST, NUMBERS, forest),
    "huggingface": (HUGGINGFACE, list(range(1, 25)), bert),
}

if __name__ == "__main__":
    main()
