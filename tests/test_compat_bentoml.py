"""Applications of BentoML's that were moved by their import line, and the same ones in BentoML itself.

The originals run where `COMPAT_BENTOML` (1.4) and `COMPAT_BENTOML_OLD` (1.1, for runners and functions) name the `bin`
directory of an environment that has them; `make test-compat` makes both.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from harness import bentoml_peer
from harness.package import ROOT
from harness.server import ASK_SECONDS, Server
from harness.wait import until
from jitney.compat import bentoml
from jitney.compat.bentoml.client import ResultStatus

APPLICATIONS = Path(__file__).parent / "compat" / "bentoml"
PACKAGE = str(ROOT / "python")


@dataclass(frozen=True)
class Ask:
    """One request."""

    path: str
    json: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    def send(self, url: str) -> requests.Response:
        options = {name: value() if callable(value) else value for name, value in self.options.items()}
        body = {"json": self.json} if self.json is not None else {}
        return requests.post(url + self.path, **body, **options, timeout=ASK_SECONDS)


def picture() -> dict[str, Any]:
    """An image as a form's file."""
    from PIL import Image

    image = Image.new("RGB", (40, 20), (10, 200, 30))
    image.putpixel((3, 3), (255, 0, 0))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return {"image": ("picture.png", buffer.getvalue(), "image/png")}


DOCUMENT = {"files": {"document": ("text.txt", b"first\nsecond\n", "text/plain")}}
UPLOADED = re.compile(r'"(upload-\d+|tmp\w{8})"')
"""The names that a file has which came without one, here and with BentoML."""
IMAGE = {"files": {"image": ("i.txt", b"image", "text/plain")}, "data": {"threshold": "0.5"}}
WORD = {"headers": {"x-word": "please"}}
TEXT = "The cat saw a cat. It ran. Dogs slept in the sun all day long."

NEW = [
    ("shop.py", "Shop", [
        Ask("/total", {"baskets": [["tea", "milk"], ["milk"], []]}),
        Ask("/sync_total", {"basket": ["tea", "tea", "sand"]}),
        Ask("/receipt", {"basket": ["tea", "milk"]}),
    ]),
    ("summarization.py", "Summarization", [
        Ask("/summarize", {"text": TEXT}),
        Ask("/summarize", {}),
        Ask("/v1/keywords", {"text": TEXT, "limit": 2}),
        Ask("/v1/keywords", {}),
        Ask("/status", {}, {"headers": {"x-name": "Ann"}}),
    ]),
    ("embeddings.py", "SentenceEmbedding", [
        Ask("/encode", {"sentences": ["one", "two", "three"]}),
        Ask("/normalise", {"vectors": [[3.0, 4.0], [0.0, 2.0]]}),
        Ask("/weigh", {"entries": [{"text": "abc"}, {"text": "de", "weight": 2.5}]}),
        Ask("/column_sums", {"table": [[1.0, 2.0], [3.0, 4.0]]}),
    ]),
    ("pipeline.py", "Pipeline", [
        Ask("/classify", {"text": "A good day"}),
        Ask("/compare", {"texts": ["good fine bad", "so so", "great"]}),
        Ask("/norms", {"table": [[3, 4], [6, 8], [0, 1]]}),
        Ask("/stream", {"text": "Many small Words"}),
    ]),
    ("pictures.py", "Pictures", [
        Ask("/size", options={"files": picture}),
        Ask("/thumbnail", options={"files": picture, "data": {"side": "4"}}),
        Ask("/thumbnail", options={"files": picture, "data": {"side": "0"}}),
        Ask("/invert", options={"files": picture}),
        Ask("/lines", options=DOCUMENT),
    ]),
    ("uploads.py", "Uploads", [
        Ask("/describe", options={**DOCUMENT, "data": {"title": '"Tea"', "note": "null", "pages": "3"}}),
        Ask("/describe", options={**DOCUMENT, "data": {"title": "Tea", "kind": '"b"'}}),
        Ask("/pass_on", options=IMAGE),
        Ask("/weigh", options=IMAGE),
        Ask("/weigh", options=DOCUMENT),
        Ask("/write", {"prompt": "tea"}),
        Ask("/write", {"prompt": "tea", "temperature": -1}),
    ]),
    ("beside.py", "Beside", [Ask("/v1/here"), Ask("/shout", {"text": "hey"})]),
    ("beside.py", "Behind", [
        Ask("/shout", {"text": "hey"}),
        Ask("/shout", {"text": "hey"}, WORD),
        Ask("/lengths", {"texts": ["a", "bcd"]}, WORD),
        Ask("/words", {"text": "a b c"}, WORD),
    ]),
    ("streaming.py", "Writer", [
        Ask("/generate", {"prompt": "once upon a time", "max_tokens": 6}),
        Ask("/generate", {"max_tokens": 65}),
        Ask("/count", {"limit": 4}),
        Ask("/count", {"limit": 0}),
    ]),
]  # fmt: skip
FLOWERS = {"flowers": [{"sepal": [5.1, 3.5], "petal": [1.4, 0.2]}, {"sepal": [6.7, 3.0], "petal": [5.2, 2.3]}]}
OLD = [
    ("iris_service.py", "svc", [
        Ask("/classify", [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]),
        Ask("/named/classify", FLOWERS),
        Ask("/classify_one", FLOWERS["flowers"][1]),
        Ask("/classify_one", {"sepal": [1]}),
        Ask("/classify_frame", [{"a": 5.1, "b": 3.5, "c": 1.4, "d": 0.2}]),
        Ask("/shout", options={"data": b"hello", "headers": {"content-type": "text/plain"}}),
        Ask("/together", options={"files": {
            "note": ("note", b"hi", "text/plain"),
            "numbers": ("numbers", b"[1, 2, 3]", "application/json"),
            "document": ("d.bin", b"12345", "application/octet-stream"),
        }}),
    ]),
]  # fmt: skip


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The applications with their import line changed."""
    directory = tmp_path_factory.mktemp("bentoml") / "moved"
    bentoml_peer.copy_application(APPLICATIONS, directory, moved=True)
    return directory


@pytest.fixture(scope="module")
def serve(binary: Path, moved: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Serves a moved application."""
    servers: list[Server] = []

    def serve(target: str, python: str = sys.executable, flags: Sequence[str] = (), **env: str) -> Server:
        home = tmp_path_factory.mktemp("served") / "server"
        server = Server(binary, home, ["serve", target, "--python", python, *flags], cwd=moved, env=env)
        servers.append(server)
        return server.started()

    yield serve
    for server in servers:
        server.end()


def test_a_moved_application_answers_at_bentomls_paths(serve: Callable[..., Server]) -> None:
    server = serve("shop.py:Shop")
    url = server.urls["inference"]
    assert Ask("/total", {"baskets": [["tea", "milk"], ["milk"], []]}).send(url).json() == [3.5, 1.5, 0]
    assert Ask("/sync_total", {"basket": ["tea", "sand"]}).send(url).json() == 2.0
    streamed = Ask("/receipt", {"basket": ["tea", "milk"]}).send(url)
    assert (streamed.text, streamed.headers["content-type"]) == (
        "tea 2.0\nmilk 1.5\n",
        "text/event-stream; charset=utf-8",
    )
    for path in ("/livez", "/readyz", "/healthz"):
        assert requests.get(url + path, timeout=ASK_SECONDS).status_code == 200
    assert requests.post(f"{url}/look_up", json={"items": []}, timeout=ASK_SECONDS).status_code == 404
    metrics = requests.get(f"{server.urls['metrics']}/metrics", timeout=ASK_SECONDS).text
    assert "bentoml_service_adaptive_batch_size_bucket{" in metrics and 'service_name="Prices"' in metrics
    with bentoml.SyncHTTPClient(url) as client:
        assert client.is_ready()
        assert client.sync_total(["tea"]) == client.sync_total(basket=["tea"]) == 2.0
        assert "".join(client.receipt(basket=["milk"])) == "milk 1.5\n"
        with pytest.raises(bentoml.exceptions.BentoMLException, match="basket"):
            client.sync_total(baskets=[])

    async def call() -> Any:
        async with bentoml.AsyncHTTPClient(url) as client:
            return await client.total(baskets=[["tea"]])

    assert asyncio.run(call()) == [2.0]


def same(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of numbers."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def compare(ask: Ask, ours: requests.Response, theirs: requests.Response) -> None:
    """An answer is the original's; of a refusal only the status."""
    assert ours.status_code == theirs.status_code, (ask, ours.text, theirs.text)
    if theirs.status_code >= 400:
        return
    kinds = [one.headers.get("content-type", "").partition(";")[0] for one in (ours, theirs)]
    assert kinds[0] == kinds[1], ask
    if kinds[0] == "application/json":
        assert same(ours.json(), theirs.json()), (ask, ours.text, theirs.text)
    elif kinds[0].startswith("image/"):
        from PIL import Image

        left, right = (Image.open(io.BytesIO(one.content)) for one in (ours, theirs))
        assert (left.size, left.mode, left.tobytes()) == (right.size, right.mode, right.tobytes())
    else:
        assert ours.content == theirs.content, ask
    for name in ("content-disposition", "x-asked-by"):
        told = [UPLOADED.sub("", one.headers.get(name, "")) for one in (ours, theirs)]
        assert told[0] == told[1]


def originals(variable: str) -> Path:
    """The `bin` of an environment with BentoML."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} names no environment with BentoML; see `make test-compat`")
    return Path(named)


def both(
    serve: Callable[..., Server], tmp_path: Path, bin_directory: Path, target: str, asks: list[Ask], **env: str
) -> None:
    """Asks both servers."""
    url = serve(target, **env).urls["inference"]
    ours = [ask.send(url) for ask in asks]
    theirs_env = {"BENTOML_HOME": str(tmp_path / "home"), "BENTOML_DO_NOT_TRACK": "True", **env}
    (tmp_path / "home").mkdir(exist_ok=True)
    spelt = target.replace(".py:", ":")
    with bentoml_peer.serve(bin_directory, tmp_path / "original", spelt, theirs_env) as original:
        for ask, answer in zip(asks, ours):
            compare(ask, answer, ask.send(original))


@pytest.mark.heavy
@pytest.mark.parametrize(("file", "name", "asks"), NEW, ids=[file for file, *_ in NEW])
def test_services_answer_as_the_originals(
    serve: Callable[..., Server], tmp_path: Path, file: str, name: str, asks: list[Ask]
) -> None:
    bin_directory = originals("COMPAT_BENTOML")
    bentoml_peer.copy_application(APPLICATIONS, tmp_path / "original", moved=False)
    both(serve, tmp_path, bin_directory, f"{file}:{name}", asks)


@pytest.mark.heavy
@pytest.mark.parametrize(("file", "name", "asks"), OLD, ids=[file for file, *_ in OLD])
def test_services_of_functions_answer_as_the_originals(
    serve: Callable[..., Server], moved: Path, tmp_path: Path, file: str, name: str, asks: list[Ask]
) -> None:
    bin_directory = originals("COMPAT_BENTOML_OLD")
    original = tmp_path / "original"
    bentoml_peer.copy_application(APPLICATIONS, original, moved=False)
    (tmp_path / "home").mkdir()
    train(bin_directory / "python", original, {"BENTOML_HOME": str(tmp_path / "home")})
    store = str(tmp_path / "store")
    train(Path(sys.executable), moved, {"JITNEY_BENTOML_HOME": store, "PYTHONPATH": PACKAGE})
    configuration = str(APPLICATIONS / "seed_configuration.yml")
    both(
        serve, tmp_path, bin_directory, f"{file}:{name}", asks, JITNEY_BENTOML_HOME=store, BENTOML_CONFIG=configuration
    )


def train(python: Path, directory: Path, env: dict[str, str], script: str = "iris_train.py") -> None:
    """Saves a model."""
    subprocess.run([python, script], cwd=directory, env={**os.environ, **env}, check=True)


@pytest.mark.heavy
def test_rows_of_many_callers_share_batches(serve: Callable[..., Server]) -> None:
    url = serve("embeddings.py:SentenceEmbedding").urls["inference"]
    asks = [Ask("/encode", {"sentences": [f"text {at}", f"more {at}"]}) for at in range(64)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda ask: ask.send(url).json(), asks))
    assert [len(one) for one in answers] == [2] * 64
    assert len({tuple(row) for one in answers for row in one}) == 128
    assert Ask("/count", {}).send(url).json() < 64


CLIENT = """
import asyncio, json, sys
import bentoml, numpy

url = sys.argv[1]
with bentoml.SyncHTTPClient(url, server_ready_timeout=60) as client:
    found = client.encode(["one", "two"])
    said = [type(found).__name__, found.shape, client.weigh(entries=[{"text": "abc", "weight": 2}])]
    said.append(client.normalise(vectors=numpy.array([[3.0, 4.0]])).tolist())


async def more():
    async with bentoml.AsyncHTTPClient(url, server_ready_timeout=60) as client:
        return await client.count()

said.append(asyncio.run(more()) > 0)
print(json.dumps(said))
"""


def test_a_text_beside_a_file_arrives_as_it_was_meant(serve: Callable[..., Server], tmp_path: Path) -> None:
    """BentoML's clients send the fields of a form as JSON, `curl -F` as they are. Prints of hooks go to the log."""
    server = serve("uploads.py:Uploads")
    url = server.urls["inference"]
    sent_as_json = {"title": '"Tea"', "note": '"\\"so\\""', "kind": '"b"', "pages": "3"}
    said = Ask("/describe", options={**DOCUMENT, "data": sent_as_json}).send(url).json()
    assert said == {"title": "Tea", "note": '"so"', "kind": "b", "pages": 3, "bytes": 13}
    sent_plain = {"title": "123", "kind": "b"}
    said = Ask("/describe", options={**DOCUMENT, "data": sent_plain}).send(url).json()
    assert said == {"title": "123", "note": None, "kind": "b", "pages": 1, "bytes": 13}
    document = tmp_path / "text.txt"
    document.write_bytes(b"12")
    with bentoml.SyncHTTPClient(url) as client:
        assert client.describe(document=document, title='"quoted"')["title"] == '"quoted"'
    assert Ask("/pass_on", options=IMAGE).send(url).content == b"image"
    assert Ask("/write", {"prompt": "tea"}).send(url).json() == {"prompt": "tea", "temperature": 0.5}
    assert Ask("/write", {"prompt": "tea", "temperature": -1}).send(url).status_code == 400
    server.logged("the hook of the deployment has run")


def test_a_client_uploads_the_files_of_a_model_and_names_none(serve: Callable[..., Server], tmp_path: Path) -> None:
    url = serve("uploads.py:Uploads").urls["inference"]
    assert Ask("/weigh", options=IMAGE).send(url).json() == {"bytes": 5, "threshold": 0.5}
    image = tmp_path / "image"
    image.write_bytes(b"123")
    with bentoml.SyncHTTPClient(url) as client:
        assert client.weigh(image=image, threshold=1) == {"bytes": 3, "threshold": 1.0}
    for path in (str(image), "/etc/hosts", "../image"):
        said = Ask("/measure", {"portrait": {"image": path, "threshold": 1}}).send(url)
        assert said.status_code == 400 and "outside of the server's folder for temporary files" in said.text


CLIENT_OF_FILES = """
import pathlib, sys, bentoml
with bentoml.SyncHTTPClient(sys.argv[1]) as client:
    print(client.weigh(image=pathlib.Path(sys.argv[2]), threshold=0.5))
"""


@pytest.mark.heavy
def test_bentomls_own_client_uploads_the_file_of_a_model(serve: Callable[..., Server], tmp_path: Path) -> None:
    python = originals("COMPAT_BENTOML") / "python"
    url = serve("uploads.py:Uploads").urls["inference"]
    (tmp_path / "image").write_bytes(b"1234")
    command = [python, "-c", CLIENT_OF_FILES, url, tmp_path / "image"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.strip() == "{'bytes': 4, 'threshold': 0.5}"


def test_a_web_application_stands_beside_the_apis(serve: Callable[..., Server]) -> None:
    url = serve("beside.py:Beside").urls["inference"]
    assert requests.get(f"{url}/v1/here", timeout=ASK_SECONDS).text == "Beside at here"
    assert Ask("/shout", {"text": "hey"}).send(url).text == "HEY"


def test_no_path_leads_around_middleware(serve: Callable[..., Server]) -> None:
    url = serve("beside.py:Behind").urls["inference"]
    assert Ask("/shout", {"text": "hey"}, WORD).send(url).text == "HEY"
    assert Ask("/lengths", {"texts": ["a", "bcd"]}, WORD).send(url).json() == [1, 3]
    assert Ask("/words", {"text": "a b c"}, WORD).send(url).text == "abc"
    assert Ask("/shout", {"txt": "hey", "other": 1}, WORD).send(url).status_code == 400
    for path in ("/shout", "/Behind/shout", "/Behind", "/lengths"):
        assert (said := Ask(path, {"text": "hey"}).send(url)).status_code == 403, said.text
    around = ("/predictions/Behind", "/v1/models/Behind:predict", "/v2/models/Behind/infer")
    assert [Ask(path, {"text": "hey"}).send(url).status_code in (400, 404) for path in around] == [True] * 3


@pytest.mark.heavy
def test_a_task_is_kept_and_answered_later(serve: Callable[..., Server], tmp_path: Path) -> None:
    status, gate = ResultStatus, tmp_path / "gate"
    server = serve("tasks.py:Renderer", flags=["--jobs-dir", str(tmp_path / "jobs")])
    url = server.urls["inference"]
    assert Ask("/render", {"prompt": "tea"}).send(url).json() == {"picture": "TEA"}
    with bentoml.SyncHTTPClient(url) as client:
        task = client.render.submit(prompt="tea", wait_for=str(gate))
        until(lambda: task.get_status() is status.IN_PROGRESS, "the task runs")
        for early in (task.get, task.retry):
            with pytest.raises(bentoml.exceptions.BentoMLException, match="not completed yet"):
                early()
        gate.touch()
        until(lambda: task.get_status() is status.COMPLETED, "the task is completed")
        assert task.get() == {"picture": "TEA"}
        again = task.retry()
        assert again.id != task.id
        until(lambda: again.get_status() is status.COMPLETED, "so is the new one")
        assert again.get() == task.get()
        task.cancel()
        assert task.get_status() is status.COMPLETED, "what has ended stays"
        failed = client.render.submit(prompt="bad")
        until(lambda: failed.get_status() is status.FAILED, "the task has failed")
        with pytest.raises(bentoml.exceptions.BentoMLException, match="not this one"):
            failed.get()
        held = client.render.submit("x", wait_for=str(tmp_path / "never"))
        until(lambda: held.get_status() is status.IN_PROGRESS, "the task runs")
        held.cancel()
        assert held.get_status() is status.CANCELED
        with pytest.raises(bentoml.exceptions.BentoMLException, match="cancelled"):
            held.get()
        with pytest.raises(bentoml.exceptions.BentoMLException):
            client.shout.submit(text="x")

    async def ask() -> Any:
        async with bentoml.AsyncHTTPClient(url) as client:
            task = await client.render.submit(prompt="milk")
            while await task.get_status() is not status.COMPLETED:
                pass
            return await task.get()

    assert asyncio.run(ask()) == {"picture": "MILK"}
    paths = [f"/render/status?task_id={'0' * 32}", "/render/status", "/shout/status?task_id=x"]
    found = [requests.get(url + path, timeout=ASK_SECONDS).status_code for path in paths]
    assert found == [404, 400, 404]


TASKS = """
import asyncio, json, sys
import bentoml


async def ended(task, *wanted):
    while (status := (await task.get_status()).value) not in wanted:
        pass
    return status


async def main():
    # SyncHTTPClient.submit of BentoML 1.4.39 fails by itself: it closes files that it does not have.
    async with bentoml.AsyncHTTPClient(sys.argv[1], server_ready_timeout=60) as client:
        task = await client.render.submit(prompt="tea")
        await ended(task, "completed", "failed")
        again = await task.retry()
        await ended(again, "completed")
        held = await client.render.submit(prompt="x", wait_for=sys.argv[2])
        await ended(held, "in_progress")
        await held.cancel()
        return [await task.get(), await again.get(), (await held.get_status()).value]

print(json.dumps(asyncio.run(main())))
"""


@pytest.mark.heavy
def test_bentomls_own_client_submits_tasks(serve: Callable[..., Server], tmp_path: Path) -> None:
    python = originals("COMPAT_BENTOML") / "python"
    url = serve("tasks.py:Renderer", flags=["--jobs-dir", str(tmp_path / "jobs")]).urls["inference"]
    command = [python, "-c", TASKS, url, str(tmp_path / "never")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert json.loads(said) == [{"picture": "TEA"}, {"picture": "TEA"}, "canceled"]


@pytest.mark.heavy
def test_bentomls_own_clients_call_a_moved_service(serve: Callable[..., Server]) -> None:
    python = originals("COMPAT_BENTOML") / "python"
    url = serve("embeddings.py:SentenceEmbedding").urls["inference"]
    said = subprocess.run([python, "-c", CLIENT, url], check=True, capture_output=True, text=True).stdout
    assert json.loads(said) == ["ndarray", [2, 16], [6.0], [[0.6, 0.8]], True]


@pytest.mark.heavy
def test_the_page_about_adaptive_batching_runs_as_it_is(
    serve: Callable[..., Server], moved: Path, tmp_path: Path
) -> None:
    python = os.environ.get("COMPAT_TORCH_PYTHON")
    if not python:
        pytest.skip("COMPAT_TORCH_PYTHON names no Python with torch; see `make test-compat`")
    env = {"JITNEY_BENTOML_HOME": str(tmp_path / "store")}
    for script in ("seed_train.py", "seed_model.py"):
        train(Path(python), moved, {**env, "PYTHONPATH": PACKAGE}, script)
    server = serve("seed_service.py:svc", python=python, **env)
    url = server.urls["inference"]
    with ThreadPoolExecutor(8) as pool:
        asks = [Ask("/predict", {"a": [[float(at), 2.0]], "b": [[3.0, 4.0]]}) for at in range(16)]
        answers = list(pool.map(lambda ask: ask.send(url).json(), asks))
    assert answers == [[[2.0 * (at + 3), 12.0]] for at in range(16)]
    metrics = requests.get(f"{server.urls['metrics']}/metrics", timeout=ASK_SECONDS).text
    assert "BENTOML_myrunnable___call___adaptive_batch_size_bucket" in metrics
