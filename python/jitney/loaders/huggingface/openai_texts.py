"""OpenAI's completions and chats: their requests, answers and events. What they cannot ask for here is an error that
names it, and not left out in silence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jitney.call.errors import BadInput
from jitney.http.request import HttpRequest
from jitney.loaders.huggingface.causal import CausalNetwork
from jitney.loaders.huggingface.sampling import Sampling
from jitney.loaders.huggingface.task import fields_of, several, text_of

CHOICES_MAX = 16
STOPS_MAX = 16
NOT_SERVED = ("logprobs", "top_logprobs", "echo", "suffix", "logit_bias", "tools", "functions", "audio", "prediction")
TERMS = ("temperature", "top_k", "top_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed")


class OpenAiForm:
    """A request."""

    kind, prefix = "", ""
    usual: int | None = None
    """The most tokens where a request does not say; None for as many as there is room for."""

    def __init__(self, request: HttpRequest, network: CausalNetwork) -> None:
        fields = self.fields = fields_of(request)
        self.network = network
        for name in NOT_SERVED:
            if fields.get(name):
                raise BadInput(f"{name} is not served here: leave it out")
        shape = fields.get("response_format")
        if isinstance(shape, Mapping) and shape.get("type", "text") != "text":
            raise BadInput("response_format is not served here: leave it out")
        self.head = {
            "id": f"{self.prefix}-{request.id}",
            "created": int(time.time()),
            "model": fields["model"],
        }
        self.stream = fields.get("stream") is True
        self.prompts = self.read_prompts()
        self.most = self._whole("max_completion_tokens", None, 2**31) or self._whole("max_tokens", self.usual, 2**31)
        self.terms = self._terms(self._whole("n", 1, CHOICES_MAX) or 1)
        stops = fields.get("stop") or []
        self.stops = [text_of(one, "stop") for one in ([stops] if isinstance(stops, str) else stops)]
        if len(self.stops) > STOPS_MAX:
            raise BadInput(f"stop may have {STOPS_MAX} texts, not {len(self.stops)}")

    def read_prompts(self) -> list[list[int]]:
        """The prompts in tokens."""
        raise NotImplementedError

    def _whole(self, name: str, otherwise: int | None, most: int) -> int | None:
        value = self.fields.get(name)
        if value is None:
            return otherwise
        if type(value) is not int or not 1 <= value <= most:
            raise BadInput(f"{name} must be a whole number from 1 to {most}, not {value!r}")
        return value

    def _terms(self, count: int) -> list[Sampling]:
        """The terms of each choice; choices with a seed have seeds of their own."""
        given = {name: self.fields[name] for name in TERMS if self.fields.get(name) is not None}
        first = Sampling(**{"temperature": 1.0, **given})
        seeds = [None if first.seed is None else first.seed + at for at in range(count)]
        return [replace(first, seed=seed) for seed in seeds]

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        options = self.fields.get("stream_options")
        return isinstance(options, Mapping) and options.get("include_usage") is True

    def usage(self, tokens: int) -> dict[str, int]:
        """The numbers of tokens."""
        given = sum(map(len, self.prompts))
        return {"prompt_tokens": given, "completion_tokens": tokens, "total_tokens": given + tokens}

    def choice(self, at: int, text: str, reason: str) -> dict[str, Any]:
        """A whole text."""
        return {"index": at, "text": text, "logprobs": None, "finish_reason": reason}

    def answer(self, choices: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
        """The whole answer."""
        return {**self.head, "object": self.kind, "choices": choices, "usage": self.usage(tokens)}

    def heads(self, count: int) -> list[dict[str, Any]]:
        """Events before the first piece."""
        return []

    def chunk(self, at: int, text: str, reason: str | None) -> dict[str, Any]:
        """The event of a piece."""
        choice = {"index": at, "text": text, "logprobs": None, "finish_reason": reason}
        return {**self.head, "object": self.kind, "choices": [choice]}

    def usage_chunk(self, tokens: int) -> dict[str, Any]:
        """The last event, where it is wanted."""
        return {**self.chunk(0, "", None), "choices": [], "usage": self.usage(tokens)}


class CompletionForm(OpenAiForm):
    """`/v1/completions`."""

    kind, prefix = "text_completion", "cmpl"
    usual = 16

    def read_prompts(self) -> list[list[int]]:
        """A text, several, or tokens."""
        given = self.fields.get("prompt")
        if given is None:
            raise BadInput("prompt is missing: a text or a list of texts")
        texts, _ = several(given)
        if all(type(one) is int for one in texts):
            return [self._tokens(texts)]
        read = self.network.tokens
        return [self._tokens(one) if isinstance(one, list) else read(text_of(one, "prompt")) for one in texts]

    def _tokens(self, ids: list[Any]) -> list[int]:
        most = len(self.network.tokenizer)
        if not all(type(one) is int and 0 <= one < most for one in ids):
            raise BadInput(f"a prompt in tokens has whole numbers from 0 to {most - 1}")
        return ids


class ChatForm(OpenAiForm):
    """`/v1/chat/completions`."""

    kind, prefix = "chat.completion", "chatcmpl"

    def read_prompts(self) -> list[list[int]]:
        """The messages in the tokenizer's own template."""
        messages = self.fields.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
            raise BadInput("messages must be a list of objects with role and content")
        told = [{"role": text_of(one.get("role"), "role"), "content": content_of(one)} for one in messages]
        tokenizer = self.network.tokenizer
        if not tokenizer.chat_template:
            raise BadInput("the model's tokenizer has no chat template: use /v1/completions")
        try:
            text = tokenizer.apply_chat_template(told, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # A template raises what it likes about roles that it does not know.
            raise BadInput(f"the model's chat template does not take these messages: {error}") from None
        return [self.network.tokens(text, special=False)]

    def choice(self, at: int, text: str, reason: str) -> dict[str, Any]:
        """A whole message."""
        message = {"role": "assistant", "content": text}
        return {"index": at, "message": message, "logprobs": None, "finish_reason": reason}

    def heads(self, count: int) -> list[dict[str, Any]]:
        """The role of each message."""
        return [self._event(at, {"role": "assistant", "content": ""}, None) for at in range(count)]

    def chunk(self, at: int, text: str, reason: str | None) -> dict[str, Any]:
        """The event of a piece."""
        return self._event(at, {"content": text} if text else {}, reason)

    def _event(self, at: int, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": at, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self.head, "object": "chat.completion.chunk", "choices": [choice]}


def content_of(message: Mapping[str, Any]) -> str:
    """The text of a message, which may be in parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return text_of(content, "content")
    parts = [one if isinstance(one, Mapping) else {} for one in content]
    if not all(one.get("type") == "text" for one in parts):
        raise BadInput("content may have parts of type text only")
    return "".join(text_of(one.get("text"), "text") for one in parts)
