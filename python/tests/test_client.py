"""The HTTP clients against a scripted server: what they send, what they make of answers, when they ask again."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import jitney
from jitney.client.requests import ClientRequest, Reply, Retry, Unreachable

UNSUPPORTED = (503, {"Retry-After": "0"}, b'{"code": 503, "type": "ServiceUnavailableException", "message": "full"}')
JSON = {"Content-Type": "application/json"}


class Script(ThreadingHTTPServer):
    """Answers with prepared replies, in order, and keeps the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Scripted)
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Scripted(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        script: Any = self.server
        script.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        status, headers, said = script.answers.pop(0)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(said)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def script() -> Iterator[Script]:
    server = Script()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=[jitney.Client, jitney.AsyncClient])
def ask(request: pytest.FixtureRequest, script: Script) -> Callable[..., Any]:
    """Calls a method of a client and waits for it, whichever kind it is."""

    def ask(method: str, *arguments: Any, options: dict[str, Any] | None = None, **named: Any) -> Any:
        async def waited() -> Any:
            async with jitney.AsyncClient(script.url, **(options or {})) as client:
                return await getattr(client, method)(*arguments, **named)

        if inspect.iscoroutinefunction(request.param.predict):
            return asyncio.run(waited())
        with jitney.Client(script.url, **(options or {})) as client:
            return getattr(client, method)(*arguments, **named)

    return ask


def test_a_prediction_says_what_it_is_and_reads_the_answer_by_its_type(ask, script):
    for data, sent, content_type in [
        (b"x", b"x", "application/octet-stream"),
        ("grün", "grün".encode(), "text/plain; charset=utf-8"),
        ({"a": [1]}, b'{"a": [1]}', "application/json"),
    ]:
        script.answers = [(200, JSON, b'{"y": 2}')]
        assert ask("predict", "m", data, options={"token": "key"}) == {"y": 2}
        method, path, headers, body = script.requests.pop()
        assert (method, path, body, headers["content-type"]) == ("POST", "/predictions/m", sent, content_type)
        assert headers["authorization"] == "Bearer key"
    script.answers = [(200, {"Content-Type": "text/plain"}, b"hello"), (200, {}, b"\0")]
    assert ask("predict", "m", version="2", timeout=0.25, priority="bulk") == "hello"
    _, path, headers, _ = script.requests.pop()
    assert (path, headers["x-jitney-timeout-ms"], headers["x-jitney-priority"]) == ("/predictions/m/2", "250", "bulk")
    assert ask("predict", "m", endpoint="price") == b"\0"
    assert script.requests.pop()[1] == "/m/price"


def test_a_rejection_is_retried_after_the_servers_delay(ask, script):
    script.answers = [UNSUPPORTED, UNSUPPORTED, (200, JSON, b"1")]
    assert ask("predict", "m", 0) == 1
    assert len(script.requests) == 3


def test_a_rejection_is_raised_after_enough_tries(ask, script):
    script.answers = [UNSUPPORTED] * 2
    with pytest.raises(jitney.Overloaded, match="full") as caught:
        ask("predict", "m", 0, options={"retry": Retry(attempts=2)})
    assert caught.value.status == 503
    assert script.answers == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, jitney.RemoteError), (404, jitney.NotFound), (408, jitney.Expired), (500, jitney.RemoteError)],
)
def test_failures_are_raised_once_with_the_servers_message(ask, script, status, kind):
    script.answers = [(status, JSON, json.dumps({"code": status, "type": "T", "message": "why"}).encode())]
    with pytest.raises(kind, match="why") as caught:
        ask("predict", "m", 0)
    assert (caught.value.status, caught.value.kind) == (status, "T")
    assert len(script.requests) == 1


def test_a_request_that_does_not_fit_is_bad_input(ask, script):
    script.answers = [(400, JSON, b'{"code": 400, "type": "BadRequestException", "message": "why"}')]
    with pytest.raises(jitney.BadInput, match="why") as caught:
        ask("predict", "m", 0)
    assert isinstance(caught.value, jitney.RemoteError)
    assert caught.value.status == 400


def test_management_is_typed(ask, script):
    done = (200, JSON, b'{"status": "done"}')
    script.answers = [done] * 4
    assert ask("register", "m.mar", initial_workers=1, synchronous=True) == "done"
    assert ask("scale", "m", min_worker=2) == "done"
    assert ask("set_default", "m", "2.0") == "done"
    assert ask("unregister", "m", "1.0") == "done"
    assert [(method, path) for method, path, _, _ in script.requests] == [
        ("POST", "/models?url=m.mar&initial_workers=1&synchronous=true"),
        ("PUT", "/models/m?min_worker=2"),
        ("PUT", "/models/m/2.0/set-default"),
        ("DELETE", "/models/m/1.0"),
    ]
    pages = [{"nextPageToken": "1", "models": [{"modelName": "a", "modelUrl": "x"}]}, {"models": []}]
    script.answers = [(200, JSON, json.dumps(page).encode()) for page in pages]
    assert ask("models") == {"a": "x"}


def test_traffic_is_set_shown_and_ended(ask, script):
    split = {"shares": {"1.0": 90, "2.0": 10}, "sticky": "key", "return": {"errors": "+1%"}}
    script.answers = [(200, JSON, json.dumps(split).encode())] * 4
    assert ask("traffic", "m") == split
    assert ask("set_traffic", "m", split["shares"], sticky="key", returns={"errors": "+1%"}) == split
    ask("set_traffic", "m", shadow={"version": "2.0"})
    ask("set_traffic", "m")
    assert [(method, path, json.loads(body or b"null")) for method, path, _, body in script.requests] == [
        ("GET", "/models/m/traffic", None),
        ("PUT", "/models/m/traffic", split),
        ("PUT", "/models/m/traffic", {"shares": {}, "shadow": {"version": "2.0"}}),
        ("DELETE", "/models/m/traffic", None),
    ]
    with pytest.raises(jitney.DefinitionError, match="sticky need shares or a shadow"):
        ask("set_traffic", "m", sticky="key")


def test_an_unreachable_server_is_reported(ask, script):
    free = script.url.rpartition(":")[0] + ":1"
    with pytest.raises(jitney.Disconnected):
        jitney.Client(free, retry=Retry(attempts=1)).predict("m")
    with pytest.raises(jitney.Disconnected):
        asyncio.run(jitney.AsyncClient(free, retry=Retry(attempts=1)).predict("m"))


def test_only_what_cannot_harm_is_tried_again():
    retry, post, get = Retry(attempts=3, longest=5), ClientRequest("POST", "/"), ClientRequest("GET", "/")
    assert retry.after_error(post, ConnectionResetError(), 1) is None
    assert retry.after_error(get, ConnectionResetError(), 1) == 0.1
    assert retry.after_error(post, Unreachable(), 2) == 0.2
    assert retry.after_error(post, Unreachable(), 3) is None
    busy = Reply(503, {"retry-after": "2"}, b"")
    assert 2 <= retry.after_reply(busy, 1) <= 2.2
    assert retry.after_reply(busy, 3) is None
    assert retry.after_reply(Reply(503, {}, b""), 1) is None
    assert retry.after_reply(Reply(503, {"retry-after": "6"}, b""), 1) is None
