"""A FastAPI application below a mount: `make test-compat`."""

from __future__ import annotations

import pytest
import requests

from harness.server import Server

pytest.importorskip("fastapi")
pytestmark = pytest.mark.heavy

APP = """
import contextlib

import jitney
from fastapi import BackgroundTasks, FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

kept = []


@contextlib.asynccontextmanager
async def lifespan(app):
    kept.append("started")
    yield {"answer": 42}


app = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    item: str
    count: int = 1


@app.get("/")
async def home(request: Request):
    root, client = request.scope["root_path"], request.client.host
    return {"kept": kept, "answer": request.state.answer, "client": client, "root": root}


@app.post("/orders/{shop}")
async def order(shop: str, order: Order, later: BackgroundTasks, response: Response, fast: bool = False):
    later.add_task(kept.append, order.item)
    response.set_cookie("a", "1")
    response.set_cookie("b", "2")
    return {"shop": shop, "fast": fast, **order.model_dump()}


@app.get("/stream")
async def stream():
    async def pieces():
        for at in range(3):
            yield f"piece {at}\\n"

    return StreamingResponse(pieces(), media_type="text/event-stream")


@app.get("/fails")
async def fails():
    raise KeyError("fails")


served = jitney.asgi(app, name="web", mount="/api")
"""
MODELS = ["app.py:served"]


def test_an_application_works_as_under_its_own_server(served: Server):
    url = f"{served.urls['inference']}/api"
    home = requests.get(f"{url}/").json()
    assert home == {"kept": ["started"], "answer": 42, "client": "127.0.0.1", "root": "/api"}
    order = requests.post(f"{url}/orders/tea?fast=1", json={"item": "green"})
    assert order.json() == {"shop": "tea", "fast": True, "item": "green", "count": 1}
    assert len(order.raw.headers.getlist("set-cookie")) == 2
    assert requests.get(f"{url}/").json()["kept"] == ["started", "green"]
    assert requests.post(f"{url}/orders/tea", json={"count": "x"}).status_code == 422
    stream = requests.get(f"{url}/stream")
    assert (stream.text.split("\n")[2], stream.headers["content-type"]) == (
        "piece 2",
        "text/event-stream; charset=utf-8",
    )
    assert requests.get(f"{url}/fails").status_code == 500
    assert requests.get(f"{url}/nowhere").json() == {"detail": "Not Found"}
    assert "/orders/{shop}" in requests.get(f"{url}/openapi.json").json()["paths"]
    assert requests.get(f"{url}/docs").headers["content-type"].startswith("text/html")
