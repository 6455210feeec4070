"""What the readers of a page have already: photos, archives, ONNX files, rows. One function for each page."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

from harness import onnx
from harness.archives import Store
from harness.snippets import Sandbox

SHOUT = """import jitney


@jitney.batch(max_batch_size=32)
def shout(text: list[str]) -> list[str]:
    return [one.upper() for one in text]
"""
DOUBLE = """import jitney


@jitney.batch(max_batch_size=32)
def model(number: list[int]) -> list[int]:
    return [2 * one for one in number]
"""


def shout(sandbox: Sandbox) -> None:
    """The model of the first page."""
    sandbox.write("app.py", SHOUT)


def photo(path: Path) -> None:
    """A photo, of something gray."""
    from PIL import Image

    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (320, 240), (120, 110, 100)).save(path)


def add(path: Path) -> None:
    """c = a + b."""
    values = [onnx.value(name, onnx.FLOAT, ["n", 2]) for name in "abc"]
    onnx.write(path, [onnx.node("Add", ["a", "b"], "c")], values[:2], values[2:])


def clients(sandbox: Sandbox) -> None:
    """A text, and a model that adds."""
    sandbox.write("greeting.txt", "hello")
    add(sandbox.home / "add.onnx")


def repository(sandbox: Sandbox) -> None:
    """A folder of models in Triton's layout."""
    for version in (1, 2):
        folder = sandbox.home / f"models/add/{version}"
        folder.mkdir(parents=True)
        add(folder / "model.onnx")


def bench(sandbox: Sandbox) -> None:
    """A running model and a photo."""
    Store(sandbox.home / "store").mar("m", "echo")
    photo(sandbox.home / "cat.jpg")
    sandbox.bash("jitney serve store/m.mar")


def offline(sandbox: Sandbox) -> None:
    """A definition, rows, an archive and photos."""
    sandbox.write("app.py", DOUBLE)
    sandbox.write("rows.jsonl", "".join(f'{{"number": {n}}}\n' for n in range(50)))
    store = Store(sandbox.home / "store")
    store.mar("resnet", "echo").rename(sandbox.home / "resnet.mar")
    photo(sandbox.home / "photos/cat.jpg")


def handles(sandbox: Sandbox) -> None:
    """The shop of the page on definitions, running."""
    page = Path(__file__).parent.parent.parent / "docs/guides/definitions.md"
    sandbox.write("shop.py", re.search(r"^```python\n(# shop\.py\n.*?)^```$", page.read_text(), re.M | re.S)[1])
    sandbox.bash("jitney serve shop:Shop")


def classifiers(sandbox: Sandbox) -> None:
    """A network that tells three cats apart by their mean colour, and one that sums its tokens."""
    photo(sandbox.home / "cat.jpg")
    sandbox.write("labels.txt", "tiger_cat\nEgyptian_cat\ntabby\n")
    image, scores = onnx.value("image", onnx.FLOAT, ["n", 3, 224, 224]), onnx.value("scores", onnx.FLOAT, ["n", 3])
    pool = [onnx.node("GlobalAveragePool", ["image"], "mean"), onnx.node("Flatten", ["mean"], "scores")]
    onnx.write(sandbox.home / "imagenet.onnx", pool, [image], [scores])
    tokenizer = {
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "what": 1, "a": 2, "film": 3}, "unk_token": "[UNK]"},
    }  # fmt: skip
    sandbox.write("tokenizer.json", json.dumps(tokenizer))
    ids, mood = onnx.value("ids", onnx.INT64, ["n", 128]), onnx.value("mood", onnx.FLOAT, ["n", 3])
    weights = onnx.tensor(onnx.FLOAT, [128, 3], struct.pack("<384f", *[0.01] * 384), "weights")
    cast = onnx.node("Cast", ["ids"], "numbers", onnx.whole_attribute("to", onnx.FLOAT))
    product = onnx.node("MatMul", ["numbers", "weights"], "mood")
    onnx.write(sandbox.home / "sentiment.onnx", [cast, product], [ids], [mood], [weights])


def readme(sandbox: Sandbox) -> None:
    """Two archives, an ONNX file, a repository, a definition, rows, and the addresses of `jitney torchserve`."""
    torchserve(sandbox)
    repository(sandbox)
    (sandbox.home / "models").rename(sandbox.home / "repository")
    store = Store(sandbox.home / "store")
    store.mar("resnet", "echo")
    for name in ("resnet", "bert"):
        (sandbox.home / f"{name}.mar").write_bytes((store.path / "resnet.mar").read_bytes())
    add(sandbox.home / "model.onnx")
    sandbox.write("digits.py", SHOUT.replace("shout", "Digits"))
    sandbox.write("rows.jsonl", '{"text": "hello"}\n')
    photo(sandbox.home / "photo.jpg")


def two_versions(sandbox: Sandbox) -> None:
    """The model of the first page, a sample, and an archive in two versions."""
    shout(sandbox)
    photo(sandbox.home / "sample.jpg")
    for version in (1, 2):
        store = Store(sandbox.home / f"packed-{version}")
        store.mar("model", "echo", version=f"{version}.0")
        target = sandbox.home / f"store/model-{version}.mar"
        target.parent.mkdir(exist_ok=True)
        (store.path / "model.mar").rename(target)


def torchserve(sandbox: Sandbox) -> None:
    """A model store, a configuration, and what the archiver packs."""
    store = Store(sandbox.home / "model_store")
    for name in ("my_model", "other_model"):
        store.mar(name, "echo")
    sandbox.write("input.txt", "as it was")
    sandbox.write("labels.json", "{}")
    sandbox.write("handler.py", "def handle(data, context):\n    return [1] * len(data or [])\n")
    addresses = {"inference": 8080, "management": 8081, "metrics": 8082}
    lines = [f"{name}_address=http://127.0.0.1:{port}" for name, port in addresses.items()]
    lines += ["grpc_inference_port=7070", "grpc_management_port=7071", "default_workers_per_model=1"]
    sandbox.write("config.properties", "\n".join(lines) + "\n")


FILES: dict[str, Callable[[Sandbox], None]] = {
    "README.md": readme,
    "coming-from/torchserve.md": torchserve,
    "coming-from/triton.md": repository,
    "guides/bench.md": bench,
    "guides/clients.md": clients,
    "guides/handles.md": handles,
    "guides/offline.md": offline,
    "guides/onnx-classifiers.md": classifiers,
    "guides/plugins.md": shout,
    "guides/repositories.md": repository,
    "reference/commands.md": shout,
    "operations/restarts.md": two_versions,
    "operations/security.md": shout,
    "guides/keys.md": shout,
}
"""By the name of the page below docs/."""
