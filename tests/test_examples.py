"""Every example, served by the real binary and asked as its text says."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests

from harness.client import together
from harness.server import ASK_SECONDS, Server
from harness.wait import until

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(start: Callable[..., Server]) -> Callable[..., Server]:
    return lambda *arguments, **options: start("serve", *arguments, cwd=EXAMPLES, **options)


def test_nine_calls_of_the_adder_run_as_batches_of_one_four_and_four(example):
    server = example("adder:adder", env={"ADDER_SECONDS": "1"})  # So that all nine come in time on any machine.

    def ask(number: int) -> int:
        return requests.get(server.url(f"/adder?number={number}"), timeout=ASK_SECONDS).json()

    answers = together([partial(ask, number) for number in range(9)])
    assert answers == list(range(1, 10))
    until(lambda: sum(batches(server)) == 9, "all batches are logged")
    assert batches(server) == [1, 4, 4]


def batches(server: Server) -> list[int]:
    return [int(size) for size in re.findall(r"a batch of (\d+)", server.log)]


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
def test_the_digits_of_many_callers_are_read_together(example):
    from sklearn.datasets import load_digits
    from sklearn.naive_bayes import GaussianNB

    digits = load_digits()
    expected = GaussianNB(var_smoothing=0.01).fit(digits.data, digits.target).predict(digits.data)
    server = example("digits:Digits", env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    described = server.describe("Digits")
    assert described["batchSize"] == 100

    def ask(at: int, rows: int) -> bool:
        body = {"pixels": digits.data[at : at + rows].tolist()}
        answer = requests.post(server.url("/Digits"), json=body, timeout=ASK_SECONDS).json()
        return answer == expected[at : at + rows].tolist()

    assert all(together([partial(ask, 20 * at, 1 + at % 3) for at in range(12)]))


@pytest.mark.torch
def test_a_dictionary_of_tensors_is_scored(example):
    server = example("torch_dict:Scorer")
    body = {"ids": [[1, 2], [3, 4]], "mask": [[1, 1], [1, 0]]}
    answer = requests.post(server.url("/Scorer"), json=body, timeout=ASK_SECONDS).json()
    assert answer["tokens"] == [2, 1]
    assert len(answer["score"]) == 2


@pytest.mark.torch
def test_texts_of_many_lengths_get_the_same_vectors_together_as_alone(example):
    server = example("encoder:Encoder", env={"ENCODER_SHAPE": "1,16,2"})
    described = server.describe("Encoder")
    assert (described["batchSize"], described["lengths"]) == (64, [32, 64, 128, 256, 512])

    def ask(length: int) -> list[float]:
        body = {"tokens": list(range(1000, 1000 + length))}
        return requests.post(server.url("/Encoder"), json=body, timeout=ASK_SECONDS).json()

    lengths = [1, 31, 33, 100, 3]
    alone = [ask(length) for length in lengths]
    for one, other in zip(alone, together([partial(ask, length) for length in lengths]), strict=True):
        assert one == pytest.approx(other, abs=1e-5) and len(one) == 16


def test_stories_are_told_word_by_word_to_everybody(example):
    server = example("story:tell")

    def ask(topic: str, words: int) -> tuple[str, str]:
        body = {"topic": topic, "words": words}
        with requests.post(server.url("/tell"), json=body, stream=True, timeout=ASK_SECONDS) as reply:
            return reply.headers["transfer-encoding"], "".join(reply.iter_content(None, decode_unicode=True))

    answers = together([partial(ask, "cats", 7), partial(ask, "dogs", 8), partial(ask, "mice", 9)])
    assert answers == [
        ("chunked", "Once upon a time there were cats "),
        ("chunked", "Once upon a time there were dogs and "),
        ("chunked", "Once upon a time there were mice and everyone "),
    ]


@pytest.mark.heavy
def test_the_moods_of_a_file_are_told_without_a_server(binary: Path, tmp_path: Path):
    (tmp_path / "sentences.csv").write_text('text\n"A lovely, sunny day"\nThe bus is late\n" "\nOn we go\n')
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "python"), "JITNEY_BIN": str(binary)}

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=ASK_SECONDS
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    sentences, moods = tmp_path / "sentences.csv", tmp_path / "moods.csv"
    run(binary, "infer", "sentiment:mood", sentences, "-o", moods, "--with-input")
    with moods.open() as file:
        assert [(one["text"], one["output"]) for one in csv.DictReader(file)] == [
            ("A lovely, sunny day", "good"),
            ("The bus is late", "bad"),
            ("On we go", "neither"),
        ]
    assert "the text is empty" in (tmp_path / "moods.csv.failed.jsonl").read_text()
    told = run(sys.executable, "sentiment.py", sentences)
    assert told.strip() == "1 bad, 1 good, 1 neither, 1 the text is empty"


def test_the_adder_answers_both_origins_and_never_mixes_them(binary: Path):
    env = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "python"), "PATH": f"{binary.parent}:{os.environ['PATH']}"}
    command = [sys.executable, "both_origins.py"]
    done = subprocess.run(command, cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["handle: [1, 2, 3, 4, 5]", "HTTP: [101, 102, 103, 104, 105]"], done.stderr


def test_the_sentences_of_all_reviews_share_the_batches_of_one_part(example):
    server = example("reviews:Reviews")
    text = "The room was lovely. The breakfast was late. A sunny, great day!"

    def ask(number: int) -> dict[str, object]:
        return requests.post(server.url("/Reviews/sum_up"), json={"text": text}, timeout=ASK_SECONDS).json()

    expected = {"The room was lovely": 1.0, "The breakfast was late": -1.0, "A sunny, great day": 1.0}
    answers = together([partial(ask, number) for number in range(20)])
    assert answers == [{"sentences": expected, "sum": 1.0}] * 20
    lines = requests.post(server.url("/Reviews/follow"), json={"text": text}, timeout=ASK_SECONDS).text
    assert lines.splitlines() == [f"{score:+g} {sentence}" for sentence, score in expected.items()]
    assert server.describe("Mood")["minWorkers"] == 2
