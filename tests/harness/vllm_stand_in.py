"""A package `vllm` that has what `vllm_handler` may call, with the parameters of the versions that it was written
against, and fails on anything else. Its texts are the words of the prompt again.

vLLM itself needs a GPU and gigabytes. What is checked here is that we call it as its sources say, and what becomes of
requests, streams, clients that leave, and a dead engine.
"""

from __future__ import annotations

VERSIONS = ("0.10.2", "0.33.0")

OPTIONS = """
import argparse


def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model")
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--override-generation-config", type=__import__("json").loads)
    parser.add_argument("--lora-modules", nargs="+")
    parser.add_argument("--enable-lora", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=False)
    return parser


def validate_parsed_serve_args(args):
    assert args.model is not None
"""

PARSER = """
import argparse


class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""

ENGINE = '''
import contextlib


class Engine:
    """Knows what it may be asked for; anything else is an error."""

    def __init__(self):
        self.errored, self.is_running = False, True

    def __getattr__(self, name):
        raise AssertionError(f"vLLM's engine was asked for {name}")


class NewEngine(Engine):
    model_config = "the configuration of the model"

    async def get_supported_tasks(self):
        return ("generate",)


class OldEngine(Engine):
    async def get_vllm_config(self):
        return "the configuration of vLLM"


@contextlib.asynccontextmanager
async def build(kind, args):
    engine = kind()
    try:
        yield engine
    finally:
        print("the engine was shut down", flush=True)
'''

APP = '''
import asyncio
import json
import types


class App:
    """An ASGI application as FastAPI makes them."""

    def __init__(self, args):
        self.args, self.state, self.cancelled = args, types.SimpleNamespace(), 0

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            for name in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{name}.complete"})
            return
        assert scope["root_path"] == "" and scope["raw_path"].decode() == scope["path"], scope
        answer = {
            ("GET", "/v1/models"): self.models,
            ("POST", "/v1/completions"): self.complete,
            ("POST", "/v1/chat/completions"): self.chat,
            ("POST", "/v1/responses"): self.respond,
        }.get((scope["method"], scope["path"]))
        if answer is None:
            await whole(send, 404, {"detail": "Not Found"})
            return
        body = (await receive())["body"]
        try:
            asked = json.loads(body) if body else {}
        except ValueError:
            await whole(send, 400, {"error": {"message": "no JSON", "type": "BadRequestError", "code": 400}})
            return
        if "model" in asked and asked["model"] not in self.args.served_model_name:
            message = f"The model {asked['model']!r} does not exist."
            await whole(send, 404, {"error": {"message": message, "type": "NotFoundError", "code": 404}})
            return
        await answer(asked, send)

    async def models(self, asked, send):
        cards = [{"id": one, "object": "model"} for one in self.args.served_model_name]
        told = {key: value for key, value in vars(self.args).items() if value is not None}
        await whole(send, 200, {"object": "list", "data": cards, "options": told, "cancelled": self.cancelled})

    async def complete(self, asked, send):
        if asked["prompt"] == "die":
            engine = self.state.engine_client
            engine.errored, engine.is_running = True, False
            self.state.server.should_exit = True
            await whole(send, 500, {"error": {"message": "EngineDeadError", "type": "InternalServerError"}})
            return
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": asked["model"]}
        piece = lambda text: {**head, "choices": [{"index": 0, "text": text, "finish_reason": None}]}
        await self.write(asked, asked["prompt"], piece, send)

    async def chat(self, asked, send):
        head = {"id": "chatcmpl-1", "created": 1, "model": asked["model"]}
        text = asked["messages"][-1]["content"]
        if not asked.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            await whole(send, 200, {**head, "object": "chat.completion", "choices": [choice]})
            return
        chunk = lambda text: {
            **head, "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
        }
        await self.write(asked, text, chunk, send)

    async def respond(self, asked, send):
        text = {"type": "output_text", "text": asked["input"], "annotations": []}
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        await whole(send, 200, {"id": "resp-1", "object": "response", "created_at": 1, "model": asked["model"],
                                "status": "completed", "output": [message]})

    async def write(self, asked, text, piece, send):
        if not asked.get("stream"):
            await whole(send, 200, piece(text))
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        words = text.split()
        try:
            for word in words:
                await event(send, json.dumps(piece(word)))
            if words[-1] == "forever":
                while True:
                    await event(send, json.dumps(piece("again")))
                    await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await event(send, "[DONE]")
        await send({"type": "http.response.body", "body": b""})


async def whole(send, status, value):
    headers = [(b"content-type", b"application/json"), (b"x-from", b"vllm")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


async def event(send, text):
    await send({"type": "http.response.body", "body": f"data: {text}\\n\\n".encode(), "more_body": True})
'''

NEW_ENTRY = """
from vllm.stand_in_engine import NewEngine, build


def build_async_engine_client(args, *, usage_context=None, client_config=None):
    return build(NewEngine, args)
"""
NEW_APP = """
from vllm.stand_in_app import App


def build_app(args, supported_tasks=None, model_config=None):
    assert supported_tasks == ("generate",) and model_config == "the configuration of the model"
    return App(args)
"""
NEW_STATE = """
async def init_app_state(engine_client, state, args, supported_tasks=None):
    assert supported_tasks == ("generate",) and args.model
    state.engine_client = engine_client
"""
OLD_SERVER = """
from vllm.stand_in_app import App
from vllm.stand_in_engine import OldEngine, build


def build_async_engine_client(args, *, usage_context=None, disable_frontend_multiprocessing=None, client_config=None):
    return build(OldEngine, args)


def build_app(args):
    return App(args)


async def init_app_state(engine_client, vllm_config, state, args):
    assert vllm_config == "the configuration of vLLM" and args.model
    state.engine_client = engine_client
"""


def files(version: str) -> dict[str, str]:
    """The modules of a version, by their paths."""
    common = {"__init__.py": "", "version.py": f'__version__ = "{version}"\n'}
    common |= {"stand_in_engine.py": ENGINE, "stand_in_app.py": APP, "entrypoints/__init__.py": ""}
    if version == "0.10.2":
        modules = {
            "entrypoints/openai/__init__.py": "",
            "entrypoints/openai/api_server.py": OLD_SERVER,
            "entrypoints/openai/cli_args.py": OPTIONS,
            "utils/__init__.py": PARSER,
        }
    else:
        folders = ("common", "launchers", "launchers/api_server")
        modules = {f"entrypoints/{folder}/__init__.py": "" for folder in folders} | {
            "entrypoints/launchers/api_server/entry.py": NEW_ENTRY,
            "entrypoints/launchers/app.py": NEW_APP,
            "entrypoints/launchers/api_server/app_state.py": NEW_STATE,
            "entrypoints/common/cli_args.py": OPTIONS,
            "utils/__init__.py": "",
            "utils/argparse_utils.py": PARSER,
        }
    return {f"vllm/{path}": text for path, text in {**common, **modules}.items()}
