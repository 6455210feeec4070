"""Attacks on what models are made of: pictures, sequences, workflows, shared memory, lists of models, the demo."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import requests

from harness import onnx
from harness.archives import Store
from harness.client import SOCKET_SECONDS, later, together
from harness.processes import resident_bytes
from harness.server import ASK_SECONDS, Server
from harness.wait import until

Start = Callable[..., Server]


# -- pictures -----------------------------------------------------------------------------------


def segment(kind: int, content: bytes) -> bytes:
    return struct.pack("!BBH", 0xFF, kind, len(content) + 2) + content


def picture(width: int, height: int, scans: int, *, progressive: bool = True) -> bytes:
    """A grey JPEG that claims a size and has nothing but the end of blocks in its scans."""
    quantum = segment(0xDB, b"\0" + b"\1" * 64)
    start = segment(0xC2 if progressive else 0xC0, struct.pack("!BHHB", 8, height, width, 1) + b"\1\x11\0")
    # One code, of one bit: a difference of zero, or a run of 32,767 blocks without anything.
    tables = segment(0xC4, b"\0\1" + bytes(15) + b"\0") + segment(0xC4, b"\x10\1" + bytes(15) + b"\xe0")
    runs = (width // 8) * (height // 8) // 32_767 + 1
    flat = segment(0xDA, b"\1\1\0\0\0\0") + bytes((width // 8) * (height // 8) // 8 + 1)
    empty = segment(0xDA, b"\1\1\0\1\x3f\0") + b"\x3f\x7f" * 2 * runs
    return b"\xff\xd8" + quantum + start + tables + flat + empty * scans + b"\xff\xd9"


@pytest.fixture(scope="module")
def images(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("images")
    ends = [onnx.value(name, onnx.FLOAT, ["n", 3, 32, 32]) for name in "xy"]
    model = onnx.write(home / "same.onnx", [onnx.node("Identity", ["x"], "y")], ends[:1], ends[1:])
    (home / "same.yaml").write_text("image: {resize: 40, crop: 32, max_pixels: 4000000}\n")
    server = Server(binary, home / "server", ["serve", model])
    yield server.started()
    server.end()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (picture(65_500, 65_500, 0)[:200], "at most 4000000 in all are accepted"),
        (picture(65_500, 61, 0)[:200], "cannot be decoded"),
        (picture(2000, 2000, 0, progressive=False)[:200], "cannot be decoded"),
        (picture(2000, 0, 0), "cannot be decoded"),
        (picture(0, 2000, 0), "cannot be decoded"),
        (picture(2000, 2000, 3000), "cannot be decoded"),
        (b"\xff\xd8" + b"\xff" * 2_000_000, "cannot be decoded"),
        (b"\xff\xd8" + segment(0xE1, bytes(65_000)) * 90, "cannot be decoded"),
    ],
    ids=["huge", "long", "cut off", "no height", "no width", "3,000 scans", "padding", "only comments"],
)
def test_a_hostile_picture_is_the_clients_mistake(images: Server, content: bytes, words: str) -> None:
    workers = images.ready("same")
    reply = images.predict("same", content)
    assert (reply.status_code, words in reply.text) == (400, True), reply.text
    assert images.ready("same") == workers, "its worker goes on"
    assert images.predict("same", picture(64, 64, 2)).status_code == 200
    (pid,) = workers.values()
    assert pid is not None and resident_bytes(pid) < 256 << 20


# -- sequences ----------------------------------------------------------------------------------


def test_sequences_run_to_exhaustion_are_rejected_and_leave_no_memory(start: Start, store: Store) -> None:
    """As many ids as come, of which each is silent after its first request."""
    settings = {
        "minWorkers": 1, "maxWorkers": 1, "batchSize": 4, "maxBatchDelay": 1, "sequenceBatching": True,
        "sequenceMaxIdleMSec": 20, "maxNumSequence": 16, "maxSequenceJobQueueSize": 2,
    }  # fmt: skip
    server = start("serve", store.mar("echo", config=json.dumps(settings)), store.mar("other", "echo"))
    session = requests.Session()

    def say(name: str) -> requests.Response:
        headers = {"ts_request_sequence_id": name}
        return session.post(server.url("/predictions/echo"), b"x", headers=headers, timeout=ASK_SECONDS)

    def came(numbers: range) -> list[int]:
        return [say(f"{number:08}" * 128).status_code for number in numbers]

    assert say("x" * 1025).status_code == 400, "an id is not as long as a head"
    assert 200 in came(range(50))
    before = resident_bytes(server.pid)
    statuses = came(range(50, 1000))
    assert 200 in statuses and set(statuses) <= {200, 503}, "who finds no place is told so"
    assert resident_bytes(server.pid) - before < 16 << 20
    until(lambda: say("another").status_code == 200, "another sequence finds a place")
    assert server.predict("other", b"x").content == b"x"


# -- workflows ----------------------------------------------------------------------------------


def wide(nodes: int) -> str:
    return "dag:\n  first: [" + ", ".join(f"n{at}" for at in range(nodes)) + "]\n"


def laughs() -> str:
    """Nine levels of ten aliases each: a thousand million texts."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "spec",
    [
        "dag: {first: [first]}",
        wide(20_000),
        "models:\n  max-workers: 100000\n  min-workers: 100000\ndag: {first: }",
        "models: {m: {url: ../../../../etc/passwd}}\ndag: {first: [m]}",
        "models: {m: {url: 'http://169.254.169.254/latest/meta-data'}}\ndag: {first: [m]}",
        "models: {m: {url: 'file:///etc/passwd'}}\ndag: {first: [m]}",
        laughs() + "\ndag: {first: *a8}",
        "dag: " + "{first: " * 3000,
        "dag: {'../first': [last]}",
        "dag: {'os.system': [last]}",
    ],
    ids=["loop", "wide", "workers", "path", "metadata", "file", "aliases", "deep", "name", "function"],
)
def test_a_hostile_workflow_is_refused_whole(shared: Server, spec: str) -> None:
    before = resident_bytes(shared.pid)
    reply = shared.manage("POST", "/workflows", url=shared.store.war("hostile", spec, "steps"))
    assert 400 <= reply.status_code < 600 and "root:" not in reply.text, reply.text
    assert shared.manage("GET", "/workflows/hostile").status_code == 404
    names = [model["modelName"] for model in shared.manage("GET", "/models").json()["models"]]
    assert not [name for name in names if name.startswith("hostile")]
    assert resident_bytes(shared.pid) - before < 128 << 20
    assert shared.predict("echo", b"x").content == b"x"


# -- shared memory ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sharing(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("sharing")
    ends = [onnx.value(name, onnx.FLOAT, ["n", 1]) for name in "xy"]
    model = onnx.write(home / "same.onnx", [onnx.node("Identity", ["x"], "y")], ends[:1], ends[1:])
    flags = ["--allow-client-shared-memory", "--max-request-memory", "64MiB"]
    server = Server(binary, home / "server", ["serve", model, *flags])
    yield server.started()
    server.end()


@contextlib.contextmanager
def shared_object(size: int) -> Iterator[str]:
    """An object of the system's shared memory, as large as its name says and empty."""
    name = f"jitney-attack-{os.getpid()}"
    path = Path("/dev/shm") / name
    path.touch()
    os.truncate(path, size)
    yield name
    path.unlink()


def region(server: Server, name: str, key: str, size: int, offset: int = 0) -> requests.Response:
    url = server.url(f"/v2/systemsharedmemory/region/{name}/register")
    return requests.post(url, json={"key": key, "offset": offset, "byte_size": size}, timeout=ASK_SECONDS)


def infer(server: Server, name: str, rows: int, size: int, *, output: bool = False) -> requests.Response:
    """A request whose tensor, or whose answer, lies in a region."""
    place = {"shared_memory_region": name, "shared_memory_byte_size": size}
    given = {"name": "x", "shape": [rows, 1], "datatype": "FP32"}
    asked = {"inputs": [{**given, **({"data": [0] * rows} if output else {"parameters": place})}]}
    if output:
        asked["outputs"] = [{"name": "y", "parameters": place}]
    return requests.post(server.url("/v2/models/same/infer"), json=asked, timeout=ASK_SECONDS)


def test_shared_memory_reaches_nothing_else(sharing: Server) -> None:
    for key in ("../../etc/passwd", "/../etc/passwd", "..", ".", "", "/", "a/b", "sem.x", "\0", "x" * 300):
        assert region(sharing, "r", key, 4).status_code == 400, key
    link = Path("/dev/shm") / f"jitney-attack-link-{os.getpid()}"
    link.symlink_to("/etc/passwd")
    assert region(sharing, "r", link.name, 4).status_code == 400
    link.unlink()


def test_a_region_is_no_more_than_a_request_may_bring(sharing: Server) -> None:
    with shared_object(8 << 30) as name:
        for size, offset in ((0, 0), (2**64 - 1, 1), (2**64, 0), (-1, 0), (9 << 30, 0), (1, 8 << 30)):
            assert region(sharing, "wrong", name, size, offset).status_code == 400, (size, offset)
        assert region(sharing, "sparse", name, 8 << 30).status_code == 200
        before = resident_bytes(sharing.pid)
        asks = [lambda size=size: infer(sharing, "sparse", size // 4, size) for size in (8 << 30, 512 << 20, 65 << 20)]
        assert {reply.status_code for reply in together(asks * 4)} <= {400, 413, 503}
        for rows, size in ((1, 0), (1, 3), (2, 4), (2**40, 4), (-1, 4)):
            assert infer(sharing, "sparse", rows, size).status_code == 400, (rows, size)
        assert resident_bytes(sharing.pid) - before < 64 << 20
        assert infer(sharing, "sparse", 1, 4).status_code == 200
        os.truncate(Path("/dev/shm") / name, 1)
        for output in (False, True):
            assert infer(sharing, "sparse", 1, 4, output=output).status_code == 400, "it became shorter"
        assert (Path("/dev/shm") / name).stat().st_size == 1
        left = {region(sharing, f"r{number}", name, 1).status_code for number in range(300)}
        assert left == {200, 400}, "there are only so many regions"
    assert sharing.manage("GET", "/models").status_code == 200


# -- lists of models ----------------------------------------------------------------------------


class Lists(BaseHTTPRequestHandler):
    """A web server that was taken over."""

    content: bytes = b""
    endless = False

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(self.content)
            while self.endless:
                self.wfile.write(b"# \n" * 100_000)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def refusals(server: Server) -> list[str]:
    """Why the list was refused, or models of it."""
    found = server.manage("GET", "/overview").json()["registrations"]
    return [why for why in (found["error"], *(model["reason"] for model in found["models"])) if why]


@pytest.mark.parametrize(
    ("content", "endless"),
    [
        (b"models: []\n", True),
        (laughs().encode() + b"\nmodels: *a8\n", False),
        (b"models: " + b"[" * 100_000, False),
        (b"models:\n- {name: ../../x, path: /etc/passwd}\n", False),
        (b"models:\n- {name: x, url: 'http://169.254.169.254/x.mar'}\n", False),
        (b"models:\n- {name: x, path: /dev/zero}\n", False),
        (b"\xff\xfe" * 1000, False),
    ],
    ids=["endless", "aliases", "deep", "path", "metadata", "device", "no text"],
)
def test_a_hostile_list_changes_nothing(start: Start, store: Store, content: bytes, endless: bool) -> None:
    web = ThreadingHTTPServer(("127.0.0.1", 0), type("Hostile", (Lists,), {"content": content, "endless": endless}))
    web.daemon_threads = True
    Thread(target=web.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{web.server_address[1]}/list.yaml"
    server = start("serve", store.mar("echo"), "--registrations", url, "--registrations-every", "0.1s")
    before = resident_bytes(server.pid)
    until(lambda: refusals(server), "the list, or its model, is refused")
    assert server.predict("echo", b"x").content == b"x"
    assert [model["modelName"] for model in server.manage("GET", "/models").json()["models"]] == ["echo"]
    assert resident_bytes(server.pid) - before < 128 << 20
    web.shutdown()
    web.server_close()


# -- the demo -----------------------------------------------------------------------------------


def test_the_demo_is_for_this_machine_and_takes_no_models(start: Start, store: Store) -> None:
    server = start("demo")
    evil = store.mar("evil", "echo")
    for url in (str(evil), evil.as_uri(), "https://example.invalid/x.mar", "demo.onnx"):
        assert server.manage("POST", "/models", url=url).status_code >= 400
    foreign = {"Host": "evil.example", "Origin": "https://evil.example"}
    listed = server.url("/models", "management")
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert requests.request(method, listed, headers=foreign, timeout=ASK_SECONDS).status_code == 403
    (name,) = [model["modelName"] for model in server.manage("GET", "/models").json()["models"]]
    silent = [socket.create_connection(server.address, timeout=SOCKET_SECONDS) for _ in range(200)]
    bodies = [b"", b"\xff\xd8" * 100_000, picture(60_000, 60_000, 1)[:500], b"{" * 100_000, b"[" * 1_000_000]
    replies = together([lambda body=body: server.predict(name, body) for body in bodies * 4])
    assert {reply.status_code for reply in replies} <= {200, 400}, "any file has a kind"
    assert later(lambda: server.manage("GET", f"/models/{name}")).result(ASK_SECONDS).status_code == 200
    for connection in silent:
        connection.close()
