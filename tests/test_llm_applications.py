"""OpenAI's routes at the root are passed on to the one model that declares them: here a small web application around a
tiny model of transformers, asked by the official client. `make test-formats` runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from harness import pretrained
from harness.server import ASK_SECONDS, Server
from harness.wait import until

pytest.importorskip("transformers")
pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")
pytestmark = pytest.mark.heavy
LOAD_SECONDS = 600

APP = '''
import asyncio
import contextlib
import json

import jitney
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

left = []


@contextlib.asynccontextmanager
async def lifespan(app):
    """Loads the model where it is served, which takes long; importing this file does not."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    app.state.torch, app.state.tokenizer = torch, AutoTokenizer.from_pretrained("model")
    app.state.model = AutoModelForCausalLM.from_pretrained("model").eval()
    yield


app = FastAPI(lifespan=lifespan)


async def words(prompt, count):
    """Greedy tokens, one at a time, so that a client that leaves ends them."""
    torch, tokenizer = app.state.torch, app.state.tokenizer
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    for _ in range(count):
        with torch.inference_mode():
            best = app.state.model(ids[:, -64:]).logits[0, -1].argmax()
        ids = torch.cat([ids, best.reshape(1, 1)], dim=1)
        yield tokenizer.decode([best])
        await asyncio.sleep(0)


async def events(pieces, form):
    try:
        async for one in pieces:
            yield f"data: {json.dumps(form(one))}\\n\\n"
        yield "data: [DONE]\\n\\n"
    except (asyncio.CancelledError, GeneratorExit):
        left.append(1)
        raise


async def answered(asked, prompt, count, whole, piece):
    pieces = words(prompt, count or 8)
    if asked.get("stream"):
        return StreamingResponse(events(pieces, piece), media_type="text/event-stream")
    return whole("".join([one async for one in pieces]))


@app.post("/v1/completions")
async def completions(request: Request):
    asked = await request.json()
    form = lambda text: {"id": "c", "object": "text_completion", "created": 1, "model": "tiny",
                         "choices": [{"index": 0, "text": text, "finish_reason": "length"}]}
    return await answered(asked, asked["prompt"], asked.get("max_tokens"), form, form)


@app.post("/v1/chat/completions")
async def chat(request: Request):
    asked = await request.json()
    if not asked.get("messages"):
        return JSONResponse({"error": {"message": "messages is empty", "type": "invalid_request_error"}}, 400)
    prompt = app.state.tokenizer.apply_chat_template(asked["messages"], tokenize=False, add_generation_prompt=True)
    head = {"id": "c", "created": 1, "model": "tiny"}
    whole = lambda text: {**head, "object": "chat.completion", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}]}
    piece = lambda text: {**head, "object": "chat.completion.chunk", "choices": [
        {"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return await answered(asked, prompt, asked.get("max_tokens"), whole, piece)


@app.post("/v1/responses")
async def responses(request: Request):
    asked = await request.json()
    whole = lambda text: {"id": "r", "object": "response", "created_at": 1, "model": "tiny", "status": "completed",
                          "output": [{"id": "m", "type": "message", "role": "assistant", "status": "completed",
                                      "content": [{"type": "output_text", "text": text, "annotations": []}]}]}
    piece = lambda text: {"type": "response.output_text.delta", "delta": text, "item_id": "m", "output_index": 0,
                          "content_index": 0, "sequence_number": 0, "logprobs": []}
    return await answered(asked, asked["input"], asked.get("max_output_tokens"), whole, piece)


@app.get("/left")
async def those_who_left():
    return len(left)


served = jitney.asgi(app, name="tiny", concurrency=16)
'''


@pytest.fixture(scope="module")
def served(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the application."""
    home = tmp_path_factory.mktemp("llm")
    pretrained.gpt2(home / "model")
    (home / "app.py").write_text(APP)
    words = ["serve", "app.py:served", "--startup-timeout", str(LOAD_SECONDS)]
    server = Server(binary, home / "server", words, cwd=home, start_seconds=LOAD_SECONDS)
    yield server.started()
    server.end()


@pytest.fixture
def client(served: Server) -> openai.OpenAI:
    """The official client, which knows nothing but an address."""
    return openai.OpenAI(base_url=served.url("/v1"), api_key="none", max_retries=0, timeout=ASK_SECONDS)


def expected(home: Path, prompt: str, count: int) -> str:
    """What transformers writes."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(home)
    model = transformers.AutoModelForCausalLM.from_pretrained(home).eval()
    ids = tokenizer(prompt, return_tensors="pt")
    made = model.generate(**ids, max_new_tokens=count, min_new_tokens=count, do_sample=False)
    return tokenizer.decode(made[0, ids["input_ids"].shape[1] :])


def test_whole_and_streamed_texts_are_those_of_the_model(served: Server, client: openai.OpenAI) -> None:
    text = expected(served.cwd / "model", "the quick brown", 6)
    assert client.completions.create(model="tiny", prompt="the quick brown", max_tokens=6).choices[0].text == text
    stream = client.completions.create(model="tiny", prompt="the quick brown", max_tokens=6, stream=True)
    pieces = [one.choices[0].text for one in stream]
    assert len(pieces) == 6 and "".join(pieces) == text


def test_chats_and_responses_reach_the_application(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "what is the name of the river?"}]
    whole = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5).choices[0].message.content
    stream = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in stream) == whole
    answer = client.responses.create(model="tiny", input="Once upon", max_output_tokens=5)
    stream = client.responses.create(model="tiny", input="Once upon", max_output_tokens=5, stream=True)
    assert "".join(one.delta for one in stream) == answer.output_text
    with pytest.raises(openai.BadRequestError, match="messages is empty"):
        client.chat.completions.create(model="tiny", messages=[])


def test_a_client_that_leaves_cancels_its_text(served: Server, client: openai.OpenAI) -> None:
    how_many: Callable[[], int] = lambda: requests.get(served.url("/left"), timeout=ASK_SECONDS).json()  # noqa: E731
    before = how_many()
    stream = client.completions.create(model="tiny", prompt="the", max_tokens=10**9, stream=True)
    next(iter(stream))
    stream.close()
    until(lambda: how_many() > before, "the application is told that the client left")
