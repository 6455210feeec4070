"""Parts of the `ts` surface that need no torch."""

from __future__ import annotations

import io
import json
import os

import pytest

from ts.handler_utils.hf_batch_streamer import TextIteratorStreamerBatch
from ts.metrics import process_memory_metric
from ts.metrics.dimension import Dimension
from ts.metrics.metric import Metric
from ts.metrics.metric_encoder import MetricEncoder


class Tokens(list):
    """A list with a tensor's `tolist`."""

    def tolist(self):
        return list(self)


class Bytewise:
    """A tokenizer whose tokens are the bytes of UTF-8."""

    def decode(self, tokens, **_):
        return bytes(tokens).decode("utf-8", "replace")


def test_a_streamer_gives_the_new_text_of_every_request():
    streamer = TextIteratorStreamerBatch(Bytewise(), skip_prompt=True, timeout=1, batch_size=2)
    streamer.put(Tokens([[1, 2], [3, 4]]))
    for first, second in zip("aé".encode(), b"xyz"):
        streamer.put(Tokens([first, second]))
    streamer.end()
    assert list(streamer) == [["a", "x"], ["", "y"], ["é", "z"], ["", ""]]


def test_a_streamer_refuses_another_number_of_requests():
    with pytest.raises(ValueError, match="made for 2"):
        TextIteratorStreamerBatch(Bytewise(), batch_size=2).put(Tokens([1]))


def test_metrics_become_json():
    metric = Metric("M", 1, "ms", [Dimension("Level", "Host")])
    assert json.loads(json.dumps([metric], cls=MetricEncoder))[0]["MetricName"] == "M"
    with pytest.raises(TypeError):
        json.dumps(object(), cls=MetricEncoder)


def test_memory_of_processes_is_told_by_id(capsys):
    process_memory_metric.check_process_mem_usage(io.StringIO(f"{os.getpid()},999999999\n"))
    own, gone = capsys.readouterr().out.splitlines()
    assert int(own.partition(":")[2]) > 1 << 20 and gone == "999999999:0"
