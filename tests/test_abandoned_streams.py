"""A client that leaves a stream stops it: nothing is made for nobody.

The models make two pieces and then wait until the test lets them go on, which it does when the server has seen the
client leave. From then on they make pieces as fast as they can: only being stopped keeps them from making them all.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests
from google.protobuf import message_factory

from harness.archives import Store
from harness.client import later, request
from harness.http2 import Http2
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from harness.wait import until
from test_grpc import FREE_PORTS, INFERENCE, POOL, address

PIECES = 20_000
FEW = 2
"""Pieces that may be made after the client left."""

DIARY = f"""
import pathlib
import time

LAST = {PIECES}


class Diary:
    '''What a stream did, line by line: its pieces, then how it ended.'''

    def __init__(self, file):
        self.path = pathlib.Path(file)
        self.file = open(file, "a", buffering=1)

    def must_wait(self, at):
        return at == 1 and not self.path.with_suffix(".go").exists()

    def __enter__(self):
        return self

    def piece(self):
        self.file.write("piece\\n")

    def __exit__(self, kind, error, trace):
        self.file.write((kind.__name__ if kind else "whole") + "\\n")
"""

APP = (
    DIARY
    + """
import asyncio
import jitney


@jitney.endpoint
def plain(file: str):
    with Diary(file) as diary:
        for at in range(LAST):
            diary.piece()
            yield f"{at} "
            while diary.must_wait(at):
                time.sleep(0.002)


class beside:
    @jitney.endpoint
    def tell(self, file: str):
        yield from plain(file)

    @jitney.endpoint
    async def other(self) -> int:
        return 1


@jitney.endpoint(concurrency=1)
async def alone(file: str):
    with Diary(file) as diary:
        for at in range(LAST):
            diary.piece()
            yield f"{at} "
            while diary.must_wait(at):
                await asyncio.sleep(0.002)


@jitney.endpoint(concurrency=4)
async def loop(file: str):
    async for piece in alone(file):
        yield piece
        await asyncio.sleep(0)


@jitney.batch(max_batch_size=2, max_batch_delay_ms=600000)
def batched(file: list[str], name: list[str]):
    with Diary(file[0]) as diary:
        for at in range(LAST if "stays" not in name else 300):
            diary.piece()
            yield [f"{one} {at} " for one in name]
            while diary.must_wait(at):
                time.sleep(0.002)


@jitney.endpoint(raw=True)
def raw(request):
    return jitney.Response(plain(request.text()))
"""
)
MODELS = [f"app:{name}" for name in ("plain", "beside", "alone", "loop", "batched", "raw")]


TELLER = (
    DIARY
    + """
from ts.handler_utils.utils import send_intermediate_predict_response as send


def handle(data, context):
    if data is None:
        return None
    body = data[0]["body"]
    file, *asks = (body if isinstance(body, str) else bytes(body).decode()).split()
    with Diary(file) as diary:
        for at in range(LAST):
            diary.piece()
            send([f"{at} "] * len(data), context.request_ids, "ok", 200, context)
            while diary.must_wait(at):
                time.sleep(0.002)
            if at and asks:
                while not any(left := [context.cancelled(idx) for idx in range(len(data))]):
                    time.sleep(0.002)
                diary.file.write(f"{sum(left)} left, all: {context.cancelled()}\\n")
                return ["asked"] * len(data)
    return ["end"] * len(data)
"""
)


@pytest.fixture(scope="module")
def served(binary: Path, home: Path) -> Iterator[Server]:
    """The definitions of APP, and two archives."""
    store = Store(home / "store")
    teller = store.mar("teller", source=TELLER)
    pair = store.mar("pair", source=TELLER, config="{batchSize: 2, maxBatchDelay: 600000}")
    awaits = store.mar(
        "awaits", source=TELLER.replace("def handle", "async def handle"), config="{asyncCommunication: true}"
    )
    server = Server(binary, home / "server", ["serve", *MODELS, teller, pair, awaits], cwd=home, env=FREE_PORTS)
    yield server.started()
    server.end()


class Story:
    """A stream's diary, and the gate at which it waits after two pieces."""

    def __init__(self, server: Server, file: Path) -> None:
        self.server = server
        self.file = file
        self.before = self.connections()

    def connections(self) -> float:
        """Open connections of the inference ports."""
        page = requests.get(self.server.url("/metrics", "metrics"), timeout=ASK_SECONDS).text
        return sum(map(float, re.findall(r'^jitney_connections{.*plane="data".*} (\S+)$', page, re.MULTILINE)))

    def go_on(self) -> list[str]:
        """Lets it go on once the server has seen its clients leave; what it did up to its end."""
        until(lambda: self.connections() <= self.before, "the server sees that the client left")
        self.file.with_suffix(".go").touch()
        return until(self.ended, "the stream ends")

    def ended(self) -> list[str]:
        lines = self.file.read_text().split("\n")[:-1]
        return lines if lines[-1] != "piece" else []


@pytest.fixture
def story(served: Server, tmp_path: Path) -> Story:
    return Story(served, tmp_path / "diary")


# How a client asks for a stream, reads two pieces and leaves.


def over_http1(server: Server, model: str, body: str, *headers: str) -> None:
    path = f"/predictions/{model}" if model[0] != "/" else model
    talk(server, request(path, body.encode(), "Content-Type: text/plain", *headers))


def over_hyper(server: Server, model: str, body: str) -> None:
    """A request in chunks is none of those that are read without hyper."""
    lines = f"POST /predictions/{model} HTTP/1.1", "Host: h", "Content-Type: text/plain", "Transfer-Encoding: chunked"
    talk(server, "\r\n".join((*lines, "", f"{len(body):x}", body, "0", "", "")).encode())


def talk(server: Server, sent: bytes) -> None:
    with socket.create_connection(server.address, timeout=ASK_SECONDS) as connection:
        connection.sendall(sent)
        assert connection.recv(12) == b"HTTP/1.1 200"
        read_two(lambda: connection.recv(1 << 16), b"\r\n\r\n")


def as_events(server: Server, model: str, body: str) -> None:
    over_http1(server, model, body, "Accept: text/event-stream")


def over_http2(server: Server, model: str, body: str) -> None:
    client = Http2(server.address)
    client.ask(1, "POST", f"/predictions/{model}", **{"content-type": "text/plain"})
    client.send(1, body.encode(), end=True)

    def more() -> bytes:
        assert client.read(), "the connection ended"
        return client.bodies.pop(1, b"")

    read_two(more)
    client.close()


def over_grpc(server: Server, model: str, body: str) -> None:
    method = POOL.FindServiceByName(INFERENCE).FindMethodByName("StreamPredictions")
    asked, answered = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
    with grpc.insecure_channel(address(server, "inference")) as channel:
        path = f"/{INFERENCE}/StreamPredictions"
        call = channel.unary_stream(path, asked.SerializeToString, answered.FromString)
        pieces = call(asked(model_name=model, input={"body": body.encode()}), timeout=ASK_SECONDS)
        read_two(lambda: next(pieces).prediction)
        pieces.cancel()


def by_handle(server: Server, model: str, body: str) -> None:
    with jitney.connect(server.urls["inference"]) as session:
        pieces = iter(session.model(model).stream(body))
        assert [next(pieces), next(pieces)] == ["0 ", "1 "]


def read_two(read: Callable[[], bytes], body: bytes = b"") -> None:
    """Reads up to the second piece; what comes before `body` is a head."""
    got = b""
    while body not in got or b"1 " not in got[got.index(body) :]:
        got += read()


PROTOCOLS = (over_http1, over_hyper, as_events, over_http2, over_grpc, by_handle)


@pytest.mark.parametrize("leave", PROTOCOLS)
def test_a_generator_is_closed_whose_client_left(story: Story, leave: Callable[..., None]) -> None:
    leave(story.server, "plain", str(story.file))
    *pieces, end = story.go_on()
    assert end == "GeneratorExit" and len(pieces) <= 2 + FEW


@pytest.mark.parametrize("model", ["/beside/tell", "alone", "loop", "/raw"])
def test_a_stream_of_any_kind_ends_when_its_client_left(story: Story, model: str) -> None:
    over_http1(story.server, model, str(story.file))
    *pieces, end = story.go_on()
    assert end in ("GeneratorExit", "CancelledError") and len(pieces) <= 2 + FEW


def two(server: Server, body: Callable[[str], Any]) -> tuple[requests.Response, requests.Response]:
    """Two streams of one batch, which have begun."""
    calls = [later(lambda name=name: body(name)) for name in ("leaves", "stays")]
    first, second = (call.result(ASK_SECONDS) for call in calls)
    assert first.status_code == second.status_code == 200
    return first, second


def stream(server: Server, model: str, **body: Any) -> requests.Response:
    return requests.post(server.url(f"/predictions/{model}"), stream=True, timeout=ASK_SECONDS, **body)


def test_a_batched_stream_goes_on_for_those_who_stay(story: Story) -> None:
    file = str(story.file)
    leaves, stays = two(story.server, lambda name: stream(story.server, "batched", json={"file": file, "name": name}))
    story.before += 1
    leaves.close()
    assert story.go_on() == ["piece"] * 300 + ["whole"]
    assert stays.text == "".join(f"stays {at} " for at in range(300))


def test_a_batched_stream_is_closed_when_all_have_left(story: Story) -> None:
    file = str(story.file)
    for one in two(story.server, lambda name: stream(story.server, "batched", json={"file": file, "name": "all"})):
        one.close()
    *pieces, end = story.go_on()
    assert end == "GeneratorExit" and len(pieces) <= 2 + FEW


@pytest.mark.parametrize("model", ["teller", "awaits"])
@pytest.mark.parametrize("leave", [over_http1, over_grpc])
def test_a_handler_of_torchserve_cannot_send_to_nobody(story: Story, model: str, leave: Callable[..., None]) -> None:
    leave(story.server, model, str(story.file))
    *pieces, end = story.go_on()
    assert end == "ClientsLeft" and len(pieces) <= 2 + FEW
    assert story.server.describe(model)["workers"][0]["status"] == "READY"


def test_a_handler_of_torchserve_asks_who_has_left(story: Story) -> None:
    file = str(story.file)
    leaves, stays = two(story.server, lambda name: stream(story.server, "pair", data=f"{file} asks"))
    story.before += 1
    leaves.close()
    stays_text = later(lambda: stays.text)
    lines = story.go_on()
    assert lines == ["piece", "piece", "1 left, all: False", "whole"]
    assert stays_text.result(ASK_SECONDS).endswith("asked")
