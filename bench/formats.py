"""Files of other libraries served, beside MLServer, TorchScript, and other ways to run trees, in the same run.

    python3 -m venv /tmp/mlserver && /tmp/mlserver/bin/pip install mlserver mlserver-sklearn mlserver-xgboost "uvloop<0.22"
    JITNEY_BIN=target/release/jitney .venv/formats/bin/python bench/formats.py --mlserver /tmp/mlserver --out formats.json
    ... bench/formats.py --rows trees                        # no server: the libraries' calls beside each other

MLServer 1.7 needs a Python below 3.13, the scikit-learn that wrote the pickle, and an older uvloop than it asks for. The
workers use the Python that runs this script; it needs scikit-learn, joblib and xgboost, for the row `resnet` torch and
torchvision (`make .venv/formats/ready` brings all of them), and measures treelite and onnxruntime (with skl2onnx and
onnxmltools) in the row `trees` where they are installed. Rows: forest and booster (CPU microseconds per request of one
row of 30 numbers, 64 connections, batches of up to 32, as JSON of the Open Inference Protocol), trees (CPU microseconds
of a batch of 32 by each way to run it), resnet (answers a second of the same ResNet-50 as `.pt2` and as TorchScript, by
turns).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy

from on_gpu import load
from peers.processes import Running, free_ports
from row_options import row_parser
from server import Server, cpu, tree

JSON = "application/json"
FEATURES, ROWS_MADE, TREES, DEPTH = 30, 2000, 100, 6
BATCH, CONNECTIONS = 32, 64
IMPLEMENTATIONS = {"forest": "mlserver_sklearn.SKLearnModel", "booster": "mlserver_xgboost.XGBoostModel"}
START_SECONDS = 180.0


def main() -> None:
    """Runs rows and prints what they gave."""
    options = read_options()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="jitney-formats-") as folder:
        for name in options.rows.split(","):
            work = pathlib.Path(folder, name)
            work.mkdir()
            found[name] = ROWS[name](work, options)
            print(name, json.dumps(found[name]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = row_parser(__doc__, ROWS)
    parser.add_argument("--mlserver", type=pathlib.Path, help="the environment that MLServer is installed in")
    return parser.parse_args()


# -- models ---------------------------------------------------------------------------------------


def data() -> tuple[Any, Any]:
    """Made-up rows and classes."""
    chance = numpy.random.default_rng(0)
    rows = chance.standard_normal((ROWS_MADE, FEATURES)).astype("float32")
    return rows, (rows[:, :3].sum(1) > 0).astype("int64")


def made_forest(work: pathlib.Path) -> pathlib.Path:
    """A forest of scikit-learn."""
    import joblib
    from sklearn.ensemble import RandomForestClassifier

    path = work / "model.joblib"
    joblib.dump(RandomForestClassifier(TREES, max_depth=DEPTH, random_state=0).fit(*data()), path)
    return path


def made_booster(work: pathlib.Path) -> pathlib.Path:
    """A booster of XGBoost."""
    import xgboost

    rows, classes = data()
    told = {"max_depth": DEPTH, "objective": "binary:logistic"}
    model = xgboost.train(told, xgboost.DMatrix(rows, label=classes), num_boost_round=TREES)
    path = work / "model.json"
    model.save_model(path)
    return path


# -- servers --------------------------------------------------------------------------------------


def requests_of(work: pathlib.Path, datatype: str) -> pathlib.Path:
    """Requests of one row each, as files."""
    folder = work / "requests"
    folder.mkdir()
    for at, row in enumerate(data()[0][:64]):
        tensor = {"name": "input", "shape": [1, FEATURES], "datatype": datatype, "data": [float(one) for one in row]}
        (folder / f"{at:03}.json").write_text(json.dumps({"inputs": [tensor]}))
    return folder


def over(port: int, requests: pathlib.Path, seconds: float) -> dict[str, Any]:
    """What clients saw."""
    path = "/v2/models/bench/infer"
    return load.closed_loop_at(port, requests, JSON, CONNECTIONS, seconds, 2.0, path)


def cost(port: int, requests: pathlib.Path, seconds: float, used: Callable[[], float]) -> dict[str, float]:
    """Answers a second, and CPU microseconds of the server and its workers for each. A first run warms up."""
    over(port, requests, 1.0)
    before, started = used(), time.perf_counter()
    found = over(port, requests, seconds)
    answered = found["per_s"] * (time.perf_counter() - started)
    return {"per_s": found["per_s"], "cpu_us": (used() - before) / answered * 1e6, "p99_ms": found["p99_ms"]}


@contextmanager
def mlserver(options: argparse.Namespace, work: pathlib.Path, row: str, model: pathlib.Path) -> Iterator[Any]:
    """MLServer with its adaptive batching, and the port where it answers."""
    folder, ports = work / "mlserver", free_ports(3)
    folder.mkdir()
    names = ("http_port", "grpc_port", "metrics_port")
    (folder / "settings.json").write_text(json.dumps({"debug": False, **dict(zip(names, ports))}))
    told = {"name": "bench", "implementation": IMPLEMENTATIONS[row], "max_batch_size": BATCH, "max_batch_time": 0.005}
    (folder / "model-settings.json").write_text(json.dumps({**told, "parameters": {"uri": str(model)}}))
    command = [str(options.mlserver / "bin" / "mlserver"), "start", str(folder)]
    server = Running(command, os.environ, folder, None)
    try:
        wait_until_ready(server, f"http://127.0.0.1:{ports[0]}/v2/models/bench/ready")
        yield server, ports[0]
    finally:
        server.stop()


def wait_until_ready(server: Running, url: str) -> None:
    """Returns when the model is loaded."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and not server.ended():
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"MLServer did not start:\n{server.tail()}")


def beside_mlserver(row: str, make: Callable[[pathlib.Path], pathlib.Path], datatype: str) -> Row:
    """A row in which both serve the same file to the same requests, by turns."""

    def measured(work: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
        model, requests = make(work), requests_of(work, datatype)
        rounds: list[dict[str, dict[str, float]]] = []
        for at in range(options.rounds):
            turn: dict[str, dict[str, float]] = {}
            flags = ("--trust", "--python", sys.executable, "--batch-size", str(BATCH), "--workers", "1")
            with Server(model, *flags) as server:
                server.wait_until_ready()
                used = lambda: sum(map(cpu, tree(server.process.pid)))  # noqa: E731
                turn["jitney"] = cost(server.port(), requests, options.seconds, used)
            if options.mlserver:
                round_work = work / str(at)
                round_work.mkdir()
                with mlserver(options, round_work, row, model) as (peer, port):
                    turn["mlserver"] = cost(port, requests, options.seconds, lambda: peer.cost().total)
            rounds.append(turn)
        found = {
            who: {what: round(statistics.median(one[who][what] for one in rounds), 1) for what in rounds[0][who]}
            for who in rounds[0]
        }
        if not options.mlserver:
            return dict(found)
        return {**found, "cpu_of_mlserver": round(found["jitney"]["cpu_us"] / found["mlserver"]["cpu_us"], 3)}

    return measured


# -- ways to run trees ----------------------------------------------------------------------------


def trees(work: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """CPU microseconds for a batch by each way to run it, with one thread each."""
    ways = {**forest_ways(work), **booster_ways(work)}
    rounds = [{name: batch_us(way, options.seconds / 6) for name, way in ways.items()} for _ in range(options.rounds)]
    return {name: round(statistics.median(one[name] for one in rounds), 1) for name in ways}


def batch_us(way: Callable[[Any], Any], seconds: float) -> float:
    """CPU microseconds of a batch, all threads counted."""
    rows = data()[0][:BATCH]
    way(rows)
    began, started, runs = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        way(rows)
        runs += 1
    return (time.process_time() - began) / runs * 1e6


def forest_ways(work: pathlib.Path) -> dict[str, Callable[[Any], Any]]:
    """The library's own call, and its conversions where they are installed."""
    import joblib

    model = joblib.load(made_forest(work))
    ways: dict[str, Callable[[Any], Any]] = {"forest: predict_proba": model.predict_proba}
    try:
        import treelite

        made = treelite.sklearn.import_model(model)
        ways["forest: treelite gtil"] = lambda rows: treelite.gtil.predict(made, rows, nthread=1)
    except ImportError:
        print("treelite is not installed", file=sys.stderr)
    try:
        from skl2onnx import to_onnx

        ways["forest: onnxruntime"] = onnx_way(to_onnx(model, data()[0][:1], options={"zipmap": False}))
    except ImportError:
        print("skl2onnx or onnxruntime is not installed", file=sys.stderr)
    return ways


def booster_ways(work: pathlib.Path) -> dict[str, Callable[[Any], Any]]:
    """The same for a booster, whose library has two calls."""
    import xgboost

    path = made_booster(work)
    model = xgboost.Booster({"nthread": 1}, model_file=str(path))
    ways: dict[str, Callable[[Any], Any]] = {
        "booster: DMatrix, predict": lambda rows: model.predict(xgboost.DMatrix(rows, nthread=1)),
        "booster: inplace_predict": model.inplace_predict,
    }
    try:
        import treelite

        made = treelite.frontend.load_xgboost_model(str(path))
        ways["booster: treelite gtil"] = lambda rows: treelite.gtil.predict(made, rows, nthread=1)
    except ImportError:
        print("treelite is not installed", file=sys.stderr)
    try:
        from onnxmltools import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType

        types = [("input", FloatTensorType([None, FEATURES]))]
        ways["booster: onnxruntime"] = onnx_way(convert_xgboost(model, initial_types=types))
    except ImportError:
        print("onnxmltools or onnxruntime is not installed", file=sys.stderr)
    return ways


def onnx_way(model: Any) -> Callable[[Any], Any]:
    """ONNX Runtime with one thread, as a worker would have it."""
    import onnxruntime

    terms = onnxruntime.SessionOptions()
    terms.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), terms, providers=["CPUExecutionProvider"])
    [given] = session.get_inputs()
    return lambda rows: session.run(None, {given.name: rows})


# -- torch ----------------------------------------------------------------------------------------


def resnet(work: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """The same ResNet-50 as a program of torch.export and as TorchScript: bytes of pictures in, 1,000 numbers out."""
    import torch
    import torchvision

    torch.manual_seed(0)
    model, sample = torchvision.models.resnet50(weights=None).eval(), torch.zeros(2, 3, 224, 224)
    program = torch.export.export(model, (sample,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
    torch.export.save(program, work / "exported.pt2")
    torch.jit.trace(model, sample).save(str(work / "traced.pt"))
    tensors = {"name": "x", "datatype": "FP32", "shape": [-1, 3, 224, 224]}
    (work / "traced.tensors.json").write_text(json.dumps({"inputs": [tensors]}))
    requests = work / "requests"
    requests.mkdir()
    numpy.save(requests / "one.npy", numpy.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype="float32"))
    rounds: dict[str, list[float]] = {"pt2_per_s": [], "torchscript_per_s": []}
    for _ in range(options.rounds):
        for name, file in (("pt2_per_s", "exported.pt2"), ("torchscript_per_s", "traced.pt")):
            with Server(work / file, "--python", sys.executable, "--trust", "--workers", "1") as server:
                server.wait_until_ready()
                found = load.closed_loop(server, requests, "application/x-npy", BATCH, options.seconds, 2.0)
                rounds[name].append(found["per_s"])
    found = {name: round(statistics.median(rates), 2) for name, rates in rounds.items()}
    return {**found, "of_torchscript": round(found["pt2_per_s"] / found["torchscript_per_s"], 3)}


Row = Callable[[pathlib.Path, argparse.Namespace], dict[str, Any]]
ROWS: dict[str, Row] = {
    "forest": beside_mlserver("forest", made_forest, "FP64"),
    "booster": beside_mlserver("booster", made_booster, "FP32"),
    "trees": trees,
    "resnet": resnet,
}

if __name__ == "__main__":
    main()
