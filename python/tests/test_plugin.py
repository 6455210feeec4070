"""The plugin host without a server: what files declare, what functions are given, what becomes of their answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from jitney.plugin import Allow, Deny, Request, Response, authorize, declare, endpoint, host


class FakeContext:
    """As much of a context as the host touches."""

    def __init__(self, **config: Any) -> None:
        self.model_yaml_config = config
        self.status: tuple[int, str] | None = None
        self.headers: dict[str, str] = {}

    def get_all_request_header(self, idx: int) -> dict[str, Any]:
        return {"x-user": "me", "ask": {"content-type": ""}, "body": {"content-type": ""}}

    def set_response_status(self, code: int, phrase: str, idx: int) -> None:
        self.status = (code, phrase)

    def set_response_header(self, idx: int, name: str, value: str) -> None:
        self.headers[name] = value


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> declare.Declared:
    """Every test declares into a list of its own."""
    empty = declare.Declared()
    monkeypatch.setattr(declare, "declared", empty)
    monkeypatch.setattr(host, "declared", empty)
    return empty


def ask(kind: str, context: FakeContext | None = None, **more: Any) -> Any:
    """What the host answers to one row."""
    facts = {"method": "GET", "path": "/x", "query_string": "a=1&a=2", "client": "1.2.3.4:5", "protocol": "http"}
    row = {"ask": json.dumps({"ask": kind, "listener": "inference", **facts, **more}).encode(), "body": b'{"n": 1}'}
    [answer] = asyncio.run(host.handle([row], context or FakeContext()))  # type: ignore[arg-type]
    return answer


def test_a_file_declares_when_it_is_loaded(tmp_path: Path, fresh: declare.Declared) -> None:
    file = tmp_path / "extras.py"
    file.write_text('''
from jitney.plugin import endpoint

@endpoint('/x/', ['get', 'PUT'])
def x(request):
    """Says
    x.

    And more."""
''')
    assert asyncio.run(host.handle(None, FakeContext(plugin=str(file)))) is None  # type: ignore[arg-type]
    assert ask("describe") == {
        "endpoints": [{"path": "/x", "methods": ("GET", "PUT"), "listener": "inference", "description": "Says x."}],
        "authorize": False,
    }


def test_a_file_that_declares_nothing_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ValueError, match="declares neither"):
        host.load(str(tmp_path / "empty.py"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "x"}, "begin with a slash"),
        ({"path": "/"}, "name something"),
        ({"path": "/x", "listener": "metrics"}, "none of inference, management"),
        ({"path": "/x", "methods": ["FETCH"]}, "must be some of"),
        ({"path": "/x", "methods": []}, "must be some of"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        endpoint(**arguments)


def test_an_endpoint_is_given_the_request() -> None:
    seen: list[Request] = []

    @endpoint("/x")
    def x(request: Request) -> Response:
        seen.append(request)
        return Response({"ok": True}, 201, {"X-A": "b"})

    context = FakeContext()
    assert ask("endpoint", context, endpoint="/x") == {"ok": True}
    assert (context.status, context.headers) == ((201, ""), {"Content-Type": "application/json", "X-A": "b"})
    [request] = seen
    assert (request.query, request.json(), request.client) == ({"a": "2"}, {"n": 1}, "1.2.3.4:5")
    assert request.headers == {"x-user": "me"}, "our own parameters are none of its headers"


@pytest.mark.parametrize(("answer", "body"), [("text", "text"), (b"raw", b"raw"), (None, b""), ([1], [1])])
def test_an_endpoint_may_return_a_bare_body(answer: Any, body: Any) -> None:
    @endpoint("/x")
    async def x(request: Request) -> Any:
        return answer

    assert ask("endpoint", endpoint="/x") == body


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (True, {"allow": True}),
        (Allow(), {"allow": True}),
        (Allow(tenant="gold"), {"allow": True, "tenant": "gold"}),
        (False, {"allow": False, "status": 403, "message": "Access denied."}),
        (Deny(401, "no"), {"allow": False, "status": 401, "message": "no"}),
    ],
)
def test_a_decision_is_returned(verdict: Any, said: dict[str, Any]) -> None:
    authorize(lambda request: verdict)
    assert ask("authorize") == said


@pytest.mark.parametrize("verdict", [None, 1, "yes", {"allow": True}, object()])
def test_anything_but_a_clear_decision_is_raised(verdict: Any) -> None:
    authorize(lambda request: verdict)
    with pytest.raises(TypeError, match="must return True, False, Allow or Deny"):
        ask("authorize")


def test_authorization_is_told_what_the_request_is_about_to_do() -> None:
    seen: list[Request] = []

    @authorize
    def check(request: Request) -> bool:
        seen.append(request)
        return True

    ask("authorize", operation="predict", model="m", version="2.0", workflow=None)
    ask("authorize")
    told = [(request.operation, request.model, request.version, request.workflow) for request in seen]
    assert told == [("predict", "m", "2.0", None), ("", None, None, None)], "an older server tells less"


@pytest.mark.parametrize("tenant", ["", "x" * 129, "gr\u00fcn"])
def test_invalid_tenants_are_rejected_where_they_are_named(tenant: str) -> None:
    with pytest.raises(ValueError, match="1 to 128 ASCII"):
        Allow(tenant)


def test_invalid_statuses_are_rejected_where_they_are_made() -> None:
    with pytest.raises(ValueError, match="from 400 to 499, not 200"):
        Deny(200)
    with pytest.raises(ValueError, match="from 200 to 599, not 100"):
        Response(status=100)
