"""The steps of both clients, without the waiting: which request comes next, and when.

Each conversation is a generator. It yields a `ClientRequest` and is sent the `Reply`, or the `OSError` that
came instead of one; it yields a number of seconds to pause; it returns the result. A client runs
the steps, with or without `await`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from jitney.call.errors import disconnected
from jitney.client import requests
from jitney.client.requests import ClientRequest
from jitney.client.retry import Reply, Retry

Step = ClientRequest | float
T = TypeVar("T")
Conversation = Generator[Step, Reply | OSError | None, T]


def request_value(request: ClientRequest, retry: Retry) -> Conversation[Any]:
    """One request, retried by the rules of `retry`; returns the decoded answer."""
    attempt = 1
    while True:
        outcome = yield request
        if isinstance(outcome, OSError):
            pause = retry.after_error(request, outcome, attempt)
            if pause is None:
                why = outcome or type(outcome).__name__
                raise disconnected(f"{request.method} {request.path}: {why}") from outcome
        else:
            assert outcome is not None, "a request is answered with a reply or an error"
            pause = retry.after_reply(outcome, attempt)
            if pause is None:
                return outcome.value()
        yield pause
        attempt += 1


def request_status(request: ClientRequest, retry: Retry) -> Conversation[str]:
    """A change; returns the server's status text."""
    return str((yield from request_value(request, retry))["status"])


def list_models(retry: Retry) -> Conversation[dict[str, str]]:
    """Names of all models, page by page, each with its URL."""
    found: dict[str, str] = {}
    token: str | None = None
    while True:
        page = yield from request_value(requests.models(None, token), retry)
        found.update({one["modelName"]: one["modelUrl"] for one in page["models"]})
        token = page.get("nextPageToken")
        if token is None:
            return found
