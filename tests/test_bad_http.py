"""Requests that no decent client sends: each gets a clear error in the documented shape, and harms no other client."""

from __future__ import annotations

import socket

import pytest
import requests

from harness.client import parse, raw, read_all, request
from harness.server import Server
from harness.shape import assert_problem
from harness.wait import until

POST = b"POST /predictions/echo HTTP/1.1\r\nHost: x\r\n"
LIMIT = 6_553_500

MALFORMED = {
    "no HTTP at all": b"GARBAGE\r\n\r\n",
    "an unknown version": b"GET /ping HTTP/9.9\r\nHost: x\r\n\r\n",
    "a header without a colon": b"GET /ping HTTP/1.1\r\nHost x\r\n\r\n",
    "a zero byte in a header": b"GET /ping HTTP/1.1\r\nHost: a\0b\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\nabc",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "a bare end of the first line": b"GET /ping HTTP/1.1\nHost: x\r\n\r\n",
    "a bare end behind an empty line": b"\r\nGET /ping HTTP/1.1\nHost: x\r\n\r\n",
    "a bare end of a header": b"GET /ping HTTP/1.1\r\nHost: x\nX: y\r\n\r\n",
    "a bare end of the head": b"GET /ping HTTP/1.1\r\nHost: x\r\n\n",
    "bare ends before chunks": POST + b"X: y\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "chunked in two headers": POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n1\r\na\r\n0\r\n\r\n",
    "an unknown transfer encoding": POST + b"Transfer-Encoding: gzip\r\n\r\nabc",
    "a chunk of no size": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 32,
}


@pytest.fixture(autouse=True)
def unharmed(shared: Server):
    """After every bad request the next good one is answered by the same server."""
    yield
    assert shared.predict("echo", b"still here").content == b"still here"
    assert shared.process.poll() is None


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_http_is_rejected_in_the_documented_shape(shared: Server, name: str) -> None:
    (reply,) = parse(raw(shared.address, MALFORMED[name]))
    assert_problem(reply, 400, "BadRequestException", "Invalid HTTP message")


def test_a_bare_end_of_a_line_is_found_in_a_later_request_too(shared: Server) -> None:
    """The first request has chunks, so another reader than for plain requests serves the connection from then on."""
    first = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n\na\r\n0\r\n\r\n"
    with socket.create_connection(shared.address) as connection:
        connection.sendall(first)
        answer = b""
        while not answer.endswith(b"\r\n\r\n\na"):
            answer += connection.recv(65536)
        connection.sendall(b"GET /ping HTTP/1.1\nHost: x\r\n\r\n")
        (reply,) = parse(read_all(connection))
    assert_problem(reply, 400, "BadRequestException", "must end with CR LF")


def test_the_log_tells_of_malformed_http_and_who_sent_it(shared: Server) -> None:
    """One line a second, so another client of these tests may have had this second's."""
    clients = []

    def told() -> bool:
        with socket.create_connection(shared.address) as connection:
            clients.append(f"127.0.0.1:{connection.getsockname()[1]}")
            connection.sendall(MALFORMED["no HTTP at all"])
            read_all(connection)
        return any(client in shared.log for client in clients)

    until(told, "the log names the client")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /ping HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", 431),
        (b"GET /ping HTTP/1.1\r\n" + b"".join(b"X%d: 1\r\n" % number for number in range(300)) + b"\r\n", 431),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    ],
    ids=["a huge header", "too many headers", "a huge path"],
)
def test_a_head_beyond_the_limits_is_rejected(shared: Server, head: bytes, status: int) -> None:
    (reply,) = parse(raw(shared.address, head))
    assert reply.status_code == status
    assert reply.json()["code"] == status


def test_smuggled_requests_are_not_served(shared: Server) -> None:
    """With both a length and chunks the connection ends after the first request, so nothing can hide behind it."""
    smuggled = (
        POST + b"Content-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert len(parse(raw(shared.address, smuggled))) == 1


def test_a_body_that_says_it_is_too_large_is_rejected(shared: Server) -> None:
    reply = shared.predict("echo", b"x" * (LIMIT + 1))
    assert_problem(reply, 413, "RequestEntityTooLargeException", f"larger than {LIMIT} bytes")


def test_a_body_at_the_limit_is_served(shared: Server) -> None:
    assert len(shared.predict("echo", b"x" * LIMIT).content) == LIMIT


def test_a_chunked_body_that_becomes_too_large_is_rejected(shared: Server) -> None:
    def pieces():
        for _ in range(7):
            yield b"x" * 1_000_000

    reply = requests.post(shared.url("/predictions/echo"), data=pieces(), timeout=120)
    assert_problem(reply, 413, "RequestEntityTooLargeException")


def test_the_rejection_of_an_announced_giant_comes_before_its_body(shared: Server) -> None:
    head = POST + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"
    (reply,) = parse(raw(shared.address, head))
    assert_problem(reply, 413, "RequestEntityTooLargeException")


@pytest.mark.parametrize(
    ("content_type", "body", "words"),
    [
        ("multipart/form-data; boundary=abc", b"--nope", "multipart"),
        (
            "multipart/form-data; boundary=abc",
            b"--abc\r\nContent-Disposition: form-data; name=a\r\n\r\ncut",
            "multipart",
        ),
    ],
)
def test_a_broken_form_is_rejected(shared: Server, content_type: str, body: bytes, words: str) -> None:
    reply = shared.predict("echo", body, headers={"Content-Type": content_type})
    assert_problem(reply, 400, "BadRequestException", words)


def test_a_multipart_type_without_a_boundary_is_a_plain_body(shared: Server) -> None:
    reply = shared.predict("echo", b"--x", headers={"Content-Type": "multipart/form-data"})
    assert (reply.status_code, reply.content) == (200, b"--x")


def test_unknown_models_versions_and_paths_are_told_apart(shared: Server) -> None:
    for path, kind, words in (
        ("/predictions/nobody", "ModelNotFoundException", "Model not found: nobody"),
        ("/predictions/echo/9.9", "ModelVersionNotFoundException", "Model version: 9.9 does not exist for model: echo"),
        ("/predictions", "ResourceNotFoundException", "There is no /predictions on this port"),
        ("/no/such/path", "ResourceNotFoundException", "There is no /no/such/path on this port"),
        ("/predictions/%ff%fe", "ModelNotFoundException", "Model not found"),
    ):
        assert_problem(requests.post(shared.url(path), data=b"", timeout=120), 404, kind, words)


def test_unfit_methods_are_rejected(shared: Server) -> None:
    for method, path, api in (
        ("POST", "/", "inference"),
        ("PATCH", "/models", "management"),
        ("POST", "/models/echo", "management"),
    ):
        reply = requests.request(method, shared.url(path, api), timeout=120)
        assert_problem(reply, 405, "MethodNotAllowedException", f"does not take {method}; it takes ")


@pytest.mark.parametrize(
    ("header", "value"),
    [("x-jitney-timeout-ms", "soon"), ("x-jitney-timeout-ms", "-1"), ("x-jitney-priority", "urgent")],
)
def test_headers_that_make_no_sense_are_rejected(shared: Server, header: str, value: str) -> None:
    assert_problem(shared.predict("echo", b"", headers={header: value}), 400, "BadRequestException", header)


def test_management_requests_that_make_no_sense_are_rejected(shared: Server) -> None:
    for method, path, query, status, kind, words in (
        ("POST", "/models", {}, 400, "BadRequestException", "Parameter url is required."),
        ("POST", "/models", {"url": ""}, 404, "ModelNotFoundException", "empty url"),
        ("POST", "/models", {"url": "nowhere.mar"}, 404, "ModelNotFoundException", "Model not found at: nowhere.mar"),
        (
            "POST",
            "/models",
            {"url": "../echo.mar"},
            404,
            "ModelNotFoundException",
            "Relative path is not allowed in url",
        ),
        (
            "POST",
            "/models",
            {"url": "file:///etc/passwd"},
            404,
            "ModelNotFoundException",
            "does not match any allowed URL",
        ),
        (
            "POST",
            "/models",
            {"url": "echo.mar", "runtime": "cobol", "model_name": "c"},
            400,
            "BadRequestException",
            "RuntimeType value: cobol",
        ),
        (
            "PUT",
            "/models/echo",
            {"min_worker": 2, "max_worker": 1},
            400,
            "BadRequestException",
            "max_worker cannot be less",
        ),
        ("PUT", "/models/nobody", {"min_worker": 1}, 404, "ModelNotFoundException", "Model not found: nobody"),
        ("DELETE", "/models/nobody", {}, 404, "ModelNotFoundException", "Model not found: nobody"),
        (
            "PUT",
            "/models/echo/9.9/set-default",
            {},
            404,
            "ModelVersionNotFoundException",
            "Model version 9.9 does not exist",
        ),
    ):
        assert_problem(shared.manage(method, path, **query), status, kind, words)


def test_pipelined_requests_are_answered_in_order(shared: Server) -> None:
    stream = b"".join(request("/predictions/echo", b"%d" % number) for number in range(20))
    answers = raw(shared.address, stream + request("/predictions/echo", b"last", "Connection: close"))
    assert [reply.content for reply in parse(answers)] == [b"%d" % number for number in range(20)] + [b"last"]


def test_hundreds_of_silent_connections_keep_no_client_out(shared: Server) -> None:
    silent = [socket.create_connection(shared.address) for _ in range(300)]
    try:
        for connection in silent[::2]:
            connection.sendall(b"POST /predictions/echo HTTP/1.1\r\nHos")
        assert shared.predict("echo", b"me").content == b"me"
    finally:
        for connection in silent:
            connection.close()
