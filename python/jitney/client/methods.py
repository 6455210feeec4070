"""What both clients offer, written once: `Client` waits for the answers, `AsyncClient` gives coroutines of them.

A client says how a conversation is run, with or without `await`; requests and their answers are the same. Each
conversation is a generator. It yields a `ClientRequest` and is sent the `Reply`, or the `OSError` that came instead of
one; it yields a number of seconds to pause; it returns the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import uuid4

from jitney.call.errors import disconnected
from jitney.client import requests
from jitney.client.requests import ClientRequest, PredictOptions, Reply, Retry, TrafficRules

if TYPE_CHECKING:
    from typing_extensions import Unpack

Step = ClientRequest | float
T = TypeVar("T")
Conversation = Generator[Step, Reply | OSError | None, T]

JOB_WAIT = 10.0
"""Seconds that one request waits for the end of a job."""


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


def submit_job(request: ClientRequest, retry: Retry) -> Conversation[str]:
    """A request that is answered later; returns the id of its job."""
    return str((yield from request_value(request, retry))["id"])


def job_end(job_id: str, retry: Retry) -> Conversation[dict[str, Any]]:
    """Waits for the end of a job; returns how it is then."""
    while True:
        found: dict[str, Any] = yield from request_value(requests.job(job_id, JOB_WAIT), retry)
        if "result" in found:
            return found


def job_answer(job_id: str, retry: Retry) -> Conversation[Any]:
    """Waits for the end of a job; returns its answer, or raises its error."""
    yield from job_end(job_id, retry)
    # Whatever it is, it is the answer: a rejection that is a job's result does not change by asking again.
    return (yield from request_value(requests.job_result(job_id), Retry(attempts=1)))


Value = TypeVar("Value")
Text = TypeVar("Text")
Names = TypeVar("Names")
Descriptions = TypeVar("Descriptions")


class ClientMethods(ABC, Generic[Value, Text, Names, Descriptions]):
    """The methods of a client; its type says whether they are awaited."""

    def __init__(self, retry: Retry | None) -> None:
        self._retry = retry or Retry()

    @abstractmethod
    def _run(self, conversation: Conversation[Any]) -> Any:
        """Takes the steps of a conversation; its result, or a coroutine of it."""

    def _status(self, request: ClientRequest) -> Text:
        status: Text = self._run(request_status(request, self._retry))
        return status

    def predict(self, model: str, data: Any = b"", **options: Unpack[PredictOptions]) -> Value:
        """A model's answer to one request. `version` and `endpoint` are the model's; `timeout` is the deadline that
        the server gets, and it, `priority`, `tenant`, `cost` and `headers` are those of `Handle.options`.
        """
        answer: Value = self._run(request_value(requests.predict(model, data, **options), self._retry))
        return answer

    def submit(
        self,
        model: str,
        data: Any = b"",
        *,
        idempotency_key: str | None = None,
        webhook: str | None = None,
        **options: Unpack[PredictOptions],
    ) -> Text:
        """Asks for an answer later, with the options of `predict`; returns the id of the job, which survives a crash of
        the server from then on. The same `idempotency_key` with the same request finds the same job. The URL `webhook`
        is told when the job has ended.
        """
        return self.submit_request(requests.predict(model, data, **options), idempotency_key, webhook)

    def submit_request(
        self, request: ClientRequest, idempotency_key: str | None = None, webhook: str | None = None
    ) -> Text:
        """The same for a request that is made already."""
        kept = requests.later(request, idempotency_key or uuid4().hex, webhook)
        job_id: Text = self._run(submit_job(kept, self._retry))
        return job_id

    def job(self, job_id: str) -> Value:
        """How far a job is: its `state` and times."""
        found: Value = self._run(request_value(requests.job(job_id, 0.0), self._retry))
        return found

    def wait(self, job_id: str) -> Value:
        """Waits for the end of a job; returns how it is then."""
        found: Value = self._run(job_end(job_id, self._retry))
        return found

    def result(self, job_id: str) -> Value:
        """Waits for the end of a job; returns what `predict` would have returned, or raises what it would have."""
        answer: Value = self._run(job_answer(job_id, self._retry))
        return answer

    def delete_job(self, job_id: str) -> Text:
        """Forgets a job with its request and its result."""
        return self._status(requests.delete_job(job_id))

    def models(self) -> Names:
        """Names of all models, each with its URL."""
        names: Names = self._run(list_models(self._retry))
        return names

    def describe(self, model: str, version: str | None = None) -> Descriptions:
        """The description and state of a model's versions."""
        found: Descriptions = self._run(request_value(requests.describe(model, version), self._retry))
        return found

    def register(self, url: str, **options: Any) -> Text:
        """Registers an archive; options as in TorchServe's API (`initial_workers`, `batch_size`, ...)."""
        return self._status(requests.register(url, options))

    def scale(self, model: str, version: str | None = None, **options: Any) -> Text:
        """Changes the number of workers (`min_worker`, `max_worker`, `synchronous`, ...)."""
        return self._status(requests.scale(model, version, options))

    def configure(self, model: str, version: str | None = None, **options: Any) -> Text:
        """Changes the batching of a served model at once, with the names of the decorators' options:
        `max_batch_size` (with `endpoint` for one of several), `max_latency_ms`, `max_batch_delay_ms`,
        `policy`, `queue`, and weights of `tenants`.
        """
        return self._status(requests.configure(model, version, **options))

    def unregister(self, model: str, version: str | None = None) -> Text:
        """Ends a model, or one version of it."""
        return self._status(requests.unregister(model, version))

    def set_default(self, model: str, version: str) -> Text:
        """Changes the default version."""
        return self._status(requests.set_default(model, version))

    def traffic(self, model: str) -> Value:
        """How versions share the requests that name none: `{"shares": {"1.0": 90, "2.0": 10}}` and the rules."""
        found: Value = self._run(request_value(requests.traffic(model), self._retry))
        return found

    def set_traffic(
        self, model: str, shares: Mapping[str, float] | None = None, **rules: Unpack[TrafficRules]
    ) -> Value:
        """Lets versions share the requests that name none, such as `{"1.0": 90, "2.0": 10}`, and returns how they do.
        With `None` the default version answers all of them again. `sticky`, `returns`, `promote`, `shadow` and
        `shadow_samples` are the fields of `PUT /models/{model}/traffic`; `returns` is its `return`.
        """
        found: Value = self._run(request_value(requests.set_traffic(model, shares, rules), self._retry))
        return found
