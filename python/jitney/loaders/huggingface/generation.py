"""Texts that continue others: Hugging Face's own form, and OpenAI's completions and chats. All are written together,
token by token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, ClassVar, NamedTuple

from jitney.call.errors import BadInput, Error
from jitney.definition.decorators import endpoint
from jitney.http.request import HttpRequest
from jitney.http.response import Response, encode_json
from jitney.loaders.huggingface.causal import CausalNetwork
from jitney.loaders.huggingface.openai_texts import ChatForm, CompletionForm, OpenAiForm
from jitney.loaders.huggingface.pieces import TextPieces
from jitney.loaders.huggingface.sampling import Sampling
from jitney.loaders.huggingface.step_loop import StepLoop, Writing
from jitney.loaders.huggingface.task import NOT_GIVEN, FolderTask, checked, several, text_of, whole

AT_A_TIME = 128
"""Calls under way in a worker; those without a slot wait in it."""
NEW_TOKENS = 256
SSE = "text/event-stream"


class TextOrder(NamedTuple):
    """A text to be written."""

    prompt: list[int]
    most: int
    terms: Sampling
    stops: list[str]


class TextPiece(NamedTuple):
    """A piece of a text; the last one says why it is the last."""

    text: str
    token: int | None
    tokens: int
    """So far."""
    reason: str | None = None
    by_stop: bool = False
    """A text that was asked for ended it, and not the model."""


class TextGeneration(FolderTask):
    """Continues texts: `{"inputs": "Once upon", "parameters": {"max_new_tokens": 20}}` gives
    `[{"generated_text": ...}]`; OpenAI's clients use `/v1/completions` and `/v1/chat/completions`."""

    example: ClassVar = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 20}}
    batching = f"texts are written together, token by token: up to {AT_A_TIME} requests at a time"

    def setup(self) -> None:
        """Once per worker."""
        self.network = CausalNetwork(self.folder, self.trust)
        self.network.warm_up()
        self.loop = StepLoop(self.network)

    def teardown(self) -> None:
        """Ends the thread that writes."""
        self.loop.close()

    @endpoint(concurrency=AT_A_TIME)
    async def predict(self, inputs: Any, parameters: Any = NOT_GIVEN, stream: bool = False) -> Any:
        """The whole text, or with `stream` its pieces as events in the form of Text Generation Inference."""
        told = checked(parameters)
        texts, many = several(inputs)
        orders = [self.order(text_of(one), told) for one in texts]
        if stream:
            if many:
                raise BadInput("a stream is for one text: inputs must be a text")
            return Response(self._events(orders[0]), media_type=SSE)
        written = await asyncio.gather(*(self.whole(one) for one in orders))
        full = told.get("return_full_text", True)
        found = [[{"generated_text": before * bool(full) + text}] for before, (text, _, _) in zip(texts, written)]
        return found if many else found[0]

    @endpoint(raw=True, route="POST /v1/completions", route_shared=True, concurrency=AT_A_TIME)
    async def completions(self, request: HttpRequest) -> Response:
        """OpenAI's completions."""
        return await self._openai(lambda: CompletionForm(request, self.network))

    @endpoint(raw=True, route="POST /v1/chat/completions", route_shared=True, concurrency=AT_A_TIME)
    async def chat(self, request: HttpRequest) -> Response:
        """OpenAI's chats, with the template of the folder's tokenizer."""
        return await self._openai(lambda: ChatForm(request, self.network))

    async def _openai(self, read: Callable[[], OpenAiForm]) -> Response:
        try:
            form = read()
            orders = [self.ordered(ids, form.most, terms, form.stops) for ids in form.prompts for terms in form.terms]
            if form.stream:
                return Response(self._openai_events(form, orders), media_type=SSE)
            written = await asyncio.gather(*(self.whole(one) for one in orders))
        except Error as error:
            told = {"message": str(error), "type": "invalid_request_error", "param": None, "code": error.status}
            return Response({"error": told}, status=error.status)
        tokens = sum(count for _, count, _ in written)
        choices = [form.choice(at, text, reason) for at, (text, _, reason) in enumerate(written)]
        return Response(form.answer(choices, tokens))

    def order(self, prompt: str, parameters: dict[str, Any]) -> TextOrder:
        """What a request in Hugging Face's form asks for; the best tokens without `do_sample` and `temperature`."""
        known = ("top_k", "top_p", "repetition_penalty", "seed")
        told = {name: parameters[name] for name in known if parameters.get(name) is not None}
        draws = parameters.get("do_sample", parameters.get("temperature") is not None)
        heat = parameters.get("temperature", 1.0) if draws else 0.0
        stops = parameters.get("stop", parameters.get("stop_sequences")) or []
        stops = [text_of(one, "stop") for one in ([stops] if isinstance(stops, str) else stops)]
        ids = self.network.tokens(prompt)
        most = whole(parameters, "max_new_tokens", NEW_TOKENS, self.network.length)
        return self.ordered(ids, most, Sampling(temperature=heat, **told), stops)

    def ordered(self, ids: list[int], most: int | None, terms: Sampling, stops: list[str]) -> TextOrder:
        """The same in tokens, cut to what there is room for. A prompt that leaves no room is an error."""
        room = self.network.length - len(ids)
        if not ids or room < 1:
            raise BadInput(
                f"the prompt has {len(ids)} tokens; it must have 1 to {self.network.length - 1}, since the model takes "
                f"{self.network.length} with those that it writes"
            )
        return TextOrder(ids, min(most or room, room), terms, stops)

    async def pieces(self, order: TextOrder, apart: bool = False) -> AsyncGenerator[list[TextPiece], None]:
        """A text as it is written: each time what came since, with `apart` in a piece for each token. Whoever stops
        reading ends it."""
        writing = Writing(order.prompt, order.most, order.terms)
        pieces = TextPieces(self.network.decoder, order.stops)
        self.loop.put(writing)
        count = 0
        try:
            while True:
                tokens, reason = await writing.news()
                found: list[TextPiece] = []
                # A stop is looked for behind each token, so that none behind it counts.
                for some in ([one] for one in tokens) if apart or order.stops else (tokens,) if tokens else ():
                    count += len(some)
                    found.append(TextPiece(pieces.add(some), some[-1], count))
                    if pieces.stopped:
                        break
                if reason == "stop" and not pieces.stopped:
                    found.append(TextPiece("", writing.end, count))
                if pieces.stopped or reason:
                    last = found[-1]
                    rest = pieces.end()
                    reason = "stop" if pieces.stopped else reason
                    found[-1] = TextPiece(last.text + rest, last.token, count, reason, pieces.stopped)
                yield found
                if reason:
                    return
        finally:
            writing.left = True

    async def whole(self, order: TextOrder) -> tuple[str, int, str]:
        """The whole text, its tokens, and why it ended. Where no text ends it, it is made of its tokens at once."""
        if not order.stops:
            return await self._at_once(order)
        async with aclosing(self.pieces(order)) as pieces:
            found = [one async for some in pieces for one in some]
        return "".join(one.text for one in found), found[-1].tokens, found[-1].reason or "stop"

    async def _at_once(self, order: TextOrder) -> tuple[str, int, str]:
        writing = Writing(order.prompt, order.most, order.terms, whole=True)
        self.loop.put(writing)
        try:
            _, reason = await writing.news()
        finally:
            writing.left = True
        text: str = self.network.decoder.decode(writing.written, skip_special_tokens=True)
        return text, len(writing.written), str(reason)

    async def _events(self, order: TextOrder) -> AsyncGenerator[str, None]:
        text = ""
        async with aclosing(self.pieces(order, apart=True)) as pieces:
            async for some in pieces:
                events = []
                for one in some:
                    text += one.text
                    events.append(event(tgi_event(one, text, len(order.prompt), order.terms.seed)))
                yield "".join(events)

    async def _openai_events(self, form: OpenAiForm, orders: list[TextOrder]) -> AsyncGenerator[str, None]:
        for head in form.heads(len(orders)):
            yield event(head)
        tokens = 0
        async with aclosing(interleaved([self.pieces(one) for one in orders])) as pieces:
            async for at, some in pieces:
                text, last = "".join(one.text for one in some), some[-1]
                tokens += last.tokens if last.reason else 0
                if text or last.reason:
                    yield event(form.chunk(at, text, last.reason))
        if form.wants_usage:
            yield event(form.usage_chunk(tokens))
        yield "data: [DONE]\n\n"


def tgi_event(piece: TextPiece, text: str, prompt: int, seed: int | None) -> dict[str, Any]:
    """A piece in the form of Text Generation Inference; the last one has the whole text. A token that ends the model's
    text is one of its tokens there."""
    by_model = piece.reason == "stop" and not piece.by_stop
    tokens = piece.tokens + by_model
    # Probabilities are not kept, so that there is no `logprob`.
    token = {"id": piece.token, "text": piece.text, "logprob": None, "special": by_model and not piece.text}
    told = {"index": tokens, "token": token, "generated_text": None, "details": None}
    if piece.reason is None:
        return told
    reason = "eos_token" if by_model else "stop_sequence" if piece.by_stop else "length"
    details = {"finish_reason": reason, "generated_tokens": tokens, "input_length": prompt, "seed": seed}
    return {**told, "generated_text": text, "details": details}


def event(told: Any) -> str:
    """One server-sent event."""
    return f"data: {encode_json(told).decode()}\n\n"


Pieces = AsyncGenerator[list[TextPiece], None]


async def interleaved(streams: list[Pieces]) -> AsyncGenerator[tuple[int, list[TextPiece]], None]:
    """The pieces of several texts as they come, each with the number of its text."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for some in only:
                yield 0, some
        return
    found: asyncio.Queue[tuple[int, list[TextPiece] | BaseException | None]] = asyncio.Queue()

    async def read(at: int) -> None:
        try:
            async with aclosing(streams[at]) as pieces:
                async for some in pieces:
                    found.put_nowait((at, some))
            found.put_nowait((at, None))
        except Exception as error:
            found.put_nowait((at, error))

    tasks = [asyncio.ensure_future(read(at)) for at in range(len(streams))]
    try:
        left = len(streams)
        while left:
            at, told = await found.get()
            if isinstance(told, BaseException):
                raise told
            if told is None:
                left -= 1
            else:
                yield at, told
    finally:
        for task in tasks:
            task.cancel()
