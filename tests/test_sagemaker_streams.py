"""Streams of SageMaker's user functions with the real binary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.client import together
from harness.sagemaker import folder
from harness.server import Server

TELLS = """
import json, os, time
from ts.handler_utils.utils import send_intermediate_predict_response
def model_fn(model_dir):
    pass
def transform_fn(model, body, content_type, accept, context):
    asked = json.loads(body)
    context.set_response_content_type(0, "text/event-stream")
    for piece in asked["pieces"]:
        send_intermediate_predict_response([piece], context.request_ids, "ok", 200, context)
        while not os.path.exists(asked["gates"] + piece):
            time.sleep(0.002)
    if asked.get("fails"):
        raise ValueError("it breaks off")
    return asked["last"]
"""


def told(server: Server, gates: str, pieces: list[str], last: str) -> requests.Response:
    """Asks for a stream; each piece after the first is made only when the one before was seen."""
    asked = {"pieces": pieces, "gates": gates, "last": last}
    reply = requests.post(server.url("/invocations"), json=asked, stream=True, timeout=120)
    chunks = reply.raw.read_chunked()
    for piece in pieces:
        assert next(chunks).decode() == piece
        Path(gates + piece).touch()
    assert [chunk.decode() for chunk in chunks] == [last]
    return reply


def test_streams_leave_piece_by_piece(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", TELLS)
    server = sagemaker(tmp_path / "ml")
    reply = told(server, f"{tmp_path}/gate-", ["one", "two", "three"], "end")
    assert (reply.status_code, reply.headers["transfer-encoding"]) == (200, "chunked")
    assert reply.headers["content-type"] == "text/event-stream"


def test_requests_of_a_batch_stream_their_own_pieces(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", TELLS)
    tuned = {"SAGEMAKER_TS_BATCH_SIZE": "2", "SAGEMAKER_TS_MAX_BATCH_DELAY": "60000"}
    server = sagemaker(tmp_path / "ml", **tuned)

    def ask(name: str) -> requests.Response:
        return told(server, f"{tmp_path}/gate-", [f"{name} one", f"{name} two"], f"{name} end")

    replies = together([lambda name=name: ask(name) for name in ("a", "b")])
    assert [reply.headers["server-timing"].count(" of 2") for reply in replies] == [1, 1], "they shared a batch"


def test_a_stream_that_fails_breaks_off(sagemaker: Callable[..., Server], tmp_path: Path) -> None:
    folder(tmp_path / "ml", TELLS)
    server = sagemaker(tmp_path / "ml")
    gates = f"{tmp_path}/gate-"
    Path(f"{gates}one").touch()
    asked = {"pieces": ["one"], "gates": gates, "fails": True}
    reply = requests.post(server.url("/invocations"), json=asked, stream=True, timeout=120)
    assert reply.status_code == 200
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        list(reply.iter_content(None))
    server.logged("it breaks off")
