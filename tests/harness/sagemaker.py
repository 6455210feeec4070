"""SageMaker's model folders, and its call for a prediction."""

from __future__ import annotations

from pathlib import Path

import requests

from .server import Server

ADDER = """
import json, os
def model_fn(model_dir):
    return int(open(os.path.join(model_dir, "weights.txt")).read())
def input_fn(body, content_type):
    assert content_type == "application/json", content_type
    assert isinstance(body, str)
    return json.loads(body)
def predict_fn(data, model):
    return [x + model for x in data]
"""
"""Adds what is in `weights.txt` to each number."""
PLACE = """
def model_fn(model_dir):
    return model_dir
def transform_fn(model, body, content_type, accept):
    return model
"""
"""Tells its folder."""


def folder(base: Path, source: str | None, name: str = "model", **files: str) -> Path:
    """A model directory as SageMaker unpacks it."""
    model = base / name
    (model / "code").mkdir(parents=True)
    if source is not None:
        (model / "code" / "inference.py").write_text(source)
    for file, text in files.items():
        (model / file.replace("_txt", ".txt")).write_text(text)
    return model


def invoke(server: Server, body: object, path: str = "/invocations", **headers: str) -> requests.Response:
    """One request; what is not bytes goes as JSON."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    content = {"data": body} if isinstance(body, bytes) else {"json": body}
    return requests.post(server.url(path), headers=headers, timeout=120, **content)
