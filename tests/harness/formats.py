"""Models of other libraries, made by these libraries: each is saved in a folder of its own, and says what the library
itself answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 7
"""Rows of the request that is compared."""


@dataclass(frozen=True)
class MadeModel:
    """A model on disk, a request and the answer of its own library."""

    path: Path
    inputs: Mapping[str, np.ndarray]
    """By name; of a frame the columns."""
    outputs: Mapping[str, np.ndarray]
    needs_trust: bool = False


Maker = Callable[[Path], MadeModel]
MAKERS: dict[str, Maker] = {}


def maker(function: Maker) -> Maker:
    """Adds a model to the table, under its function's name."""
    MAKERS[function.__name__] = function
    return function


def iris() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_iris

    features, classes = load_iris(return_X_y=True)
    return features, classes


def frame() -> Any:
    import pandas

    rng = np.random.default_rng(0)
    ages, towns = rng.integers(18, 80, 60), rng.choice(["Bern", "Chur", "Genf"], 60)
    return pandas.DataFrame({"age": ages.astype(float), "town": towns, "income": rng.normal(50, 10, 60)})


def estimator(home: Path, name: str, model: Any, values: Any = None) -> MadeModel:
    """An estimator of scikit-learn, as a pickle or in skops."""
    features, _ = iris()
    path = home / name
    if name.endswith(".skops"):
        import skops.io

        skops.io.dump(model, path)
        trust = bool(skops.io.get_untrusted_types(file=path))
    else:
        import joblib

        joblib.dump(model, path)
        trust = True
    asked = features[::20][:ROWS] if values is None else values
    outputs = {"predict": model.predict(asked)}
    if hasattr(model, "predict_proba"):
        outputs["predict_proba"] = model.predict_proba(asked)
    given = {name: asked[name].to_numpy() for name in asked} if hasattr(asked, "columns") else {"input": asked}
    return MadeModel(path, {name: np.asarray(one) for name, one in given.items()}, outputs, trust)


@maker
def sklearn_forest_joblib(home: Path) -> MadeModel:
    from sklearn.ensemble import RandomForestClassifier

    return estimator(home, "forest.joblib", RandomForestClassifier(20, random_state=0).fit(*iris()))


@maker
def sklearn_forest_skops(home: Path) -> MadeModel:
    from sklearn.ensemble import RandomForestClassifier

    return estimator(home, "forest.skops", RandomForestClassifier(20, random_state=0).fit(*iris()))


@maker
def sklearn_logistic_skops(home: Path) -> MadeModel:
    from sklearn.linear_model import LogisticRegression

    return estimator(home, "logistic.skops", LogisticRegression(max_iter=500).fit(*iris()))


@maker
def sklearn_pipeline_skops(home: Path) -> MadeModel:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return estimator(home, "pipeline.skops", make_pipeline(StandardScaler(), SVC()).fit(*iris()))


@maker
def sklearn_ridge_pickle(home: Path) -> MadeModel:
    from sklearn.linear_model import Ridge

    features, classes = iris()
    return estimator(home, "ridge.pkl", Ridge().fit(features, classes * 1.5))


@maker
def sklearn_several_outputs(home: Path) -> MadeModel:
    from sklearn.linear_model import LinearRegression

    features, classes = iris()
    return estimator(home, "pair.skops", LinearRegression().fit(features, np.stack([classes, classes * 2.0], 1)))


@maker
def sklearn_clusters(home: Path) -> MadeModel:
    from sklearn.cluster import KMeans

    return estimator(home, "clusters.joblib", KMeans(3, n_init=1, random_state=0).fit(iris()[0]))


@maker
def sklearn_names_of_classes(home: Path) -> MadeModel:
    from sklearn.naive_bayes import GaussianNB

    features, classes = iris()
    names = np.array(["setosa", "versicolor", "virginica"])
    return estimator(home, "names.skops", GaussianNB().fit(features, names[classes]))


@maker
def sklearn_texts(home: Path) -> MadeModel:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = ["good and kind", "bad and sad", "kind words", "sad news", "good news", "bad words"]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0, 1, 0])
    return estimator(home, "texts.joblib", model, np.array(["good words", "sad"], dtype=object))


@maker
def sklearn_columns(home: Path) -> MadeModel:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    data = frame()
    columns = ColumnTransformer([("n", StandardScaler(), ["age", "income"]), ("c", OneHotEncoder(), ["town"])])
    model = make_pipeline(columns, LogisticRegression()).fit(data, data["income"] > 50)
    return estimator(home, "columns.joblib", model, data[:ROWS])


@maker
def sklearn_folder(home: Path) -> MadeModel:
    from sklearn.tree import DecisionTreeClassifier

    (home / "mounted").mkdir()
    made = estimator(home / "mounted", "model.joblib", DecisionTreeClassifier(max_depth=3).fit(*iris()))
    return MadeModel(home / "mounted", made.inputs, made.outputs, True)


def booster(home: Path, name: str, model: Any) -> MadeModel:
    """A booster of XGBoost."""
    import xgboost

    path = home / name
    model.save_model(path)
    asked = iris()[0][::20][:ROWS].astype(np.float32)
    return MadeModel(path, {"input": asked}, {"predict": model.predict(xgboost.DMatrix(asked))})


def trained(parameters: Mapping[str, Any]) -> Any:
    import xgboost

    return xgboost.train(dict(parameters), xgboost.DMatrix(*iris()), 5)


@maker
def xgboost_classes_json(home: Path) -> MadeModel:
    return booster(home, "classes.json", trained({"objective": "multi:softprob", "num_class": 3}))


@maker
def xgboost_classes_ubj(home: Path) -> MadeModel:
    return booster(home, "classes.ubj", trained({"objective": "multi:softprob", "num_class": 3}))


@maker
def xgboost_regression_ubj(home: Path) -> MadeModel:
    return booster(home, "regression.ubj", trained({"objective": "reg:squarederror"}))


@maker
def xgboost_linear_json(home: Path) -> MadeModel:
    return booster(home, "linear.json", trained({"booster": "gblinear", "objective": "reg:squarederror"}))


@maker
def xgboost_of_kserve(home: Path) -> MadeModel:
    made = booster(home, "classes.ubj", trained({"objective": "multi:softmax", "num_class": 3}))
    (home / "mounted").mkdir()
    made.path.rename(home / "mounted" / "model.bst")
    return MadeModel(home / "mounted", made.inputs, made.outputs)


def light(home: Path, name: str, parameters: Mapping[str, Any], most: int = 3) -> MadeModel:
    """A booster of LightGBM."""
    import lightgbm

    features, classes = iris()
    model = lightgbm.train({**parameters, "verbose": -1}, lightgbm.Dataset(features, np.minimum(classes, most)), 5)
    model.save_model(home / name)
    asked = features[::20][:ROWS]
    return MadeModel(home / name, {"input": asked}, {"predict": model.predict(asked)})


@maker
def lightgbm_classes(home: Path) -> MadeModel:
    return light(home, "classes.txt", {"objective": "multiclass", "num_class": 3})


@maker
def lightgbm_binary(home: Path) -> MadeModel:
    return light(home, "binary.txt", {"objective": "binary"}, 1)


@maker
def lightgbm_regression(home: Path) -> MadeModel:
    return light(home, "regression.txt", {"objective": "regression"})


def cats(home: Path, name: str, model: Any, features: Any, classes: Any, **options: Any) -> MadeModel:
    """A model of CatBoost."""
    model.fit(features, classes)
    model.save_model(str(home / name), **options)
    asked = features[:ROWS]
    outputs = {"predict": np.asarray(model.predict(asked)).reshape(len(asked))}
    if hasattr(model, "predict_proba"):
        outputs["predict_proba"] = model.predict_proba(asked)
    named = {one: asked[one].to_numpy() for one in asked} if hasattr(asked, "columns") else {"input": asked}
    return MadeModel(home / name, named, outputs)


SMALL = {"iterations": 5, "verbose": False, "allow_writing_files": False}


@maker
def catboost_classes(home: Path) -> MadeModel:
    from catboost import CatBoostClassifier

    return cats(home, "classes.cbm", CatBoostClassifier(**SMALL), *iris())


@maker
def catboost_regression_json(home: Path) -> MadeModel:
    from catboost import CatBoostRegressor

    return cats(home, "regression.json", CatBoostRegressor(**SMALL), *iris(), format="json")


@maker
def catboost_categories(home: Path) -> MadeModel:
    from catboost import CatBoostRegressor

    data = frame()
    model = CatBoostRegressor(**SMALL, cat_features=["town"])
    return cats(home, "categories.cbm", model, data[["age", "town"]], data["income"])


def net() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def exported(
    home: Path, module: Any, inputs: Mapping[str, np.ndarray], dynamic: Any, name: str = "net.pt2"
) -> MadeModel:
    """A program of torch.export."""
    import torch

    values = {one: torch.from_numpy(array) for one, array in inputs.items()}
    program = torch.export.export(module, (), values, dynamic_shapes=dynamic)
    torch.export.save(program, home / name)
    with torch.no_grad():
        answer = module(**values)
    named = answer if isinstance(answer, dict) else {"output": answer}
    return MadeModel(home / name, inputs, {one: value.numpy() for one, value in named.items()})


@maker
def torch_export_batches(home: Path) -> MadeModel:
    import torch

    return exported(home, net(), {"input": numbers(ROWS, 4)}, {"input": {0: torch.export.Dim("batch")}})


@maker
def torch_export_several(home: Path) -> MadeModel:
    import torch

    class Several(torch.nn.Module):
        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"scaled": x * scale, "top": x.argmax(1)}

    batch = torch.export.Dim("batch", min=1, max=16)
    inputs = {"x": numbers(ROWS, 4), "scale": numbers(ROWS, 1)}
    return exported(home, Several(), inputs, {"x": {0: batch}, "scale": {0: batch}})


@maker
def torch_export_of_two_or_more(home: Path) -> MadeModel:
    import torch

    batch = torch.export.Dim("batch", min=3, max=64)
    made = exported(home, net(), {"input": numbers(ROWS, 4)}, {"input": {0: batch}})
    return MadeModel(made.path, {"input": made.inputs["input"][:1]}, {"output": made.outputs["output"][:1]})


@maker
def torch_export_of_one_size(home: Path) -> MadeModel:
    return exported(home, net(), {"input": numbers(ROWS, 4)}, None)


@maker
def torch_export_half(home: Path) -> MadeModel:
    import torch

    class Half(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.half() * 2

    return exported(home, Half(), {"x": numbers(ROWS, 3)}, {"x": {0: torch.export.Dim("batch")}})


@maker
def torch_export_of_pictures(home: Path) -> MadeModel:
    """Convolutions with batch norms, and an answer of four dimensions."""
    import torch

    class Places(torch.nn.Sequential):
        def forward(self, pictures: torch.Tensor) -> dict[str, torch.Tensor]:
            places = super().forward(pictures)
            return {"places": places, "scores": places.mean((2, 3))}

    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(4)
    torch.nn.init.uniform_(norm.running_var, 0.5, 2)
    torch.nn.init.normal_(norm.running_mean)
    layers = [torch.nn.Conv2d(3, 4, 3, bias=False), norm, torch.nn.ReLU(inplace=True), torch.nn.Conv2d(4, 2, 3)]
    pictures, batch = numbers(ROWS, 3, 9, 8), torch.export.Dim("batch")
    return exported(home, Places(*layers).eval(), {"pictures": pictures}, {"pictures": {0: batch}})


@maker
def torch_compiled(home: Path) -> MadeModel:
    import torch

    made = exported(home, net(), {"input": numbers(ROWS, 4)}, {"input": {0: torch.export.Dim("batch", max=64)}})
    program = torch.export.load(made.path)
    torch._inductor.aoti_compile_and_package(program, package_path=str(home / "compiled.pt2"))
    declare(home / "compiled.tensors.json", {"input": made.inputs["input"]})
    return MadeModel(home / "compiled.pt2", made.inputs, made.outputs, True)


def declare(path: Path, inputs: Mapping[str, np.ndarray]) -> None:
    """Writes the tensors of a model down beside it."""
    spelt = [{"name": name, "datatype": "FP32", "shape": [-1, *one.shape[1:]]} for name, one in inputs.items()]
    path.write_text(json.dumps({"inputs": spelt}))


@maker
def torch_script_declared(home: Path) -> MadeModel:
    import torch

    values = numbers(ROWS, 4)
    torch.jit.save(torch.jit.script(net()), str(home / "net.pt"))
    declare(home / "net.tensors.json", {"input": values})
    return MadeModel(home / "net.pt", {"input": values}, {"output": net()(torch.from_numpy(values)).detach().numpy()})


@maker
def torch_script_with_example(home: Path) -> MadeModel:
    import torch

    class Pair(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return a + b, a.sum(1)

    inputs = {"a": numbers(ROWS, 3), "b": numbers(ROWS, 3)}
    torch.jit.save(torch.jit.script(Pair()), str(home / "pair.pt"))
    np.savez(home / "pair.example.npz", **{name: one[:2] for name, one in inputs.items()})
    return MadeModel(home / "pair.pt", inputs, {"output_0": inputs["a"] + inputs["b"], "output_1": inputs["a"].sum(1)})


@maker
def safetensors_with_module(home: Path) -> MadeModel:
    import torch
    from safetensors.torch import save_file

    values, module = numbers(ROWS, 4), net()
    save_file(module.state_dict(), str(home / "net.safetensors"))
    build = (
        "import torch\n\n\ndef build():\n    layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)\n"
    )
    (home / "net.py").write_text(build + "    return torch.nn.Sequential(*layers)\n")
    np.save(home / "net.example.npy", values[:2])
    answer = module(torch.from_numpy(values)).detach().numpy()
    return MadeModel(home / "net.safetensors", {"input": values}, {"output": answer}, True)


def mlflow_made(
    home: Path, save: Callable[..., Any], model: Any, data: Any, answer: Any, trust: bool, **more: Any
) -> MadeModel:
    """A folder of MLflow, with the answer of its own `pyfunc`."""
    from mlflow import pyfunc
    from mlflow.models import infer_signature

    path = home / "folder"
    save(model, path=str(path), signature=infer_signature(data, answer), pip_requirements=[], **more)
    asked = data[:ROWS]
    told = pyfunc.load_model(str(path)).predict(asked)
    named = {one: asked[one].to_numpy() for one in asked} if hasattr(asked, "columns") else {"input": asked}
    return MadeModel(path, named, {"predict": np.asarray(told)}, trust)


@maker
def mlflow_sklearn(home: Path) -> MadeModel:
    import mlflow.sklearn
    from sklearn.ensemble import RandomForestClassifier

    data = frame()[["age", "income"]]
    model = RandomForestClassifier(5, random_state=0).fit(data, data["age"] > 40)
    save = mlflow.sklearn.save_model
    return mlflow_made(home, save, model, data, model.predict(data), True, serialization_format="cloudpickle")


@maker
def mlflow_xgboost(home: Path) -> MadeModel:
    import mlflow.xgboost
    import xgboost

    features, classes = iris()
    model = xgboost.XGBClassifier(n_estimators=3).fit(features, classes)
    return mlflow_made(home, mlflow.xgboost.save_model, model, features, model.predict(features), False)


@maker
def mlflow_lightgbm(home: Path) -> MadeModel:
    import lightgbm
    import mlflow.lightgbm

    data = frame()[["age", "income"]]
    model = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(data, data["age"] * 2), 3)
    return mlflow_made(home, mlflow.lightgbm.save_model, model, data, model.predict(data), False)


@maker
def mlflow_python(home: Path) -> MadeModel:
    import mlflow.pyfunc

    class Sum(mlflow.pyfunc.PythonModel):
        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            return model_input.sum(axis=1).to_numpy()

    data = frame()[["age", "income"]]

    def save(model: Any, **options: Any) -> None:
        mlflow.pyfunc.save_model(python_model=model, **options)

    return mlflow_made(home, save, Sum(), data, data.sum(axis=1).to_numpy(), True)


@maker
def openvino_batches(home: Path) -> MadeModel:
    import openvino
    import torch

    values = numbers(ROWS, 4)
    model = openvino.convert_model(net(), example_input=torch.from_numpy(values), input=[-1, 4])
    model.input(0).get_tensor().set_names({"x"})
    model.output(0).get_tensor().set_names({"y"})
    openvino.save_model(model, str(home / "net.xml"), compress_to_fp16=False)
    answer = openvino.Core().compile_model(str(home / "net.xml"), "CPU")([values])[0]
    return MadeModel(home / "net.xml", {"x": values}, {"y": answer})
