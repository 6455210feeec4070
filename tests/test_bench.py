"""`jitney bench` against the real server, and against one that answers as it is told."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import threading
import xml.etree.ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from harness import onnx
from harness.archives import Store
from harness.certificates import self_signed
from harness.server import Server
from harness.wait import until

BENCH_SECONDS = 120
FLAGS = ("--batch-size", "32", "--queue", "1000")
LATE = ("--timeout", "100s")
"""The machine may be busy: an answer counts however late it is."""


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with a model that echoes."""
    home = tmp_path_factory.mktemp("bench")
    store = Store(home / "store")
    rows = [onnx.value(name, onnx.FLOAT, ["n", 4]) for name in ("x", "y")]
    same = onnx.write(home / "same.onnx", [onnx.node("Identity", ["x"], "y")], rows[:1], rows[1:])
    server = Server(binary, home / "server", ["serve", store.mar("echo"), same, *FLAGS]).started()
    try:
        yield server
    finally:
        server.end()


@pytest.fixture
def bench(binary: Path) -> Callable[..., dict[str, Any]]:
    """Runs the command and gives its JSON."""

    def bench(url: str, *flags: str | Path) -> dict[str, Any]:
        done = run(binary, url, *flags, "--json", "-", "--quiet")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return bench


def run(binary: Path, url: str, *flags: str | Path) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    command = [binary, "bench", url, *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=BENCH_SECONDS, check=False)


def answered(server: Server) -> float:
    """What the server counted itself."""
    return server.metric("jitney_requests_answered_total", "echo")


def grpc_address(server: Server) -> str:
    """Where the server speaks gRPC."""
    return re.search(r"^gRPC inference +(\S+)$", server.stdout, re.MULTILINE)[1]


def test_a_closed_loop_sends_exactly_so_many_requests(server: Server, bench) -> None:
    before = answered(server)
    report = bench(server.url("/predictions/echo"), "-c", "8", "-n", "300", "--body", "hello", *LATE)
    total = report["total"]
    assert (report["mode"], total["answered"], total["good"], total["lost"]) == ("closed", 300, 300, 0)
    assert total["statuses"] == {"200": 300} and total["errors"] == {}
    assert total["bytes_received"] == 300 * len("hello")
    assert report["connections_opened"] == 8
    assert answered(server) == before + 300 + 1, "and one trial before the load"
    assert 0 < total["answer_p50_ms"] <= total["answer_p99_ms"] <= total["answer_max_ms"]
    assert total["answered_per_s"] == pytest.approx(300 / total["seconds"])
    assert sum(slot["answered"] for slot in report["timeline"]) == 300


def test_a_closed_loop_ends_in_time_and_thinks_between_requests(server: Server, bench) -> None:
    think = ("--think", "5ms:exponential", "--threads", "2", "--warm-up", "0")
    total = bench(server.url("/predictions/echo"), "-c", "4", "-d", "500ms", "--body", "x", *think)["total"]
    assert (total["seconds"], total["lost"]) == (0.5, 0)
    assert 0 < total["answered"] <= 4 * 500 / 5 * 2, "four clients that think for 5 ms send 400 at most, in the mean"


@pytest.mark.parametrize("order", ["last-freed", "longest-free", "random"])
def test_an_open_loop_sends_what_is_due_whatever_happens(server: Server, bench, order: str) -> None:
    pool = ("--pool", "16", "--pool-order", order, "--pools", "2", "--threads", "2")
    load = ("--rate", "400", "-n", "200", "--arrivals", "constant")
    report = bench(server.url("/predictions/echo"), *load, *pool, "--body", "x", "--objective", "100s", *LATE)
    total = report["total"]
    assert (report["mode"], total["rate"], total["seconds"]) == ("open", 400.0, 0.5)
    assert (total["offered"], total["answered"], total["good"]) == (200, 200, 200)
    assert report["connections_opened"] <= 32


def test_steps_are_reported_one_by_one_and_drawn(server: Server, bench, tmp_path: Path) -> None:
    picture = tmp_path / "latency.svg"
    flags = ("--phase", "300x500ms", "100x0.5", "--warm-up", "100ms", "--svg", picture, "--objective", "50ms")
    report = bench(server.url("/predictions/echo"), "--body", "x", *flags, *LATE)
    rates = [(phase["rate"], phase["seconds"]) for phase in report["phases"]]
    assert rates == [(300.0, 0.5), (100.0, 0.5)]
    assert sum(phase["offered"] for phase in report["phases"]) == report["total"]["offered"]
    assert report["phases"][0]["offered"] > report["phases"][1]["offered"]
    root = xml.etree.ElementTree.fromstring(picture.read_text())
    assert root.tag.endswith("svg") and "nan" not in picture.read_text().lower()


def test_a_recording_is_played(server: Server, bench, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("offset_s\n" + "".join(f"{at / 100}\n" for at in range(50)))
    report = bench(server.url("/predictions/echo"), "--trace", trace, "--body", "x", "--warm-up", "0", *LATE)
    assert report["total"]["answered"] == 50


def test_bodies_come_from_files_in_turn(server: Server, bench, tmp_path: Path) -> None:
    bodies = tmp_path / "bodies"
    bodies.mkdir()
    for size in (1, 10, 100_000):
        (bodies / f"{size:06}").write_bytes(b"x" * size)
    total = bench(server.url("/predictions/echo"), "-c", "2", "-n", "30", "--body-file", bodies, *LATE)["total"]
    assert (total["answered"], total["bytes_received"]) == (30, 10 * (1 + 10 + 100_000))


def test_grpc_in_both_loops(server: Server, bench) -> None:
    before = answered(server)
    url = f"grpc://{grpc_address(server)}/echo"
    report = bench(url, "-c", "2", "--streams", "8", "-n", "200", "--body", "x", *LATE)
    assert (report["protocol"], report["connections_opened"]) == ("grpc", 2)
    assert report["total"]["statuses"] == {"OK": 200}
    report = bench(url, "--rate", "400", "-n", "100", "--body", "x", *LATE)
    assert report["total"]["statuses"] == {"OK": 100}
    assert report["connections_opened"] == 1, "one connection for everybody"
    assert answered(server) == before + 302


def test_tensors_go_over_grpc_as_open_inference_has_it(server: Server, bench, tmp_path: Path) -> None:
    url = f"grpc://{grpc_address(server)}/same"
    assert bench(url, "-c", "2", "-n", "20", "--input", "x:FP32:3,4", *LATE)["total"]["statuses"] == {"OK": 20}
    numbers = tmp_path / "numbers"
    numbers.write_bytes(bytes(16))
    assert bench(url, "-c", "2", "-n", "5", "--input", f"x:FP32:1,4:{numbers}", *LATE)["total"]["answered"] == 5


def test_tensors_go_over_http_with_the_binary_extension(binary: Path) -> None:
    seen: list[bytes] = []
    with scripted(lambda _: OK, seen) as url:
        done = run(binary, f"{url}v2/models/m/infer", "-c", "1", "-n", "2", "--input", "x:FP32:1,4:zeros", *LATE)
    assert done.returncode == 0, done.stderr
    head, _, body = seen[-1].partition(b"\r\n\r\n")
    length = int(re.search(rb"inference-header-content-length: (\d+)", head)[1])
    [tensor] = json.loads(body[:length])["inputs"]
    assert tensor == {"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
    assert body[length:] == bytes(16)
    assert head.startswith(b"POST /v2/models/m/infer HTTP/1.1\r\n")


def test_tls_is_checked_unless_it_is_told_not_to(binary: Path, tmp_path: Path) -> None:
    own = self_signed(tmp_path, "-addext", "basicConstraints=critical,CA:FALSE")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert, own.key)
    with scripted(lambda _: OK, tls=context) as url:
        url = url.replace("http:", "https:")
        for trust in (["--insecure"], ["--ca", own.cert]):
            done = run(binary, url, "-c", "2", "-n", "10", *trust, *LATE)
            assert done.returncode == 0 and "answered    10 of 10" in done.stdout, done.stderr
        done = run(binary, url, "-n", "1")
        assert done.returncode == 1 and "TLS failed" in done.stderr and "--insecure" in done.stderr


def test_http2_carries_plain_requests(server: Server, bench, tmp_path: Path) -> None:
    # The server speaks HTTP/2 on its gRPC port; a message with its frame is a body like any other.
    message = b"\x0a\x04echo\x1a\x09\x0a\x04data\x12\x01x"
    body = tmp_path / "message"
    body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    path = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
    url = f"http://{grpc_address(server)}{path}"
    flags = ("--protocol", "http2", "--content-type", "application/grpc", "--header", "te: trailers")
    report = bench(url, "-c", "2", "--streams", "4", "-n", "100", "--body-file", body, *flags, *LATE)
    assert (report["protocol"], report["total"]["statuses"]) == ("http2", {"200": 100})
    assert report["total"]["bytes_received"] > 0


def test_a_first_request_that_fails_is_explained(server: Server, binary: Path) -> None:
    for url, message, hint in [
        (server.url("/predictions/ghost"), "was answered with 404", "--keep-going"),
        (server.url(""), "was answered with 4", "/predictions/MODEL"),
        (f"grpc://{grpc_address(server)}/ghost", "NOT_FOUND", "--keep-going"),
        ("http://127.0.0.1:1/x", "nobody listens at", "start the server first"),
    ]:
        done = run(binary, url, "--body", "x", "-n", "1")
        assert done.returncode == 1 and message in done.stderr and hint in done.stderr, done.stderr
    for wrong in [("--rate", "0"), ("--rate", "5", "-c", "3"), ("--think", "5ms:long"), ("--protocol", "oip-binary")]:
        assert run(binary, server.url("/ping"), *wrong).returncode == 64, wrong


def test_the_summary_is_short_and_complete(server: Server, binary: Path) -> None:
    done = run(binary, server.url("/predictions/echo"), "-c", "2", "-n", "20", "--body", "x", "--objective", "100s")
    assert done.returncode == 0
    lines = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert lines == ["answered", "good", "latency", "connections", "generator"]


def test_a_plan_measures_a_running_model_and_writes_what_it_proposes(start, store: Store, binary: Path) -> None:
    server = start("serve", store.mar("echo"), "--batch-size", "8")
    made = {name: server.home / name for name in ("proposed.yaml", "plan.html")}
    measured = [server.url("/predictions/echo"), "--body", "x", "--step", "300ms", "--max-batch", "8"]
    measured += ["--management", server.urls["management"], "--rate", "5", "--p99", "60s", "--requests", "500"]
    files = ["--write", made["proposed.yaml"], "--report", made["plan.html"]]
    done = subprocess.run([binary, "plan", *measured, *files], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 worker with max_batch_size ")
    page = made["plan.html"].read_text()
    assert page.count("<svg") == 2 and "p99, predicted" in page and "p99, measured now" in page
    config = subprocess.run(
        [binary, "config", "serve", "--config", made["proposed.yaml"], store.path / "echo.mar"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert config.returncode == 0 and "proposed.yaml" in config.stdout, config.stderr


def test_a_server_that_is_killed_leaves_errors_by_kind(start, store: Store, binary: Path) -> None:
    server = start("serve", store.mar("echo"), *FLAGS)
    command = [binary, "bench", server.url("/predictions/echo"), "-c", "1", "-d", "60s", "--body", "x"]
    command += ["--warm-up", "0"]
    process = subprocess.Popen([*command, "--json", "-", "--quiet"], stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: answered(server) > 10, "the load runs")
        before = sockets(process.pid)
        server.kill()
        until(lambda: sockets(process.pid) < before, "its connection is lost")
        process.send_signal(2)
        report = json.loads(process.communicate(timeout=BENCH_SECONDS)[0])
    finally:
        process.kill()
    assert process.returncode == 0
    assert report["total"]["answered"] > 0 and report["total"]["seconds"] < 60
    errors = report["total"]["errors"]
    assert errors.keys() <= {"connection refused", "connection reset", "closed before the answer"}
    assert report["total"]["lost"] == sum(errors.values()) > 0


def sockets(pid: int) -> int:
    """How many sockets a process has."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += os.readlink(link).startswith("socket:")
    return count


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REJECTED = b'{"code": 503, "message": "It is full. [reason: queue_full]"}'


@contextmanager
def scripted(
    answer: Callable[[int], bytes | None], seen: list[bytes] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A server that gives its n-th request this answer; none closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    count, lock = [0], threading.Lock()

    def talk(connection: socket.socket) -> None:
        with suppress(OSError), tls.wrap_socket(connection, server_side=True) if tls else connection as connection:
            while request := connection.recv(65_536):
                if seen is not None:
                    seen.append(request)
                with lock:
                    number, count[0] = count[0], count[0] + 1
                reply = answer(number)
                if reply is None:
                    return
                connection.sendall(reply)
                if b"connection: close" in reply.lower():
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (OK, {"answered": 40, "lost": 0, "bytes_received": 80}),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            {"answered": 40, "bytes_received": 120},
        ),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end", {"answered": 40, "bytes_received": 400}),
        (
            b"HTTP/1.1 503 No\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%s" % (len(REJECTED), REJECTED),
            {"answered": 0, "rejected": 40, "explained": 40, "reasons": {"queue_full": 40}, "statuses": {"503": 40}},
        ),
        (b"HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n", {"answered": 0, "expired": 40, "rejected": 0}),
        (b"SSH-2.0-OpenSSH_9.2\r\n", {"answered": 0, "lost": 40, "errors": {"malformed answer": 40}}),
        (None, {"answered": 0, "lost": 40, "errors": {"closed before the answer": 40}}),
    ],
)
def test_every_kind_of_answer_is_counted(binary: Path, reply: bytes | None, expected: dict[str, Any]) -> None:
    with scripted(lambda _: reply) as url:
        done = run(binary, url, "-c", "4", "-n", "40", "--keep-going", "--json", "-", "--quiet", *LATE)
    total = json.loads(done.stdout)["total"]
    assert {key: total[key] for key in expected} == expected
    assert done.returncode == (0 if expected["answered"] else 1)
    assert total["offered"] == 40


def test_an_answer_that_does_not_come_is_a_timeout_from_when_it_was_due(binary: Path) -> None:
    silent = threading.Event()
    with scripted(lambda number: OK if number % 2 else (silent.wait(), None)[1]) as url:
        flags = ("--rate", "1000", "-n", "20", "--pool", "1", "--timeout", "200ms", "--keep-going")
        done = run(binary, url, *flags, "--json", "-", "--quiet")
        silent.set()
    total = json.loads(done.stdout)["total"]
    # The first one holds the only connection until its time is over, and that of the others with it.
    assert total["offered"] == 20
    assert total["errors"]["timeout"] >= 1
    assert sum(total["errors"].values()) + total["answered"] == 20
    assert total["errors"].get("timeout before a connection was free", 0) > 0
