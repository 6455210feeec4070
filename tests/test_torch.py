"""The demos of the TorchServe documentation, end to end with a real torch: archive, start, register, curl, gRPC.

They need real models, which `make models` builds, and a Python with torch; `make test-torch` brings both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests

from harness.archives import Store
from harness.server import FREE_ADDRESSES, Server
from test_grpc import INFERENCE, Stub

DATA = Path(__file__).parent / "data"
MODELS = Path(os.environ.get("JITNEY_TEST_MODELS") or "nowhere")
SENTENCES = MODELS / "sentences.mar"
UNPACK_SECONDS = 300
"""For an archive of 90 MB and a binary that was built for tests."""
CATS = {"tabby", "tiger_cat", "Persian_cat", "Siamese_cat", "Egyptian_cat", "cougar", "lynx", "leopard", "snow_leopard"}
CATS |= {"jaguar", "lion", "tiger", "cheetah"}
"""Every cat that ImageNet knows."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not MODELS.is_dir(), reason="NO MODELS HERE: the demos were not run (make test-torch)"),
]


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`torchserve` with a store of archives that `jitney archive` made."""
    home = tmp_path_factory.mktemp("torch")
    store = Store(home / "store")
    archive(binary, store, "imagenet", "image_classifier", "index_to_name.json")
    archive(binary, store, "faces", MODELS / "faces" / "faces_handler.py")
    archive(
        binary, store, "sentiment", "text_classifier", "index_to_name.json", "source_vocab.pt", net="sentiment_net.py"
    )
    if SENTENCES.is_file():
        shutil.copy(SENTENCES, store.path)
    config = home / "config.properties"
    config.write_text(f"{FREE_ADDRESSES}disable_token_authorization=true\nenable_model_api=true\n")
    flags = ["--start", "--foreground", "--ncs", "--model-store", store.path, "--ts-config", config]
    server = Server(binary, home / "server", ["torchserve", *flags], store=store)
    yield server.started()
    server.end()


def archive(binary: Path, store: Store, name: str, handler: str | Path, *extra: str, net: str | None = None) -> None:
    """Packs a model as the documentation does."""
    parts = MODELS / name
    command: list[Any] = [binary, "archive", "--model-name", name, "--version", "1.0", "--handler", handler]
    command += ["--serialized-file", parts / f"{name}.pt", "--export-path", store.path, "-f"]
    command += ["--extra-files", ",".join(str(parts / file) for file in extra)] if extra else []
    command += ["--model-file", parts / net] if net else []
    subprocess.run(list(map(str, command)), check=True, timeout=120)


@pytest.fixture(scope="module")
def registered(server: Server) -> Callable[[str], Server]:
    """Registers a model on first use, with the batch of the documentation."""
    known: set[str] = set()

    def need(name: str) -> Server:
        if name not in known:
            server.register(f"{name}.mar", batch_size=8, max_batch_delay=50)
            known.add(name)
        return server

    return need


def curl(server: Server, model: str, upload: str) -> list[Any]:
    """What `curl -T` prints; several files give several answers, one after another."""
    command = ["curl", "-sS", "--max-time", "60", server.url(f"/predictions/{model}"), "-T", upload]
    text = subprocess.run(command, cwd=DATA, check=True, capture_output=True, text=True, timeout=120).stdout
    decoder, answers, at = json.JSONDecoder(), [], 0
    while at < len(text):
        answer, at = decoder.raw_decode(text, at)
        answers.append(answer)
        at += len(text[at:]) - len(text[at:].lstrip())
    return answers


def is_cat(answer: dict[str, float]) -> bool:
    """Whether the five likeliest classes are cats, the pets among them first."""
    return (
        len(answer) == 5
        and answer.keys() <= CATS
        and next(iter(answer)).endswith("_cat")
        and sum(answer.values()) > 0.9
    )


def test_a_cat_is_a_cat(registered: Callable[[str], Server]) -> None:
    (answer,) = curl(registered("imagenet"), "imagenet", "cat.jpg")
    assert is_cat(answer), answer


def test_two_files_at_once_get_two_answers(registered: Callable[[str], Server]) -> None:
    cat, coffee = curl(registered("imagenet"), "imagenet", "{cat.jpg,coffee.jpg}")
    assert is_cat(cat)
    assert next(iter(coffee)) == "espresso"


def test_a_cat_is_a_cat_through_grpc(registered: Callable[[str], Server]) -> None:
    address = grpc_address(registered("imagenet"))
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        answer, _ = Stub(channel, INFERENCE)(
            "Predictions", model_name="imagenet", input={"data": (DATA / "cat.jpg").read_bytes()}
        )
    assert is_cat(json.loads(answer.prediction))


def grpc_address(server: Server) -> str:
    """Where the server's log says that gRPC listens."""
    return re.search(r"(?i)grpc[^\n]*inference[^\n]*?(127\.0\.0\.1:\d+)", server.log)[1]


def test_describe_shows_the_documented_fields(registered: Callable[[str], Server]) -> None:
    described = registered("imagenet").describe("imagenet")
    wanted = {"modelName": "imagenet", "modelVersion": "1.0", "modelUrl": "imagenet.mar", "runtime": "python"}
    wanted |= {"minWorkers": 1, "maxWorkers": 1, "batchSize": 8, "maxBatchDelay": 50, "loadedAtStartup": False}
    assert wanted.items() <= described.items()
    (worker,) = described["workers"]
    assert {"id", "startTime", "status", "memoryUsage", "pid", "gpu", "gpuUsage"} <= worker.keys()
    assert worker["status"] == "READY" and worker["gpu"] is False


def test_describe_asks_the_handler_about_device_and_threads(registered: Callable[[str], Server]) -> None:
    reply = registered("imagenet").manage("GET", "/models/imagenet", customized="true").json()
    about = reply[0]["customizedMetadata"]
    assert about["device"] == "cpu" and about["torchThreads"] >= 1 and about["batchesAtATime"] == 2


def test_in_a_batch_with_a_bad_image_only_the_bad_one_fails(registered: Callable[[str], Server]) -> None:
    server = registered("imagenet")
    cat = (DATA / "cat.jpg").read_bytes()
    alone = server.predict("imagenet", cat).json()
    with ThreadPoolExecutor(8) as pool:
        bodies = [cat, b"no image", cat, cat[:500], cat, cat, b"", cat]
        replies = list(pool.map(lambda body: server.predict("imagenet", body), bodies))
    for body, reply in zip(bodies, replies):
        assert reply.status_code == (200 if body == cat else 400), reply.text
        if body == cat:
            assert near(reply.json(), alone)
        else:
            assert "cannot be decoded" in reply.json()["message"]


def near(ours: dict[str, float], theirs: dict[str, float]) -> bool:
    """Whether two answers agree to 1e-5."""
    return ours.keys() == theirs.keys() and all(abs(ours[name] - theirs[name]) < 1e-5 for name in ours)


@pytest.mark.parametrize("count", [1, 8])
def test_faces_have_136_numbers_each(registered: Callable[[str], Server], count: int) -> None:
    server = registered("faces")
    upload = "face.jpg" if count == 1 else "{" + ",".join(["face.jpg"] * count) + "}"
    answers = curl(server, "faces", upload)
    assert [len(answer) for answer in answers] == [136] * count
    points = list(zip(answers[0][::2], answers[0][1::2]))
    left_eye, right_eye, chin = points[36], points[45], points[8]
    assert left_eye[0] < 0.5 < right_eye[0] and chin[1] > 0.8 and max(left_eye[1], right_eye[1]) < 0.5


@pytest.mark.parametrize(
    ("text", "label"), [("What a wonderful film, I love it", "positive"), ("Terrible, boring and bad", "negative")]
)
def test_texts_have_a_mood(registered: Callable[[str], Server], text: str, label: str) -> None:
    url = registered("sentiment").url("/predictions/sentiment")
    answer = requests.post(url, data=text, headers={"Content-Type": "text/plain"}, timeout=120).json()
    assert max(answer, key=answer.get) == label and sum(answer.values()) == pytest.approx(1)


def test_the_ranks_of_a_worker_compute_together_and_answer_once(server: Server) -> None:
    config = "parallelType: tp\ndeviceType: cpu\ntorchrun:\n  nproc-per-node: 3\n"
    server.register(server.store.mar("ranks", config=config))
    reply = server.predict("ranks", b"42")
    assert (reply.status_code, reply.text) == (200, "0126") and reply.headers["transfer-encoding"] == "chunked"
    described = server.describe("ranks")
    assert (described["parallelType"], described["parallelLevel"], len(described["workers"])) == ("tp", 3, 1)


TEXTS = [
    "A cat sits on the mat.", "A kitten is sitting on a rug.", "The stock market fell sharply today.", "Hi", "",
    "Sentences of a batch are padded to the longest of them, and the short ones must not depend on how long that is.",
    "Mañana, naïve café", "supercalifragilistic",
]  # fmt: skip

BARE = """
import json, sys
import torch
sys.path.insert(0, sys.argv[1])
from sentences_net import SentenceEncoder
from wordpiece import WordPiece
net, cut = SentenceEncoder(), WordPiece(sys.argv[1] + "/vocab.txt")
net.load_state_dict(torch.load(sys.argv[1] + "/sentences.pt"))
with torch.no_grad():
    tokens = [torch.tensor([cut(text)]) for text in json.load(sys.stdin)]
    print(json.dumps([net.eval()(one, torch.ones_like(one))[0].tolist() for one in tokens]))
"""


@pytest.mark.skipif(
    not SENTENCES.is_file(), reason="NO SENTENCES HERE: make models MODEL_NAMES=sentences (make test-all does)"
)
def test_sentences_have_the_vectors_a_bare_script_gives_them(server: Server) -> None:
    query = {"url": SENTENCES.name, "initial_workers": 1, "batch_size": 8, "max_batch_delay": 50, "synchronous": "true"}
    reply = requests.post(server.url("/models", "management"), params=query, timeout=UNPACK_SECONDS)
    assert reply.status_code == 200, reply.text
    command = [sys.executable, "-c", BARE, str(MODELS / "sentences")]
    said = subprocess.run(
        command, input=json.dumps(TEXTS), capture_output=True, text=True, check=True, timeout=120
    ).stdout
    bare = json.loads(said)
    alone = [server.predict("sentences", text.encode()).json() for text in TEXTS]
    with ThreadPoolExecutor(len(TEXTS)) as pool:
        together = list(pool.map(lambda text: server.predict("sentences", text.encode()).json(), TEXTS))
    for ours, crowded, theirs in zip(alone, together, bare):
        assert len(theirs) == 384
        assert ours == pytest.approx(theirs, abs=1e-5) and crowded == pytest.approx(theirs, abs=1e-5)
    cat, kitten, market = alone[:3]
    assert likeness(cat, kitten) > 0.5 > 0.2 > abs(likeness(cat, market))


def likeness(one: list[float], other: list[float]) -> float:
    """The cosine of the angle between two vectors of unit length."""
    return sum(left * right for left, right in zip(one, other))
