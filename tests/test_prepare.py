"""Images and texts in, names out: `image`, `text` and `labels` on the card beside an ONNX file."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
import sklearn.datasets
from PIL import Image

from harness import onnx
from harness.client import curl, together
from harness.server import Server

PHOTOS = Path(sklearn.datasets.__file__).parent / "images"
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
IMAGE = "image: {resize: 40, crop: 32, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}\n"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "film", "##s", "bad"]
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
            "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]},
        },
    },
    "decoder": None,
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {word: number for number, word in enumerate(WORDS)},
    },
}


def write_models(home: Path) -> list[Path]:
    """`same` gives its input back, `colors` names the strongest color, `words` weighs tokens."""
    pixels = onnx.value("x", onnx.FLOAT, ["n", 3, 32, 32])
    same = onnx.write(
        home / "same.onnx",
        [onnx.node("Identity", ["x"], "y")],
        [pixels],
        [onnx.value("y", onnx.FLOAT, ["n", 3, 32, 32])],
    )
    (home / "same.yaml").write_text(IMAGE)
    colors = onnx.write(
        home / "colors.onnx",
        [onnx.node("GlobalAveragePool", ["x"], "mean"), onnx.node("Flatten", ["mean"], "y")],
        [pixels],
        [onnx.value("y", onnx.FLOAT, ["n", 3])],
    )
    (home / "colors.yaml").write_text(
        "image: {resize: [32, 32], max_pixels: 40000}\nlabels: labels.txt\nsoftmax: true\n"
    )
    (home / "labels.txt").write_text("red\ngreen\nblue\n")
    ids = [onnx.value(name, onnx.INT64, ["n", "length"]) for name in ("input_ids", "attention_mask")]
    words = onnx.write(
        home / "words.onnx",
        [
            onnx.node("Mul", ["input_ids", "attention_mask"], "known"),
            onnx.node("Cast", ["known"], "numbers", onnx.whole_attribute("to", onnx.FLOAT)),
            onnx.node("ReduceSum", ["numbers", "axes"], "sum", onnx.whole_attribute("keepdims", 1)),
            onnx.node("Mul", ["sum", "weights"], "y"),
        ],
        ids,
        [onnx.value("y", onnx.FLOAT, ["n", 2])],
        [
            onnx.tensor(onnx.INT64, [1], (1).to_bytes(8, "little"), "axes"),
            onnx.tensor(onnx.FLOAT, [2], struct.pack("<2f", 1, -1), "weights"),
        ],
    )
    (home / "words.yaml").write_text("text: {tokenizer: tokenizer.json, max_length: 6}\nlabels: names.json\n")
    (home / "names.json").write_text('{"0": "sum", "1": "minus"}')
    (home / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return [same, colors, words]


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The models, each with a batch that waits for its members."""
    home = tmp_path_factory.mktemp("prepare")
    flags = ("--batch-size", "4", "--max-batch-delay", "400ms")
    server = Server(binary, home / "server", ["serve", *write_models(home), *flags])
    yield server.started()
    server.end()


def photo(name: str, width: int = 150) -> Image.Image:
    """A real photo, made small."""
    image = Image.open(PHOTOS / name).convert("RGB")
    return image.resize((width, round(image.height * width / image.width)))


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    """The image as a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def reference(file: bytes) -> np.ndarray:
    """What torchvision's Resize, CenterCrop, ToTensor and Normalize make of it on Pillow's images."""
    image = Image.open(io.BytesIO(file)).convert("RGB")
    width, height = image.size
    size = (40, int(40 * height / width)) if width <= height else (int(40 * width / height), 40)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (round((side - 32) / 2.0) for side in size)
    pixels = np.asarray(image.crop((left, top, left + 32, top + 32)), np.float32) / np.float32(255)
    return ((pixels - MEAN) / STD).transpose(2, 0, 1)


FORMS: dict[str, Callable[[Image.Image], bytes]] = {
    "444": lambda image: encoded(image, quality=90, subsampling=0),
    "422": lambda image: encoded(image, quality=75, subsampling=1),
    "420": lambda image: encoded(image, quality=50, subsampling=2),
    "progressive": lambda image: encoded(image, progressive=True),
    "gray": lambda image: encoded(image.convert("L")),
    "upright": lambda image: encoded(image.transpose(Image.Transpose.ROTATE_90)),
    "png": lambda image: encoded(image, "PNG"),
    "alpha": lambda image: encoded(image.convert("RGBA"), "PNG"),
    "webp": lambda image: encoded(image, "WEBP", lossless=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_photo_becomes_the_tensor_that_torchvision_makes(server: Server, form: str) -> None:
    files = [FORMS[form](photo(name)) for name in ("china.jpg", "flower.jpg")]
    replies = together([lambda file=file: server.predict("same", file) for file in files])
    for file, reply in zip(files, replies, strict=True):
        assert reply.status_code == 200, reply.text
        assert np.abs(np.array(reply.json(), np.float32) - reference(file)).max() < 1e-5


def test_a_lossy_webp_is_nearly_the_same(server: Server) -> None:
    file = encoded(photo("china.jpg"), "WEBP", quality=90)
    assert np.abs(np.array(server.predict("same", file).json()) - reference(file)).max() < 0.05


def red(width: int = 20) -> bytes:
    """An image that is mostly red."""
    return encoded(Image.new("RGB", (width, 20), (230, 40, 10)), "PNG")


def test_an_image_is_answered_with_names_and_probabilities(server: Server, tmp_path: Path) -> None:
    answer = server.predict("colors", red()).json()
    weights = np.exp(np.array([230, 40, 10]) / 255)
    assert list(answer) == ["red", "green", "blue"]
    assert list(answer.values()) == pytest.approx(list(weights / weights.sum()), abs=1e-4)
    file = tmp_path / "red.png"
    file.write_bytes(red())
    url = server.url("/predictions/colors")
    assert curl("-T", file, url).json() == answer
    assert curl("-F", f"data=@{file}", url).json() == answer
    text = base64.b64encode(red()).decode()
    for body in ({"b64": text}, {"image": {"b64": text}}, {"image": text}):
        assert requests.post(url, json=body, timeout=120).json() == answer
    instances = {"instances": [{"b64": text}, {"b64": text}]}
    reply = requests.post(server.url("/v1/models/colors:predict"), json=instances, timeout=120)
    assert reply.json() == {"predictions": [answer, answer]}


def test_a_bad_image_fails_alone(server: Server) -> None:
    jpeg = encoded(photo("flower.jpg"))
    bodies = [red(), b"no image at all", jpeg[: len(jpeg) // 2], red(3000)]
    replies = together([lambda body=body: server.predict("colors", body) for body in bodies])
    assert [reply.status_code for reply in replies] == [200, 400, 400, 400]
    told = [reply.json().get("message", "") for reply in replies]
    assert "neither a JPEG nor a PNG nor a WebP" in told[1]
    assert "cut off" in told[2]
    assert "3000 x 20 pixels; at most 40000" in told[3]


def test_tensors_are_still_taken(server: Server) -> None:
    tensor = [[[0.5] * 32] * 32, [[0.25] * 32] * 32, [[0.0] * 32] * 32]
    answer = requests.post(server.url("/predictions/colors"), json=tensor, timeout=120).json()
    assert list(answer) == ["red", "green", "blue"]
    given = {"name": "x", "shape": [1, 3, 32, 32], "datatype": "FP32", "data": tensor}
    reply = requests.post(server.url("/v2/models/colors/infer"), json={"inputs": [given]}, timeout=120)
    assert reply.json()["outputs"][0]["data"] == pytest.approx([0.5, 0.25, 0.0], abs=1e-6)


def test_a_text_is_tokenised_and_answered_with_names(server: Server) -> None:
    url = server.url("/predictions/words")
    # [CLS] good film ##s [SEP]: 2 + 4 + 5 + 6 + 3.
    expected = {"sum": 20.0, "minus": -20.0}
    plain = {"Content-Type": "text/plain"}
    assert requests.post(url, data=b"Good FILMS", headers=plain, timeout=120).json() == expected
    assert requests.post(url, json={"text": "good films"}, timeout=120).json() == expected
    assert requests.post(url, json="good films", timeout=120).json() == expected
    assert requests.post(url, data={"text": "good films"}, timeout=120).json() == expected
    assert curl("-d", "good films", url).json() == expected
    reply = requests.post(server.url("/v1/models/words:predict"), json={"instances": ["good films"]}, timeout=120)
    assert reply.json() == {"predictions": [expected]}
    # Six tokens are left of it: 2 + 4 + 4 + 4 + 4 + 3.
    assert requests.post(url, data=b"good " * 50, headers=plain, timeout=120).json()["sum"] == 21


def test_texts_of_different_length_share_a_batch(server: Server) -> None:
    texts = {"good": 9, "bad films": 23, "good bad good bad": 27, "film": 10}
    plain = {"Content-Type": "text/plain"}
    replies = together([lambda text=text: server.predict("words", text.encode(), headers=plain) for text in texts])
    assert [reply.json()["sum"] for reply in replies] == list(texts.values())
    bad = server.predict("words", b"\xff\xfe", headers=plain)
    assert (bad.status_code, "not UTF-8" in bad.json()["message"]) == (400, True)


def test_a_card_that_does_not_fit_its_model_is_refused_at_load(binary: Path, tmp_path: Path) -> None:
    model, *_ = write_models(tmp_path)
    (tmp_path / "same.yaml").write_text("image: {resize: 40, crop: 31}\n")
    with pytest.raises(AssertionError, match=r"of shape \[n, 3, 31, 31\], the model takes"):
        Server(binary, tmp_path / "server", ["serve", model]).started()
