"""The code of docs/guides/generation.md, with stand-ins for torch and transformers that write words without a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from harness.server import ASK_SECONDS, Server
from harness.wait import until
from test_docs import snippets

TORCH = """
import contextlib


def inference_mode():
    return contextlib.nullcontext()
"""
TRANSFORMERS = """
import pathlib
import queue
import time


class StoppingCriteria:
    pass


StoppingCriteriaList = list


class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def __call__(self, prompt, return_tensors):
        return {"input_ids": prompt}


class TextIteratorStreamer:
    def __init__(self, tokenizer, skip_prompt):
        self.pieces = queue.Queue()

    def __iter__(self):
        return iter(self.pieces.get, None)


class AutoModelForCausalLM:
    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def eval(self):
        return self

    def generate(self, input_ids, max_new_tokens, streamer, stopping_criteria):
        ended = "whole"
        for at in range(max_new_tokens):
            streamer.pieces.put(f"word {at} ")
            time.sleep(0.001)
            if stopping_criteria[0](None, None):
                ended = "stopped"
                break
        pathlib.Path("ended").write_text(ended)
        streamer.pieces.put(None)
"""
LONG = 10**9
"""Words that nobody waits for."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("generation")
    chat, *_ = snippets("generation.md", "python")
    for name, text in [("chat", chat), ("torch", TORCH), ("transformers", TRANSFORMERS)]:
        (home / f"{name}.py").write_text(text.replace('"ended"', repr(str(home / "ended"))))
    return home


@pytest.fixture(scope="module")
def served(binary: Path, home: Path) -> Iterator[Server]:
    server = Server(binary, home / "server", ["serve", "chat.py:Chat"], cwd=home)
    yield server.started()
    server.end()


def post(server: Server, path: str, body: object, *, stream: bool = False) -> requests.Response:
    return requests.post(server.url(path), json=body, timeout=ASK_SECONDS, stream=stream)


def test_pieces_come_as_they_are_written(served: Server) -> None:
    assert post(served, "/Chat/generate", {"prompt": "Once", "tokens": 3}).text == "word 0 word 1 word 2 "


def test_the_chat_route_answers_as_openai_does(served: Server) -> None:
    asked = {"model": "Chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    whole = post(served, "/v1/chat/completions", asked).json()
    assert (whole["object"], whole["model"]) == ("chat.completion", "Chat")
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "word 0 word 1 "}
    stream = post(served, "/v1/chat/completions", {**asked, "stream": True})
    assert stream.headers["content-type"] == "text/event-stream"
    *events, last = [line.removeprefix("data: ") for line in stream.text.splitlines() if line]
    assert [json.loads(one)["choices"][0]["delta"]["content"] for one in events] == ["word 0 ", "word 1 "]
    assert last == "[DONE]"


def test_a_client_that_leaves_stops_the_model(served: Server, home: Path) -> None:
    ended = home / "ended"
    ended.unlink(missing_ok=True)
    answer = post(served, "/Chat/generate", {"prompt": "Once", "tokens": LONG}, stream=True)
    assert next(answer.iter_content(7)) == b"word 0 "
    answer.close()
    assert until(lambda: ended.exists() and ended.read_text(), "the model ends") == "stopped"
