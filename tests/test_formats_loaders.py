"""Loaders with the libraries of their formats, and those that other packages bring.

It runs in the environment `formats`, where these libraries are: `make test-formats`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.formats import MAKERS
from harness.server import ASK_SECONDS, Server

pytest.importorskip("skops", reason="the environment `formats` has what these models are made with")

LOAD_SECONDS = 600
OURS = Path(__file__).parents[1] / "python"

LOADER = """
import numpy
from jitney.loaders.loader import Loader, ModelTensors
from jitney.values.tensor import Tensor


class Lines(Loader):
    format = "lines"

    @classmethod
    def finds(cls, path):
        return path.is_file() and path.suffix == ".factor"

    def load(self, path, device):
        self.factor = float(path.read_text())

    def tensors(self):
        return ModelTensors({"x": Tensor("FP64", [-1])}, {"y": Tensor("FP64", [-1])})

    def run(self, batch):
        return {"y": batch["x"] * self.factor}
"""


def package(home: Path, name: str) -> Path:
    """An installed distribution with a loader, as pip leaves it; returns the folder to import it from."""
    told = home / f"{name}-1.0.dist-info"
    told.mkdir(parents=True)
    (home / f"{name}.py").write_text(LOADER)
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[jitney.loaders]\n{name} = {name}:Lines\n")
    return home


def test_a_package_brings_a_format(start: Callable[..., Server], tmp_path: Path) -> None:
    site = package(tmp_path / "site", "lines_loader")
    (tmp_path / "net.factor").write_text("2.5")
    env = {"PYTHONPATH": str(site)}
    server = start("serve", tmp_path / "net.factor", env=env, start_seconds=LOAD_SECONDS)
    reply = requests.post(server.url("/predictions/net"), json={"x": [1, 2]}, timeout=ASK_SECONDS)
    assert reply.json() == {"y": [2.5, 5.0]}, reply.text


def test_two_packages_with_one_format_are_an_error(tmp_path: Path) -> None:
    """A worker finds its loader by the format alone."""
    site = package(package(tmp_path / "site", "lines_loader"), "other_lines")
    (tmp_path / "net.factor").write_text("2.5")
    command = [sys.executable, "-m", "jitney", "inspect", str(tmp_path / "net.factor")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(OURS), str(site)])}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LOAD_SECONDS, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "two loaders are called 'lines': lines_loader:Lines and other_lines:Lines" in ended.stdout


DESCRIBED = """
import json, sys
from pathlib import Path
from jitney.loaders.loader import Loader, LoadOptions
from jitney.loaders.registry import loader_for

path = Path(sys.argv[1])
kind, options = loader_for(path), LoadOptions(trust=True)
whole = Loader.describe(kind(options), path)


def load(self, path, device):
    raise AssertionError("it was loaded")


kind.load = load
assert kind(options).describe(path) == whole, whole
print(kind.format)
"""


@pytest.mark.parametrize(("made", "format"), [("openvino_batches", "OpenVINO"), ("mlflow_python", "MLflow")])
def test_a_folder_that_tells_its_tensors_is_loaded_by_its_worker_alone(tmp_path: Path, made: str, format: str) -> None:
    path = MAKERS[made](tmp_path).path
    command, env = [sys.executable, "-c", DESCRIBED, str(path)], {**os.environ, "PYTHONPATH": str(OURS)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LOAD_SECONDS, check=False)
    assert ended.stdout.split() == [format], ended.stderr


def test_openvino_keeps_to_the_threads_of_its_worker(tmp_path: Path) -> None:
    made = MAKERS["openvino_batches"](tmp_path)
    program = (
        "import sys; from pathlib import Path\n"
        "from jitney.loaders.loader import LoadOptions; from jitney.loaders.openvino_model import OpenvinoLoader\n"
        "loader = OpenvinoLoader(LoadOptions()); loader.load(Path(sys.argv[1]), 'cpu')\n"
        "print(*map(loader._model.get_property, ('INFERENCE_NUM_THREADS', 'NUM_STREAMS')))\n"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(OURS)}
    command = [sys.executable, "-c", program, str(made.path)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LOAD_SECONDS, check=True)
    assert ended.stdout.split() == ["1", "1"]


LEAVING = """
import asyncio, sys
from contextlib import aclosing
from pathlib import Path
from jitney.loaders.huggingface.pretrained import HuggingFaceLoader
from jitney.loaders.loader import LoadOptions

loader = HuggingFaceLoader(LoadOptions())
path = Path(sys.argv[1])
model = loader.definition(path, loader.describe(path))()
model.setup()
begun = []
put = model.loop.put
model.loop.put = lambda writing: (begun.append(writing), put(writing))


async def left(begin):
    await begin()
    [writing] = begun
    assert writing.left
    begun.clear()
    # The one after it is written alone: whoever left has no slot any more, and nothing more was written for it.
    await model.whole(model.order("a", {"max_new_tokens": 8}))
    [after] = begun
    begun.clear()
    assert writing not in model.loop._live and len(writing.written) < writing.most, len(writing.written)


async def stream():
    async with aclosing(model.pieces(model.order("Once upon", {"max_new_tokens": 200}))) as pieces:
        async for one in pieces:
            break


async def whole():
    task = asyncio.ensure_future(model.whole(model.order("Once upon", {"max_new_tokens": 200})))
    while not (begun and begun[0].written):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def main():
    await left(stream)
    await left(whole)


asyncio.run(main())
model.teardown()
print("freed")
"""


def test_who_stops_reading_frees_the_slot_at_the_next_token(tmp_path: Path) -> None:
    from harness import pretrained

    folder = pretrained.gpt2(tmp_path / "gpt")
    config = json.loads((folder / "generation_config.json").read_text())
    # Nothing that it writes is its end.
    (folder / "generation_config.json").write_text(json.dumps({**config, "eos_token_id": None}))
    env = {**os.environ, "PYTHONPATH": str(OURS)}
    command = [sys.executable, "-c", LEAVING, str(folder)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LOAD_SECONDS, check=False)
    assert ended.stdout.split() == ["freed"], ended.stderr
