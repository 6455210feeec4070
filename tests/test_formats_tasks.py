"""Tasks of Hugging Face folders that others of these tests leave out: detection, writing tasks and streamed stops.

It runs in the environment `formats`: `make test-formats`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from harness import pretrained
from harness.server import ASK_SECONDS, Server

pytest.importorskip("transformers")
pytestmark = pytest.mark.heavy

LOAD_SECONDS = 600
Start = Callable[..., Server]


def test_things_in_a_picture(start: Start, tmp_path: Path) -> None:
    import torch
    import transformers
    from PIL import Image

    folder = pretrained.yolos(tmp_path / "things")
    server = start("serve", folder, start_seconds=LOAD_SECONDS)
    library = transformers.pipeline("object-detection", model=str(folder), device="cpu", dtype=torch.float32)
    picture = Image.effect_noise((60, 40), 90).convert("RGB")
    file = io.BytesIO()
    picture.save(file, "PNG")
    body = {"data": file.getvalue(), "headers": {"content-type": "image/png"}}
    expected = library(picture, threshold=0.5)
    found = requests.post(server.url("/things"), timeout=ASK_SECONDS, **body).json()
    assert len(expected) > 1 and [(one["label"], one["box"]) for one in found] == [
        (one["label"], one["box"]) for one in expected
    ]
    assert [one["score"] for one in found] == pytest.approx([one["score"] for one in expected], abs=5e-5)


@pytest.mark.parametrize(
    ("task", "key", "prefix"),
    [("translation_en_to_de", "translation_text", "to German: "), ("text2text-generation", "generated_text", "")],
)
def test_texts_of_texts(start: Start, tmp_path: Path, task: str, key: str, prefix: str) -> None:
    import torch
    import transformers

    own = {task: {"prefix": prefix, "max_length": 12}}
    folder = pretrained.t5(tmp_path / "writes", task_specific_params=own)
    server = start("serve", folder, "--task", task, start_seconds=LOAD_SECONDS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    for text in pretrained.LINES[:3]:
        made = model.generate(**tokenizer(prefix + text, return_tensors="pt"), max_length=12)
        expected = tokenizer.batch_decode(made, skip_special_tokens=True)[0]
        reply = requests.post(server.url("/writes"), json={"inputs": text}, timeout=ASK_SECONDS)
        assert reply.json() == [{key: expected}], reply.text


def events(server: Server, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """What a stream tells."""
    reply = requests.post(server.url(path), json=body, timeout=ASK_SECONDS)
    assert reply.status_code == 200, reply.text
    told = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in told if line != "[DONE]"]


def test_a_stop_ends_a_stream_and_nothing_of_it_is_told(start: Start, tmp_path: Path) -> None:
    folder = pretrained.gpt2(tmp_path / "gpt")
    server = start("serve", folder, start_seconds=LOAD_SECONDS)
    asked = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    whole = requests.post(server.url("/v1/completions"), json=asked, timeout=ASK_SECONDS).json()["choices"][0]["text"]
    stop = whole[len(whole) // 2 :][:2]
    before = whole[: whole.index(stop)]
    chunks = events(server, "/v1/completions", {**asked, "stop": [stop], "stream": True})
    assert "".join(one["choices"][0]["text"] for one in chunks) == before
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_stream_is_events_of_text_generation_inference(start: Start, tmp_path: Path) -> None:
    """As Hugging Face's own client reads them; what is not streamed is one answer, as ever."""
    import huggingface_hub
    import transformers

    folder = pretrained.gpt2(tmp_path / "gpt")
    server = start("serve", folder, start_seconds=LOAD_SECONDS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    client = huggingface_hub.InferenceClient(server.url("/gpt"), timeout=ASK_SECONDS)
    prompt, size = "Once upon a time", len(tokenizer("Once upon a time")["input_ids"])
    most = {"max_new_tokens": 24, "return_full_text": False}
    whole = client.text_generation(prompt, **most)
    reply = requests.post(server.url("/gpt"), json={"inputs": prompt, "parameters": most}, timeout=ASK_SECONDS)
    assert reply.json() == [{"generated_text": whole}] and reply.headers["content-type"] == "application/json"

    body = {"inputs": prompt, "parameters": most, "stream": True}
    told = requests.post(server.url("/gpt"), json=body, timeout=ASK_SECONDS)
    assert told.headers["content-type"] == "text/event-stream" and "content-length" not in told.headers
    pieces = list(client.text_generation(prompt, stream=True, details=True, **most))
    assert [one.index for one in pieces] == list(range(1, 25)) and not any(one.token.special for one in pieces)
    assert tokenizer.decode([one.token.id for one in pieces]) == whole == "".join(one.token.text for one in pieces)
    assert [(one.generated_text, one.details) for one in pieces[:-1]] == [(None, None)] * 23
    details = pieces[-1].details
    assert (pieces[-1].generated_text, details.finish_reason) == (whole, "length")
    assert (details.generated_tokens, details.input_length, details.seed) == (24, size, None)

    stop = whole[len(whole) // 2 :][:2]
    before = whole[: whole.index(stop)]
    assert client.text_generation(prompt, stop=[stop], **most) == before
    pieces = list(client.text_generation(prompt, stop=[stop], stream=True, details=True, **most))
    assert "".join(one.token.text for one in pieces) == before == pieces[-1].generated_text
    assert pieces[-1].details.finish_reason == "stop_sequence" and len(pieces) < 24

    wild = {"max_new_tokens": 200, "temperature": 100.0, "stream": True, "details": True}
    for seed in range(1, 50):
        *_, last = client.text_generation(prompt, seed=seed, **wild)
        if last.details.finish_reason == "eos_token":
            break
    assert (last.token.id, last.details.seed) == (tokenizer.eos_token_id, seed)
    assert last.index == last.details.generated_tokens < 200
    several = requests.post(server.url("/gpt"), json={**body, "inputs": [prompt]}, timeout=ASK_SECONDS)
    assert several.status_code == 400 and "a stream is for one text" in several.text
