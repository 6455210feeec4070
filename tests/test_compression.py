"""Bodies in gzip, zstd and deflate, both ways: the same content, the same limits, less on the wire."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import requests
import tritonclient.http as triton

from harness import onnx
from harness.archives import Store
from harness.client import parse, raw, request
from harness.processes import resident_bytes
from harness.server import FREE_ADDRESSES, Server

LIMIT = 1_000_000
TEXT = json.dumps([{"label": f"class {number}", "score": number / 7} for number in range(500)]).encode()

HEADERS = """
def handle(data, context):
    if data is None:
        return None
    headers = {name.lower(): value for name, value in context.get_all_request_header(0).items()}
    named = {name: headers.get(name) for name in ("content-encoding", "content-length", "x-own")}
    return [{"headers": named, "length": len(data[0]["body"])}]
"""


def zstd(content: bytes) -> bytes:
    return pyarrow.compress(content, codec="zstd", asbytes=True)


def raw_deflate(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "zstd": ("zstd", zstd),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
}


APP = "def shout(text: str) -> str:\n    return text.upper()\n"


@pytest.fixture(scope="module")
def server(binary: Path, home: Path) -> Iterator[Server]:
    """A server with a small limit of sizes, two archives and a definition."""
    store = Store(home / "store")
    double = [onnx.node("Add", ["x", "x"], "y")]
    shape = ["rows", 4]
    file = home / "double.onnx"
    onnx.write(file, double, [onnx.value("x", onnx.FLOAT, shape)], [onnx.value("y", onnx.FLOAT, shape)])
    models = [store.mar("echo"), store.mar("headers", source=HEADERS), "app:shout", file]
    arguments = ["serve", *models, "--max-request-size", str(LIMIT)]
    server = Server(binary, home / "server", arguments, store=store, cwd=home)
    yield server.started()
    server.end()


def post(server: Server, path: str, body: bytes, coding: str | None, **headers: str) -> requests.Response:
    named = {"Content-Encoding": coding} if coding else {}
    accepted = {"Accept-Encoding": "identity"}
    return requests.post(server.url(path), body, headers={**accepted, **named, **headers}, timeout=120)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_compressed_body_is_the_same_body(server: Server, coding: str) -> None:
    name, pack = CODINGS[coding]
    for content in (b"", b"x", TEXT, os.urandom(300_000), bytes(LIMIT)):
        reply = post(server, "/predictions/echo", pack(content), name)
        assert (reply.status_code, reply.content == content) == (200, True), reply.text[:200]


def test_a_definition_and_chunks_take_compressed_bodies_too(server: Server) -> None:
    packed = gzip.compress(json.dumps({"text": "aloud" * 1000}).encode())
    reply = post(server, "/shout", packed, "gzip", **{"Content-Type": "application/json"})
    assert reply.text == "ALOUD" * 1000
    pieces = (packed[at : at + 3] for at in range(0, len(packed), 3))
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    assert requests.post(server.url("/shout"), pieces, headers=headers, timeout=120).text == "ALOUD" * 1000


@pytest.mark.parametrize("raw_tensors", [True, False])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_tritons_client_compresses_both_ways(server: Server, coding: str, raw_tensors: bool) -> None:
    rows = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    given = triton.InferInput("x", rows.shape, "FP32")
    given.set_data_from_numpy(rows, binary_data=raw_tensors)
    wanted = [triton.InferRequestedOutput("y", binary_data=raw_tensors)]
    algorithms = {"request_compression_algorithm": coding, "response_compression_algorithm": coding}
    with triton.InferenceServerClient(server.urls["inference"].removeprefix("http://")) as client:
        result = client.infer("double", [given], outputs=wanted, **algorithms)
    assert (result.as_numpy("y") == 2 * rows).all()


def test_the_model_sees_the_body_and_not_its_coding(server: Server) -> None:
    reply = post(server, "/predictions/headers", gzip.compress(TEXT), "gzip", **{"X-Own": "kept"}).json()
    assert reply == {
        "headers": {"content-encoding": None, "content-length": None, "x-own": "kept"},
        "length": len(TEXT),
    }


def test_curl_decompresses_what_it_asked_for(server: Server, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(TEXT)
    body = ["-H", "Content-Type: text/plain", "--data-binary", f"@{tmp_path / 'body'}"]
    for coding in ("zstd", "gzip", "deflate"):
        files = ["--dump-header", tmp_path / "head", "--output", tmp_path / "answer"]
        asked = ["--compressed", "-H", f"Accept-Encoding: {coding}", *body]
        subprocess.run(["curl", "--silent", *files, *asked, server.url("/predictions/echo")], timeout=120, check=True)
        assert f"Content-Encoding: {coding}" in (tmp_path / "head").read_text()
        assert (tmp_path / "answer").read_bytes() == TEXT


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip, deflate, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("deflate", "deflate"),
        ("*", "zstd"),
        ("gzip;q=0", None),
        ("br", None),
        ("identity", None),
    ],
)
def test_answers_are_compressed_as_the_client_likes(server: Server, accepted: str, coding: str | None) -> None:
    headers = {"Accept-Encoding": accepted, "Content-Type": "text/plain"}
    with requests.post(server.url("/predictions/echo"), TEXT, headers=headers, timeout=120, stream=True) as reply:
        assert reply.headers.get("Content-Encoding") == coding
        assert reply.headers["Vary"] == "Accept-Encoding"
        sent = reply.raw.read(decode_content=False)
    unpack = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}
    unpack["zstd"] = lambda packed: pyarrow.decompress(packed, len(TEXT), codec="zstd", asbytes=True)
    assert unpack[coding](sent) == TEXT
    assert int(reply.headers["Content-Length"]) == len(sent)


def test_what_gains_nothing_is_sent_as_it_is(server: Server) -> None:
    for content in (b"short", os.urandom(100_000)):
        reply = post(server, "/predictions/echo", content, None, **{"Accept-Encoding": "gzip, deflate"})
        assert reply.content == content and "Content-Encoding" not in reply.headers


def test_a_head_tells_of_the_compressed_page(server: Server) -> None:
    get = requests.get(server.url("/metrics", "metrics"), headers={"Accept-Encoding": "gzip"}, timeout=120)
    assert get.headers["Content-Encoding"] == "gzip" and "# TYPE" in get.text
    head = requests.head(server.url("/openapi.json"), headers={"Accept-Encoding": "gzip"}, timeout=120)
    assert head.content == b""


def test_a_bomb_is_refused_at_the_limit_with_bounded_memory(server: Server) -> None:
    assert post(server, "/predictions/echo", b"warm", None).status_code == 200
    before = resident_bytes(server.pid)
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()
    assert len(bomb) < LIMIT
    frame = zstd(bytes(50 << 20))
    for name, body in (("gzip", bomb), ("zstd", frame), ("gzip", gzip.compress(bytes(LIMIT + 1)))):
        reply = post(server, "/predictions/echo", body, name)
        assert (reply.status_code, reply.json()["type"]) == (413, "RequestEntityTooLargeException")
    assert resident_bytes(server.pid) - before < 64 << 20


def test_what_cannot_be_read_says_why(server: Server) -> None:
    for name in ("br", "gzip, gzip", "compress"):
        reply = post(server, "/predictions/echo", b"?", name)
        assert reply.status_code == 415 and reply.json()["type"] == "UnsupportedMediaTypeException"
        assert name in reply.json()["message"] and "gzip, zstd, deflate" in reply.json()["message"]
        assert reply.headers["Accept-Encoding"] == "gzip, zstd, deflate"
    for name, body in (
        ("gzip", b"no gzip at all"),
        ("gzip", gzip.compress(TEXT)[:-1]),
        ("gzip", gzip.compress(TEXT) + b"more"),
        ("gzip", gzip.compress(b"") * 20_000),
        ("zstd", zstd(TEXT)[:-1]),
        ("deflate", b"\xff\xff\xff"),
    ):
        reply = post(server, "/predictions/echo", body, name)
        assert reply.status_code == 400 and f"not valid {name}" in reply.json()["message"], reply.text


def test_a_connection_goes_on_after_a_compressed_request(server: Server) -> None:
    packed = request("/predictions/echo", gzip.compress(b"one"), "Content-Encoding: gzip")
    broken = request("/predictions/echo", b"broken", "Content-Encoding: gzip")
    plain = request("/predictions/echo", b"two", "Connection: close")
    replies = parse(raw(server.address, packed, broken, plain))
    assert [(reply.status_code, reply.content[:3]) for reply in replies] == [
        (200, b"one"),
        (400, b"{\n "),
        (200, b"two"),
    ]


def test_both_can_be_turned_off(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--decompress-requests=false", "--compress-answers=false")
    packed = gzip.compress(TEXT)
    reply = post(server, "/predictions/echo", packed, "gzip", **{"Accept-Encoding": "gzip"})
    assert reply.content == packed and "Vary" not in reply.headers


def test_torchserve_passes_bodies_as_they_came(start, store: Store, tmp_path: Path) -> None:
    store.mar("echo")
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + "load_models=all\ndisable_token_authorization=true\n")
    arguments = ("--start", "--foreground", "--ncs", "--model-store", store.path, "--ts-config", config)
    server = start("torchserve", *arguments)
    packed = gzip.compress(TEXT)
    reply = post(server, "/predictions/echo", packed, "gzip", **{"Accept-Encoding": "gzip"})
    assert reply.content == packed and "Content-Encoding" not in reply.headers
