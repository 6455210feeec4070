"""ONNX files of many origins, each with inputs to ask it with. What a file needs is imported when it is made."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 5
"""Items of each request."""

Feeds = dict[str, Any]
Maker = Callable[[Path], Feeds]
ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class OnnxFile:
    """Writes a file and tells what to ask it with."""

    name: str
    make: Maker
    small: bool
    """Whether it needs no more than the ordinary tools of the tests."""


FILES: list[OnnxFile] = []


def onnx_file(*, small: bool = False) -> Callable[[Maker], Maker]:
    """Adds a file under the name of its function."""

    def add(make: Maker) -> Maker:
        FILES.append(OnnxFile(make.__name__, make, small))
        return make

    return add


def _rows(columns: int, kind: Any = np.float32) -> Any:
    return np.random.default_rng(7).normal(size=(ROWS, columns)).astype(kind)


def _iris() -> tuple[Any, Any]:
    from sklearn.datasets import load_iris

    return load_iris(return_X_y=True)


def _sklearn(path: Path, model: Any, columns: int = 4, kind: str = "FloatTensorType", **options: Any) -> Feeds:
    from skl2onnx import convert_sklearn
    from skl2onnx.common import data_types

    inputs = [("x", getattr(data_types, kind)([None, columns]))]
    proto = convert_sklearn(model, initial_types=inputs, options={id(model): options} if options else None)
    path.write_bytes(proto.SerializeToString())
    return {"x": _rows(columns, np.float64 if kind == "DoubleTensorType" else np.float32)}


# scikit-learn


@onnx_file(small=True)
def sklearn_logistic_maps(path: Path) -> Feeds:
    """A sequence of maps, as skl2onnx writes classifiers unless told otherwise."""
    from sklearn.linear_model import LogisticRegression

    return _sklearn(path, LogisticRegression(max_iter=500).fit(*_iris()))


@onnx_file()
def sklearn_logistic_named_maps(path: Path) -> Feeds:
    """Maps with texts for keys, and labels that are texts."""
    from sklearn.linear_model import LogisticRegression

    values, labels = _iris()
    return _sklearn(path, LogisticRegression(max_iter=500).fit(values, np.array(["a", "b", "c"])[labels]))


@onnx_file()
def sklearn_logistic_tensors(path: Path) -> Feeds:
    from sklearn.linear_model import LogisticRegression

    return _sklearn(path, LogisticRegression(max_iter=500).fit(*_iris()), zipmap=False)


@onnx_file()
def sklearn_forest(path: Path) -> Feeds:
    from sklearn.ensemble import RandomForestClassifier

    return _sklearn(path, RandomForestClassifier(10, random_state=0).fit(*_iris()), zipmap=False)


@onnx_file()
def sklearn_boosted_trees(path: Path) -> Feeds:
    from sklearn.ensemble import GradientBoostingRegressor

    return _sklearn(path, GradientBoostingRegressor(n_estimators=10).fit(*_iris()))


@onnx_file()
def sklearn_support_vectors(path: Path) -> Feeds:
    from sklearn.svm import SVC

    return _sklearn(path, SVC().fit(*_iris()), zipmap=False)


@onnx_file()
def sklearn_neighbours(path: Path) -> Feeds:
    from sklearn.neighbors import KNeighborsClassifier

    return _sklearn(path, KNeighborsClassifier().fit(*_iris()), zipmap=False)


@onnx_file()
def sklearn_clusters(path: Path) -> Feeds:
    from sklearn.cluster import KMeans

    return _sklearn(path, KMeans(3, n_init=1, random_state=0).fit(_iris()[0]))


@onnx_file()
def sklearn_perceptron(path: Path) -> Feeds:
    from sklearn.neural_network import MLPClassifier

    return _sklearn(path, MLPClassifier((8,), max_iter=50, random_state=0).fit(*_iris()), zipmap=False)


@onnx_file()
def sklearn_outliers(path: Path) -> Feeds:
    from skl2onnx import to_onnx
    from sklearn.ensemble import IsolationForest

    values = _rows(4)
    model = IsolationForest(n_estimators=5, random_state=0).fit(values)
    path.write_bytes(to_onnx(model, values, target_opset={"": 15, "ai.onnx.ml": 3}).SerializeToString())
    return {"X": values}


@onnx_file()
def sklearn_double_precision(path: Path) -> Feeds:
    from sklearn.linear_model import LinearRegression

    return _sklearn(path, LinearRegression().fit(*_iris()), kind="DoubleTensorType")


@onnx_file()
def sklearn_pipeline(path: Path) -> Feeds:
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return _sklearn(path, make_pipeline(StandardScaler(), PCA(2), Ridge()).fit(*_iris()))


@onnx_file(small=True)
def sklearn_text(path: Path) -> Feeds:
    """Texts in, classes out."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = ["good film", "bad film", "a good day", "a bad day"]
    words = TfidfVectorizer(token_pattern="[a-z]+")
    model = make_pipeline(words, LogisticRegression()).fit(texts, [1, 0, 1, 0])
    options = {id(model): {"zipmap": False}, id(words): {"locale": "C"}}
    types = [("text", StringTensorType([None, 1]))]
    path.write_bytes(convert_sklearn(model, initial_types=types, options=options).SerializeToString())
    return {"text": np.array([["good"], ["bad film"], [""], ["a day"], ["good good bad"]], dtype=object)}


@onnx_file()
def sklearn_columns(path: Path) -> Feeds:
    """Several inputs of different types."""
    import pandas as pd
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = pd.DataFrame({"size": [1.0, 2, 3, 4], "colour": ["red", "blue", "red", "green"]})
    columns = [("number", StandardScaler(), ["size"]), ("word", OneHotEncoder(handle_unknown="ignore"), ["colour"])]
    model = make_pipeline(ColumnTransformer(columns), LinearRegression()).fit(frame, [1, 2, 3, 4])
    types = [("size", FloatTensorType([None, 1])), ("colour", StringTensorType([None, 1]))]
    path.write_bytes(convert_sklearn(model, initial_types=types).SerializeToString())
    words = np.array([["red"], ["blue"], ["?"], ["green"], ["red"]], dtype=object)
    return {"size": _rows(1), "colour": words}


# XGBoost and LightGBM


def _boosted(path: Path, converter: str, model: Any, **options: Any) -> Feeds:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    values, labels = _iris()
    model.fit(values, labels)
    inputs = [("x", FloatTensorType([None, 4]))]
    proto = getattr(onnxmltools, converter)(model, initial_types=inputs, target_opset=15, **options)
    path.write_bytes(proto.SerializeToString())
    return {"x": _rows(4)}


@onnx_file()
def xgboost_classifier(path: Path) -> Feeds:
    from xgboost import XGBClassifier

    return _boosted(path, "convert_xgboost", XGBClassifier(n_estimators=5))


@onnx_file()
def xgboost_regressor(path: Path) -> Feeds:
    from xgboost import XGBRegressor

    return _boosted(path, "convert_xgboost", XGBRegressor(n_estimators=5))


@onnx_file()
def lightgbm_classifier(path: Path) -> Feeds:
    from lightgbm import LGBMClassifier

    return _boosted(path, "convert_lightgbm", LGBMClassifier(n_estimators=5, verbose=-1))


@onnx_file()
def lightgbm_regressor(path: Path) -> Feeds:
    from lightgbm import LGBMRegressor

    return _boosted(path, "convert_lightgbm", LGBMRegressor(n_estimators=5, verbose=-1), zipmap=False)


# Graphs written with the onnx package


def _graph(path: Path, nodes: Any, inputs: Any, outputs: Any, weights: Any = (), **save: Any) -> None:
    import onnx
    from onnx import helper

    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(weights))
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=9)
    onnx.save(model, str(path), **save)


def _value(name: str, kind: int, *shape: int | str | None) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, kind, list(shape))


@onnx_file(small=True)
def whole_number_addition(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    kinds = [_value(name, TensorProto.INT64, "n", 2) for name in ("a", "b")]
    _graph(path, [helper.make_node("Add", ["a", "b"], ["sum"])], kinds, [_value("sum", TensorProto.INT64, "n", 2)])
    wide = np.array([[2**40, -1]] * ROWS, dtype=np.int64)
    return {"a": wide, "b": np.arange(2 * ROWS, dtype=np.int64).reshape(ROWS, 2)}


@onnx_file(small=True)
def texts_through(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    node = helper.make_node("Identity", ["text"], ["same"])
    _graph(path, [node], [_value("text", TensorProto.STRING, "n")], [_value("same", TensorProto.STRING, "n")])
    return {"text": np.array(["one", "", "drei", "né", "5"], dtype=object)}


@onnx_file(small=True)
def sequence_of_tensors(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    node = helper.make_node("SplitToSequence", ["x"], ["pieces"], axis=1, keepdims=1)
    kind = helper.make_tensor_sequence_value_info("pieces", TensorProto.FLOAT, None)
    _graph(path, [node], [_value("x", TensorProto.FLOAT, "n", 3)], [kind])
    return {"x": _rows(3)}


@onnx_file()
def sequence_of_uneven_tensors(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    sizes = helper.make_tensor("sizes", TensorProto.INT64, [2], [1, 2])
    node = helper.make_node("SplitToSequence", ["x", "sizes"], ["pieces"], axis=1)
    kind = helper.make_tensor_sequence_value_info("pieces", TensorProto.FLOAT, None)
    _graph(path, [node], [_value("x", TensorProto.FLOAT, "n", 3)], [kind], [sizes])
    return {"x": _rows(3)}


@onnx_file()
def condition(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    def branch(name: str, operator: str) -> Any:
        node = helper.make_node(operator, ["x", "x"], [name])
        return helper.make_graph([node], name, [], [_value(name, TensorProto.FLOAT, None, 2)])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch("a", "Add"), else_branch=branch("b", "Mul")),
    ]
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])
    # One item at a time: what is done depends on all of them.
    _graph(path, nodes, [_value("x", TensorProto.FLOAT, 1, 2)], [_value("y", TensorProto.FLOAT, 1, 2)], [zero])
    return {"x": np.array([[1.0, -3.0]], dtype=np.float32)}


@onnx_file()
def loop(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    body = helper.make_graph(
        [helper.make_node("Add", ["before", "before"], ["after"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [
            _value("turn", TensorProto.INT64),
            _value("go", TensorProto.BOOL),
            _value("before", TensorProto.FLOAT, None, 2),
        ],
        [_value("on", TensorProto.BOOL), _value("after", TensorProto.FLOAT, None, 2)],
    )
    weights = [
        helper.make_tensor("turns", TensorProto.INT64, [], [3]),
        helper.make_tensor("yes", TensorProto.BOOL, [], [True]),
    ]
    node = helper.make_node("Loop", ["turns", "yes", "x"], ["y"], body=body)
    _graph(path, [node], [_value("x", TensorProto.FLOAT, "n", 2)], [_value("y", TensorProto.FLOAT, "n", 2)], weights)
    return {"x": _rows(2)}


@onnx_file(small=True)
def convolution_without_attributes(path: Path) -> Feeds:
    """Strides and dilations are left to their defaults."""
    from onnx import TensorProto, helper

    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 1, 3, 3], np.arange(18) / 10)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2]),
    ]
    inputs = [_value("x", TensorProto.FLOAT, "n", 1, 6, 6)]
    _graph(path, nodes, inputs, [_value("y", TensorProto.FLOAT, "n", 2, 3, 3)], [weight])
    return {"x": _rows(36).reshape(ROWS, 1, 6, 6)}


@onnx_file()
def weights_in_a_file_of_their_own(path: Path) -> Feeds:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(_rows(1024).repeat(2, axis=0).T.copy(), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs = [_value("x", TensorProto.FLOAT, "n", 1024)]
    outputs = [_value("y", TensorProto.FLOAT, "n", 2 * ROWS)]
    _graph(
        path, [node], inputs, outputs, [weight], save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    return {"x": _rows(1024)}


@onnx_file()
def half_precision(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    inputs = [_value("x", TensorProto.FLOAT16, "n", 3)]
    _graph(path, [helper.make_node("Mul", ["x", "x"], ["y"])], inputs, [_value("y", TensorProto.FLOAT16, "n", 3)])
    return {"x": _rows(3, np.float16)}


@onnx_file()
def every_whole_type(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    kinds = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL"]
    nodes = [helper.make_node("Identity", [f"x_{kind}"], [f"y_{kind}"]) for kind in kinds]
    inputs = [_value(f"x_{kind}", getattr(TensorProto, kind), "n", 2) for kind in kinds]
    outputs = [_value(f"y_{kind}", getattr(TensorProto, kind), "n", 2) for kind in kinds]
    _graph(path, nodes, inputs, outputs)

    def extremes(kind: str) -> Any:
        if kind == "BOOL":
            return np.array([[True, False]] * ROWS)
        limits = np.iinfo(kind.lower())
        return np.array([[limits.min, limits.max]] * ROWS, dtype=kind.lower())

    return {f"x_{kind}": extremes(kind) for kind in kinds}


@onnx_file()
def input_with_a_default(path: Path) -> Feeds:
    """The scale has a value in the file, so that nobody has to send it."""
    from onnx import TensorProto, helper

    inputs = [_value("x", TensorProto.FLOAT, "n", 2), _value("scale", TensorProto.FLOAT, 1)]
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [1], [3.0])
    node = helper.make_node("Mul", ["x", "scale"], ["y"])
    _graph(path, [node], inputs, [_value("y", TensorProto.FLOAT, "n", 2)], [scale])
    return {"x": _rows(2)}


@onnx_file()
def number_of_outputs_depends_on_the_data(path: Path) -> Feeds:
    from onnx import TensorProto, helper

    node = helper.make_node("NonZero", ["x"], ["places"])
    _graph(
        path, [node], [_value("x", TensorProto.FLOAT, "n", 3)], [_value("places", TensorProto.INT64, "axes", "found")]
    )
    return {"x": np.array([[0, 1, 2], [3, 0, 0]], dtype=np.float32)}


@onnx_file()
def recurrent(path: Path) -> Feeds:
    """The batch is not the first dimension."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in (("w", (1, 16, 3)), ("r", (1, 16, 4)))
    ]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=4)
    inputs = [_value("x", TensorProto.FLOAT, "steps", "n", 3)]
    outputs = [_value("y", TensorProto.FLOAT, "steps", 1, "n", 4), _value("h", TensorProto.FLOAT, 1, "n", 4)]
    _graph(path, [node], inputs, outputs, weights)
    return {"x": _rows(12).reshape(ROWS, 4, 3)}


@onnx_file()
def quantised(path: Path) -> Feeds:
    from onnxruntime.quantization import quantize_dynamic

    plain = path.with_name("plain.onnx.tmp")
    feeds = sklearn_perceptron(plain)
    quantize_dynamic(plain, path)
    plain.unlink()
    return feeds


# Published models


@onnx_file(small=True)
def magika(path: Path) -> Feeds:
    path.write_bytes(next((ROOT / "models" / "magika").glob("*.onnx")).read_bytes())
    return {"bytes": np.random.default_rng(1).integers(0, 257, size=(ROWS, 2048)).astype(np.int32)}


def _light(path: Path, name: str, size: int = 224) -> Feeds:
    import onnx

    path.write_bytes((Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx").read_bytes())
    proto = onnx.load(str(path))
    weights = {weight.name for weight in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in weights]
    return {names[0]: np.random.default_rng(5).normal(size=(1, 3, size, size)).astype(np.float32)}


@onnx_file()
def squeezenet(path: Path) -> Feeds:
    return _light(path, "squeezenet")


@onnx_file()
def shufflenet(path: Path) -> Feeds:
    return _light(path, "shufflenet")


# Exporters of torch


def _torch(path: Path, script: str) -> Feeds:
    """Old and new exporters want a torch of their own, which `make` builds."""
    python = next(one for name in ("torch-new", "torch") if (one := ROOT / f".venv/{name}/bin/python").exists())
    subprocess.run([python, "-c", script, str(path)], check=True, capture_output=True)
    return {"x": _rows(3 * 64).reshape(ROWS, 3, 8, 8)}


_NET = """
import sys, torch
from torch import nn
torch.manual_seed(0)
layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
net = nn.Sequential(*layers).eval()
sample = torch.zeros(2, 3, 8, 8)
"""


@onnx_file()
def torch_old_exporter(path: Path) -> Feeds:
    try:
        newer = {"dynamo": False} if importlib.metadata.version("torch") >= "2" else {}
    except importlib.metadata.PackageNotFoundError:
        newer = {}
    options = "".join(f", {name}={value}" for name, value in newer.items())
    return _torch(
        path,
        _NET + "torch.onnx.export(net, sample, sys.argv[1], input_names=['x'], output_names=['y'],"
        f" dynamic_axes={{'x': {{0: 'batch'}}, 'y': {{0: 'batch'}}}}{options})",
    )
