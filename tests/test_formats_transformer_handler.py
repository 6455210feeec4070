"""A handler of the shape that TorchServe's documentation shows first for batches of texts: one for all tasks of
transformers, with what it does in `setup_config.json`. TorchServe's own file runs in the gallery of its examples.

It runs in the environment `formats`: `make test-formats`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness import pretrained
from harness.archives import Store
from harness.server import Server

pytest.importorskip("transformers")
pytestmark = pytest.mark.heavy

LOAD_SECONDS = 600
LENGTH = 32
BATCH = 3
CONFIG = f"minWorkers: 1\nmaxWorkers: 1\nbatchSize: {BATCH}\nmaxBatchDelay: 600000\nresponseTimeout: 600\n"
"""A batch leaves when it is full."""
TEXTS = pretrained.LINES[:BATCH]
QUESTIONS = [json.dumps({"question": "what is it?", "context": text}) for text in TEXTS]


def classifier(folder: Path) -> Path:
    return pretrained.bert(folder, "BertForSequenceClassification", pretrained.LABELS["text"])


def tagger(folder: Path) -> Path:
    return pretrained.bert(folder, "BertForTokenClassification", pretrained.TAGS)


def reader(folder: Path) -> Path:
    return pretrained.bert(folder, "BertForQuestionAnswering")


@pytest.mark.parametrize(
    ("mode", "make", "labels", "bodies"),
    [
        ("sequence_classification", classifier, pretrained.LABELS["text"], TEXTS),
        ("token_classification", tagger, pretrained.TAGS, TEXTS),
        ("question_answering", reader, None, QUESTIONS),
        ("text_generation", pretrained.gpt2, None, TEXTS),
    ],
)
def test_a_handler_for_all_tasks_of_transformers(
    start: Callable[..., Server],
    store: Store,
    tmp_path: Path,
    mode: str,
    make: Callable[[Path], Path],
    labels: list[str] | None,
    bodies: list[str],
) -> None:
    setup = {"mode": mode, "max_length": str(LENGTH), "do_lower_case": True, "save_mode": "pretrained"}
    files = {"setup_config.json": json.dumps(setup)}
    if labels is not None:
        files["index_to_name.json"] = json.dumps(dict(enumerate(labels)))
    model = store.directory("texts", "transformer_tasks", files=files, config=CONFIG)
    shutil.copytree(make(tmp_path / "pretrained"), model, dirs_exist_ok=True)
    server = start("serve", model, start_seconds=LOAD_SECONDS)
    with ThreadPoolExecutor(BATCH) as pool:
        replies = list(pool.map(lambda body: server.predict("texts", body.encode()), bodies))
    assert [reply.status_code for reply in replies] == [200] * BATCH, [reply.text for reply in replies]
    answers = [reply.json() if mode == "token_classification" else reply.text for reply in replies]
    assert answers == expected(mode, model, labels)


def expected(mode: str, folder: Path, labels: list[str] | None) -> list[Any]:
    """The same by the library alone, text by text."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    limits = {"max_length": LENGTH, "padding": "max_length", "truncation": True, "return_tensors": "pt"}
    kinds = {
        "sequence_classification": transformers.AutoModelForSequenceClassification,
        "token_classification": transformers.AutoModelForTokenClassification,
        "question_answering": transformers.AutoModelForQuestionAnswering,
        "text_generation": transformers.AutoModelForCausalLM,
    }
    model = kinds[mode].from_pretrained(folder).eval()

    def one(text: str) -> Any:
        pair = ("what is it?", text) if mode == "question_answering" else (text,)
        row = tokenizer(*pair, **limits)
        with torch.no_grad():
            if mode == "text_generation":
                made = model.generate(**row, max_new_tokens=8, do_sample=False)
                return tokenizer.batch_decode(made, skip_special_tokens=True)[0]
            said = model(**row)
        if mode == "question_answering":
            return tokenizer.decode(row["input_ids"][0][said.start_logits.argmax() : said.end_logits.argmax() + 1])
        assert labels is not None
        if mode == "sequence_classification":
            return labels[int(said.logits.argmax())]
        count = int(row["attention_mask"].sum())
        tags = [labels[int(tag)] for tag in said.logits[0].argmax(dim=1)[:count]]
        return [list(pair) for pair in zip(tokenizer.convert_ids_to_tokens(row["input_ids"][0][:count]), tags)]

    return [one(text) for text in TEXTS]
