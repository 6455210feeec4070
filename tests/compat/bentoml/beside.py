"""A web application beside the APIs of a service, and one service behind middleware."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import bentoml


async def web(scope, receive, send) -> None:
    if scope["type"] != "http":
        return
    service = bentoml.get_current_service()
    body = f"{service.name} at {scope['path'].rpartition('/')[2]}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})


class Guard:
    """Lets requests through that know the word."""

    def __init__(self, app, word: str) -> None:
        self.app, self.word = app, word

    async def __call__(self, scope, receive, send) -> None:
        is_known = (b"x-word", self.word.encode()) in scope.get("headers", [])
        if scope["type"] == "http" and not is_known:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await self.app(scope, receive, send)


@bentoml.service
@bentoml.asgi_app(web, path="/v1")
class Beside:
    name = "Beside"

    @bentoml.api
    def shout(self, text: str) -> str:
        return text.upper()


@bentoml.service
class Behind:
    @bentoml.api
    def shout(self, text: str) -> str:
        return text.upper()

    @bentoml.api(batchable=True)
    def lengths(self, texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    @bentoml.api
    async def words(self, text: str) -> AsyncGenerator[str, None]:
        for word in text.split():
            yield word


Behind.add_asgi_middleware(Guard, word="please")
