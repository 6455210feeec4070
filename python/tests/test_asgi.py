"""ASGI applications as models: a small one that is written out here, without a framework."""

from __future__ import annotations

import asyncio
import json

import pytest

import jitney
from jitney.http.asgi import PIECES_MAX, AsgiModel


class App:
    """Notes what happens to it."""

    def __init__(self, starts: bool = True) -> None:
        self.starts = starts
        self.noted: list[str] = []
        self.background = asyncio.Event()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            await self.live(scope, receive, send)
            return
        body = (await receive())["body"]
        if scope["path"] == "/m/fail":
            raise KeyError("fail")
        await send(
            {"type": "http.response.start", "status": 201, "headers": [(b"set-cookie", b"a"), (b"set-cookie", b"b")]}
        )
        if scope["path"] == "/m/endless":
            await self.endless(receive, send)
        elif scope["path"] == "/m/pieces":
            for at in range(3):
                await send({"type": "http.response.body", "body": b"%d" % at, "more_body": True})
            await send({"type": "http.response.body"})
        else:
            told = {key: scope[key] for key in ("method", "path", "root_path", "client", "state")}
            text = json.dumps({**told, "query": scope["query_string"].decode(), "body": body.decode()})
            await send({"type": "http.response.body", "body": text.encode()})
            await self.background.wait()
            self.noted.append("background")

    async def live(self, scope, receive, send) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        scope["state"]["answer"] = 42
        kind = "complete" if self.starts else "failed"
        await send({"type": f"lifespan.startup.{kind}", "message": "no database"})
        if self.starts:
            assert (await receive())["type"] == "lifespan.shutdown"
            self.noted.append("shut down")
            await send({"type": "lifespan.shutdown.complete"})

    async def endless(self, receive, send) -> None:
        async def watch() -> None:
            self.noted.append((await receive())["type"])

        watching = asyncio.ensure_future(watch())
        try:
            while True:
                await send({"type": "http.response.body", "body": b"more", "more_body": True})
                self.noted.append("sent")
        finally:
            await watching


def request(path: str, **given) -> jitney.HttpRequest:
    return jitney.HttpRequest("POST", path, root_path="/m", client=("10.0.0.1", 7), **given)


async def pieces_of(response: jitney.Response) -> list[bytes]:
    return [piece async for piece in response.body]


def run(app: App, use) -> object:
    async def inside() -> object:
        model = AsgiModel(app)
        await model.setup()
        try:
            return await use(model)
        finally:
            await model.teardown()

    return asyncio.run(inside())


def test_an_application_lives_with_its_worker_and_works_on_after_its_answer():
    app = App()

    async def use(model: AsgiModel) -> None:
        answer = await model.http(request("/a", query_string="q=1", body=b"hi"))
        assert (answer.status, answer.headers) == (201, [("set-cookie", "a"), ("set-cookie", "b")])
        assert json.loads(answer.body) == {
            "method": "POST", "path": "/m/a", "root_path": "/m", "client": ["10.0.0.1", 7],
            "state": {"answer": 42}, "query": "q=1", "body": "hi",
        }  # fmt: skip
        app.background.set()
        await asyncio.sleep(0)
        assert app.noted == ["background"]

    run(app, use)
    assert app.noted == ["background", "shut down"]


def test_longer_answers_are_streams():
    async def use(model: AsgiModel) -> None:
        answer = await model.http(request("/pieces"))
        assert await pieces_of(answer) == [b"0", b"1", b"2"]

    run(App(), use)


def test_an_application_is_no_faster_than_its_client_and_learns_that_it_has_gone():
    app = App()

    async def use(model: AsgiModel) -> None:
        answer = await model.http(request("/endless"))
        assert await anext(answer.body) == b"more"
        for _ in range(3 * PIECES_MAX):
            await asyncio.sleep(0)
        assert app.noted.count("sent") <= PIECES_MAX + 2
        await answer.body.aclose()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "http.disconnect" in app.noted

    run(app, use)


def test_a_failure_before_the_answer_is_the_requests_and_one_at_the_start_the_models():
    async def use(model: AsgiModel) -> None:
        with pytest.raises(KeyError):
            await model.http(request("/fail"))

    run(App(), use)
    with pytest.raises(RuntimeError, match="no database"):
        run(App(starts=False), use)


def test_an_application_without_a_lifespan_is_served():
    async def bare(scope, receive, send) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"ok"})

    async def use(model: AsgiModel) -> bytes:
        return (await model.http(request("/"))).body

    assert run(bare, use) == b"ok"


def test_it_is_a_definition_with_a_mount():
    definition = jitney.define(jitney.asgi(App(), mount="/api", name="shop"))
    assert (definition.name, definition.options.mount) == ("shop", "/api")
    assert [one.name for one in definition.endpoints if one.raw] == ["http"]
    with pytest.raises(TypeError, match="did you mean mount"):
        jitney.asgi(App(), munt="/")


def test_who_asks_for_a_websocket_is_told_what_to_use_instead():
    async def nothing(scope, receive, send):
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"Not Found"})

    async def ask(headers):
        return await AsgiModel(nothing).http(jitney.HttpRequest("GET", "/", headers=headers))

    refused = asyncio.run(ask({"Upgrade": "WebSocket", "Connection": "Upgrade"}))
    assert refused.status == 501 and "WebSockets are not served" in refused.body
    assert asyncio.run(ask({})).status == 404
