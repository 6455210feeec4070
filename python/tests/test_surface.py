"""Parts of the `ts` surface that need no torch."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ts.metrics import process_memory_metric

ROOT = Path(__file__).parents[1]


class Tokens(list):
    """A list that is cut and measured like a tensor."""

    @property
    def shape(self):
        return (len(self),)

    def __getitem__(self, place):
        return Tokens(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)


class OneStreamer:
    """Stands for transformers' streamer of one request: every token is a word."""

    def __init__(self, tokenizer, skip_prompt, timeout, **decode_kwargs):
        self.words, self.made_with = [], (tokenizer, skip_prompt, timeout, decode_kwargs)

    def put(self, value):
        assert value.shape == (1,)
        self.words.append(value[0])

    def end(self):
        self.words.append(None)

    def __iter__(self):
        return self

    def __next__(self):
        word = self.words.pop(0)
        if word is None:
            raise StopIteration
        return word


@pytest.fixture
def streaming(monkeypatch):
    """The module, over a transformers that is not installed."""
    fake = SimpleNamespace(BaseStreamer=object, TextIteratorStreamer=OneStreamer)
    for name in ("transformers", "transformers.generation"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "transformers.generation.streamers", fake)
    monkeypatch.delitem(sys.modules, "ts.handler_utils.hf_batch_streamer", raising=False)
    yield importlib.import_module("ts.handler_utils.hf_batch_streamer")
    sys.modules.pop("ts.handler_utils.hf_batch_streamer", None)


def test_a_streamer_gives_the_new_text_of_every_request_batch_after_batch(streaming):
    streamer = streaming.TextIteratorStreamerBatch("tokenizer", 2, True, 1, skip_special_tokens=True)
    assert streamer.streamers[1].made_with == ("tokenizer", True, 1, {"skip_special_tokens": True})
    for _ in range(2):
        streamer.put(Tokens(["a", "x"]))
        streamer.put(Tokens(["b", "y"]))
        streamer.end()
        assert list(streamer) == [[{"text": "a"}, {"text": "x"}], [{"text": "b"}, {"text": "y"}]]


def test_a_streamer_rejects_another_number_of_requests(streaming):
    with pytest.raises(ValueError, match="made for 2"):
        streaming.TextIteratorStreamerBatch("tokenizer", batch_size=2).put(Tokens(["a"]))


def test_memory_of_processes_is_reported_by_id(capsys):
    process_memory_metric.check_process_mem_usage(io.StringIO(f"{os.getpid()},999999999\n"))
    own, gone = capsys.readouterr().out.splitlines()
    assert int(own.partition(":")[2]) > 1 << 20 and gone == "999999999:0"


def test_an_older_python_gets_an_error_with_the_needed_version():
    code = "import sys; sys.version_info = (3, 9, 18); import jitney"
    old = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "jitney needs Python 3.10 or newer; this is " in old.stderr
