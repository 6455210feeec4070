"""Clients that send or read slowly: the memory they take is bounded, they are cut first, others are served."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
from collections.abc import Iterator

import pytest
import requests

from harness.archives import Store
from harness.client import SOCKET_SECONDS, parse, read_all
from harness.http2 import Http2, grpc_address, message_head
from harness.processes import resident_bytes
from harness.server import Server
from harness.shape import assert_problem
from harness.wait import until

MIB = 1 << 20
LIMIT = 8 * MIB
BODY = 1_000_000
BODIES = 20

LARGE = """
def handle(data, context):
    return [b"x" * int(bytes(row["body"])) for row in data or []]
"""


@pytest.fixture(scope="module")
def server(binary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with little memory for requests and short times."""
    home = tmp_path_factory.mktemp("memory")
    store = Store(home / "store")
    models = [store.mar("echo"), store.mar("large", source=LARGE)]
    short = ["--max-request-memory", str(LIMIT), "--body-timeout", "30s", "--write-timeout", "3s"]
    server = Server(binary, home / "server", ["serve", *models, *short], store=store)
    yield server.started()
    server.end()


@pytest.fixture(autouse=True)
def given_back(server: Server) -> Iterator[None]:
    """Whatever a test did, the account is empty soon after, and the next request is served."""
    yield
    until(lambda: number(server, "jitney_request_memory_bytes") == 0, "all memory is given back")
    assert server.predict("echo", b"still here").content == b"still here"


def number(server: Server, name: str, reason: str = "") -> float:
    """A number of the whole server."""
    page = requests.get(server.url("/metrics", "metrics"), timeout=SOCKET_SECONDS).text
    line = re.search(rf"^{name}{{.*{f'reason=.{reason}.' if reason else ''}.*}} (.*)$", page, re.MULTILINE)
    assert line, page
    return float(line[1])


def cut(server: Server, reason: str) -> float:
    """How many clients were cut so far."""
    return number(server, "jitney_clients_cut_total", reason)


def begin(server: Server, length: int, sent: int) -> socket.socket:
    """Sends the beginning of a body."""
    connection = socket.create_connection(server.address, timeout=SOCKET_SECONDS)
    head = f"POST /predictions/echo HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(head.encode())
    with contextlib.suppress(OSError):  # Rejected already; the answer tells.
        connection.sendall(b"x" * sent)
    return connection


def test_half_sent_bodies_stay_within_the_limit_and_the_slowest_make_room(server: Server) -> None:
    rejected = cut(server, "room")
    bodies = [begin(server, BODY, BODY - 1000) for _ in range(BODIES)]
    # Six fit into three quarters of the limit; the others get an answer or take the place of the first.
    until(lambda: cut(server, "room") - rejected >= BODIES - 8, "those without room are told")
    assert number(server, "jitney_request_memory_bytes") <= LIMIT
    # The others wait for nobody: once the half-sent bodies are a second old, they lose their memory to a new one.
    until(lambda: server.predict("echo", b"y" * BODY).content == b"y" * BODY, "a new client is served")
    for connection in bodies:
        connection.close()


def test_a_body_that_is_cut_is_told_why(server: Server) -> None:
    bodies = [begin(server, BODY, BODY - 1000) for _ in range(BODIES)]
    until(lambda: server.predict("echo", b"y" * BODY).status_code == 200, "a new client is served")
    # The others still wait for their last bytes.
    told = until(lambda: select.select(bodies, [], [], 0)[0], "those that were cut are told")
    answers = [answer for connection in told for answer in parse(read_all(connection))]
    for connection in bodies:
        connection.close()
    assert answers
    for answer in answers:
        assert_problem(answer, 503, "ServiceUnavailableException", "max_request_memory", "[reason: no_room]")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["connection"] == "close"


def test_a_body_that_only_claims_its_length_costs_little(server: Server) -> None:
    bodies = [begin(server, 6_000_000, 50) for _ in range(BODIES)]
    until(lambda: number(server, "jitney_request_memory_bytes") > 0, "they have begun")
    assert number(server, "jitney_request_memory_bytes") <= BODIES * 16 * 1024
    assert server.predict("echo", b"y" * BODY).status_code == 200
    for connection in bodies:
        connection.close()


def test_a_slow_body_that_keeps_coming_is_served_while_there_is_room(server: Server) -> None:
    connection = begin(server, 3000, 1000)
    until(lambda: number(server, "jitney_request_memory_bytes") > 0, "it has begun")
    connection.sendall(b"x" * 1000)
    connection.sendall(b"x" * 1000)
    assert connection.recv(64).startswith(b"HTTP/1.1 200")
    connection.close()


def test_half_sent_messages_of_one_grpc_connection_are_bounded_alike(server: Server) -> None:
    rejected = cut(server, "room")
    client = Http2(grpc_address(server))
    client.read()
    streams = range(1, 2 * BODIES, 2)
    for stream in streams:
        client.open(stream)
        client.send(stream, message_head(BODY) + b"x" * (BODY - 1000))
    until(lambda: cut(server, "room") - rejected >= BODIES - 8, "those without room are told")
    assert number(server, "jitney_request_memory_bytes") <= LIMIT
    until(lambda: server.predict("echo", b"y" * BODY).status_code == 200, "a new client is served")
    client.read_ready()
    assert len(client.ended) >= BODIES - 8
    client.close()


def test_a_grpc_message_that_only_claims_its_length_costs_little(server: Server) -> None:
    client = Http2(grpc_address(server))
    client.read()
    streams = range(1, 100, 2)
    for stream in streams:
        client.open(stream)
        assert client.send(stream, message_head(6_000_000) + b"x" * 50)
    until(lambda: number(server, "jitney_request_memory_bytes") == 50 * 16 * 1024, "all have begun")
    assert server.predict("echo", b"y" * BODY).status_code == 200
    client.close()


def ask(server: Server, size: int) -> socket.socket:
    """Asks for an answer of this size, and does not read it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(SOCKET_SECONDS)
    connection.connect(server.address)
    head = f"POST /predictions/large HTTP/1.1\r\nHost: test\r\nContent-Length: {len(str(size))}\r\n\r\n{size}"
    connection.sendall(head.encode())
    return connection


@pytest.mark.parametrize(("size", "reason"), [(LIMIT - MIB, "unread"), (2 * LIMIT, "room")])
def test_a_client_that_does_not_read_is_disconnected(server: Server, size: int, reason: str) -> None:
    before = cut(server, reason)
    connection = ask(server, size)
    until(lambda: number(server, "jitney_request_memory_bytes") >= size, "the answer counts")
    until(lambda: cut(server, reason) > before, "it is cut for not reading")
    until(lambda: number(server, "jitney_request_memory_bytes") == 0, "its memory is given back")
    assert len(read_all(connection)) < size, "the answer broke off"
    connection.close()


def test_an_answer_that_is_being_read_is_not_cut(server: Server) -> None:
    reply = server.predict("large", str(6 * MIB).encode())
    assert len(reply.content) == 6 * MIB


def test_a_grpc_client_that_opens_no_window_is_disconnected(server: Server) -> None:
    unread = cut(server, "unread")
    client = Http2(grpc_address(server), window=1000)
    client.read()
    client.open(1)
    # The model's name, and the input "body".
    fields = [(b"\x0a", b"large"), (b"\x1a", b"\x0a\x04body\x12\x06" + b"500000")]
    message = b"".join(tag + bytes([len(value)]) + value for tag, value in fields)
    client.send(1, message_head(len(message)) + message, end=True)
    until(lambda: cut(server, "unread") > unread, "it is cut for not reading")
    while client.read():
        pass
    client.close()


def test_a_form_stops_at_its_255th_field(server: Server) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    before = resident_bytes(server.pid)
    reply = server.predict("echo", b"a=&" * 300_000, headers=form)
    assert_problem(reply, 413, "RequestEntityTooLargeException", "more than 255 fields")
    assert resident_bytes(server.pid) - before < 16 * MIB
    boundary = {"Content-Type": "multipart/form-data; boundary=b"}
    part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    reply = server.predict("echo", part * 10_000 + b"--b--\r\n", headers=boundary)
    assert_problem(reply, 413, "RequestEntityTooLargeException", "more than 255 fields")


def test_a_handles_frame_without_room_fails_alone(server: Server) -> None:
    """Half of a frame takes memory; where there is none the call fails, and the next one is served."""
    holders = [begin(server, BODY, BODY - 1000) for _ in range(5)]
    until(lambda: number(server, "jitney_request_memory_bytes") >= 5 * (BODY - 1000), "little memory is left")
    connection = socket.create_connection(server.address, timeout=SOCKET_SECONDS)
    connection.sendall(
        b"GET /.jitney/handle HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: jitney-handle/1\r\n\r\n"
    )
    assert connection.recv(65536).startswith(b"HTTP/1.1 101")

    def call(number: int, body: bytes) -> bytes:
        names = [b"echo", b"", b"", b"text/plain"]
        payload = struct.pack("<IBB4H", 0, 0, 0, *map(len, names)) + b"".join(names) + body
        return struct.pack("<IBBHQ", len(payload), 1, 0, 0, number) + payload

    connection.sendall(call(1, b"z" * 6_000_000) + call(2, b"small"))
    frames = {}
    while len(frames) < 2:
        head = exactly(connection, 16)
        length, kind, _, _, number_of = struct.unpack("<IBBHQ", head)
        frames[number_of] = (kind, exactly(connection, length))
    assert frames[1][0] == 7 and struct.unpack("<H", frames[1][1][:2]) == (503,)
    assert frames[2][0] == 3 and frames[2][1].endswith(b"small")
    for one in [connection, *holders]:
        one.close()


def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes."""
    content = b""
    while len(content) < count:
        piece = connection.recv(count - len(content))
        assert piece, "the connection ended"
        content += piece
    return content


def test_a_body_has_a_time_in_all(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--body-timeout", "1s")
    connection = begin(server, 2000, 1000)
    answer = b""
    while b"\r\n\r\n" not in answer:
        connection.sendall(b"x")
        connection.settimeout(0.05)
        try:
            answer += connection.recv(65536)
        except TimeoutError:
            continue
    (reply,) = parse(answer)
    assert_problem(reply, 408, "RequestTimeoutException", "body_timeout")
    connection.close()


def test_a_request_size_beyond_a_workers_frame_is_bounded_at_the_start(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--max-request-size", "2GiB")
    server.logged("max_request_size=2147483648 is more than a worker can be given")
    head = b"POST /predictions/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1100000000\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(server.address, timeout=SOCKET_SECONDS) as connection:
        connection.sendall(head)
        (reply,) = parse(read_all(connection))
    assert_problem(reply, 413, "RequestEntityTooLargeException")
