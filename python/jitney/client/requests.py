"""Every request of the inference and management API as plain data, what a server answered, and when a client tries
again: after Retry-After, or if no server could be reached.

A rejection with Retry-After was made before the model ran, so trying again repeats nothing. After a connection that
broke in the middle it is unknown whether the model ran, so only idempotent requests are repeated.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote, urlencode

from jitney.call.errors import DefinitionError, remote_error
from jitney.definition.options import Options
from jitney.wire.calls import CALL_PARAMETER, CallOptions, decode_failure, read_body

JSON, TEXT, BYTES = "application/json", "text/plain; charset=utf-8", "application/octet-stream"


@dataclass(frozen=True)
class ClientRequest:
    """One HTTP request."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    management: bool = False
    """Whether it is for the management address."""

    @property
    def idempotent(self) -> bool:
        """Whether repeating it is harmless."""
        return self.method in ("GET", "PUT", "DELETE") or "Idempotency-Key" in self.headers


class PredictOptions(TypedDict, total=False):
    """The options of a prediction."""

    version: str | None
    endpoint: str | None
    timeout: float | None
    priority: str | None
    tenant: str | None
    cost: int | None
    headers: Mapping[str, str] | None


class TrafficRules(TypedDict, total=False):
    """What goes with shares: the fields of `PUT /models/{model}/traffic`."""

    sticky: str
    returns: Mapping[str, Any]
    """The field `return`, whose name is a word of Python."""
    promote: str
    shadow: Mapping[str, Any]
    shadow_samples: int


def predict(
    model: str,
    data: Any,
    version: str | None = None,
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> ClientRequest:
    """A prediction. Bytes go as they are, text as text, everything else as JSON."""
    content_type, body = encode(data)
    known = {"Content-Type": content_type, **CallOptions(**options).headers}
    return ClientRequest("POST", predict_path(model, version, endpoint), {**known, **(headers or {})}, body)


def predict_path(model: str, version: str | None, endpoint: str | None) -> str:
    """Where a prediction is asked for."""
    if endpoint and not version:
        return _path(model, endpoint)
    return _path("predictions", model, *(one for one in (version, endpoint) if one))


def later(request: ClientRequest, key: str, webhook: str | None) -> ClientRequest:
    """A prediction that is answered later; the same `key` makes the same job, whose end is told to `webhook`."""
    told = {} if webhook is None else {"X-Jitney-Webhook": webhook}
    return replace(request, headers={**request.headers, "Prefer": "respond-async", "Idempotency-Key": key, **told})


def call(path: str, body: bytes, options: CallOptions) -> ClientRequest:
    """A prediction with the arguments of a handle's call; it is answered with a value."""
    boundary = secrets.token_hex(16)
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{CALL_PARAMETER}"\r\n\r\n'
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", **options.headers}
    return ClientRequest("POST", path, headers, head.encode() + body + f"\r\n--{boundary}--\r\n".encode())


def job(job_id: str, wait: float) -> ClientRequest:
    """How far a job is, once it has ended or so many seconds have passed."""
    return ClientRequest("GET", f"{_path('jobs', job_id)}?wait={wait:.0f}")


def job_result(job_id: str) -> ClientRequest:
    """What the prediction of a job would have answered."""
    return ClientRequest("GET", _path("jobs", job_id, "result"))


def delete_job(job_id: str) -> ClientRequest:
    """Forgets a job."""
    return ClientRequest("DELETE", _path("jobs", job_id))


def encode(data: Any) -> tuple[str, bytes]:
    """Content type and bytes of a body."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return BYTES, bytes(data)
    if isinstance(data, str):
        return TEXT, data.encode()
    return JSON, json.dumps(data).encode()


def ping() -> ClientRequest:
    """Whether the server is healthy."""
    return ClientRequest("GET", "/ping")


def models(limit: int | None, token: str | None) -> ClientRequest:
    """A page of the list of models."""
    return _manage("GET", _path("models"), limit=limit, next_page_token=token)


def describe(model: str, version: str | None) -> ClientRequest:
    """The description and state of a model."""
    return _manage("GET", _path("models", model, *([version] if version else [])))


def register(url: str, options: Mapping[str, Any]) -> ClientRequest:
    """Registers a model."""
    return _manage("POST", _path("models"), url=url, **options)


def scale(model: str, version: str | None, options: Mapping[str, Any]) -> ClientRequest:
    """Changes the number of workers, or other settings."""
    return _manage("PUT", _path("models", model, *([version] if version else [])), **options)


def configure(
    model: str,
    version: str | None,
    *,
    endpoint: str | None = None,
    max_batch_size: int | None = None,
    max_latency_ms: float | None = None,
    max_batch_delay_ms: float | None = None,
    policy: str | None = None,
    queue: int | None = None,
    tenants: Mapping[str, int] | None = None,
) -> ClientRequest:
    """Changes the batching of a model that is being served. Options mean the same as in a decorator; weights of tenants
    replace the present ones."""
    checked = Options(
        max_batch_size=max_batch_size,
        max_latency_ms=max_latency_ms,
        max_batch_delay_ms=max_batch_delay_ms,
        policy=policy,
        queue=queue,
    )
    if checked == Options() and tenants is None:
        known = "max_batch_size, max_latency_ms, max_batch_delay_ms, policy, queue or tenants"
        raise DefinitionError(f"configure needs at least one of {known}")
    options = {
        "endpoint": endpoint,
        "max_batch_size": checked.max_batch_size,
        "max_latency_ms": _millis(max_latency_ms),
        "max_batch_delay": _millis(max_batch_delay_ms),
        "policy": policy,
        "job_queue_size": checked.queue,
        "tenants": None if tenants is None else _weights(tenants),
    }
    return scale(model, version, options)


def _weights(tenants: Mapping[str, int]) -> str:
    """`gold:4,trial:1`, as the server reads it."""
    for name, weight in tenants.items():
        if not name.strip() or "," in name or type(weight) is not int or weight < 1:
            raise DefinitionError(
                f"tenants must be names without commas and whole weights above zero, not {name!r}: {weight!r}"
            )
    return ",".join(f"{name}:{weight}" for name, weight in tenants.items())


def _millis(time: float | None) -> int | None:
    """Whole milliseconds; only 0 becomes 0, which has a meaning of its own."""
    return None if time is None else max(round(time), 1 if time > 0 else 0)


def unregister(model: str, version: str | None) -> ClientRequest:
    """Unregisters a model or version."""
    return _manage("DELETE", _path("models", model, *([version] if version else [])))


def set_default(model: str, version: str) -> ClientRequest:
    """Changes the default version."""
    return _manage("PUT", _path("models", model, version, "set-default"))


def traffic(model: str) -> ClientRequest:
    """How versions share the requests that name none."""
    return _manage("GET", _path("models", model, "traffic"))


def set_traffic(model: str, shares: Mapping[str, float] | None, rules: TrafficRules) -> ClientRequest:
    """Other shares; without any, and without a shadow, the default version answers everything."""
    if shares is None and "shadow" not in rules:
        if rules:
            raise DefinitionError(f"{', '.join(rules)} need shares or a shadow")
        return _manage("DELETE", _path("models", model, "traffic"))
    split = {"return" if name == "returns" else name: value for name, value in rules.items()}
    body = json.dumps({"shares": dict(shares or {}), **split}).encode()
    return replace(_manage("PUT", _path("models", model, "traffic")), headers={"Content-Type": JSON}, body=body)


def _manage(method: str, path: str, **query: Any) -> ClientRequest:
    fields = {name: _query_text(value) for name, value in query.items() if value is not None}
    return ClientRequest(method, path + (f"?{urlencode(fields)}" if fields else ""), management=True)


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _path(*segments: str) -> str:
    return "".join("/" + quote(segment, safe="") for segment in segments)


class Reply(NamedTuple):
    """One HTTP answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def value(self) -> Any:
        """The body decoded by its content type; raises the error of a failure."""
        if self.status >= 400:
            raise self.error()
        return read_body(self.body, self.headers.get("content-type", ""))

    def error(self) -> BaseException:
        """A failure with the server's message; the model's own exception where the call was a handle's."""
        kind, message = "", self.body.decode("utf-8", "replace")
        try:
            error = json.loads(self.body)
            kind, message = str(error["type"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            pass
        failure = decode_failure(message, self.status)
        return failure or remote_error(self.status, kind, message or f"status {self.status}", self.retry_after)

    @property
    def retry_after(self) -> float | None:
        """The server's Retry-After in seconds, if it sent one."""
        try:
            return max(0.0, float(self.headers["retry-after"]))
        except (KeyError, ValueError):
            return None


RETRIABLE = (429, 503)
FIRST_PAUSE = 0.1


class Unreachable(ConnectionError):
    """No connection could be made: nothing was sent."""


@dataclass(frozen=True)
class Retry:
    """How often to try, and how long to wait."""

    attempts: int = 4
    """Tries in all; 1 never tries again."""
    longest: float = 30.0
    """The longest pause in seconds; there is no retry if the server wants a longer one."""

    def after_reply(self, reply: Reply, attempt: int) -> float | None:
        """How long to wait before trying again after this answer; None if there is no retry."""
        delay = reply.retry_after
        if reply.status not in RETRIABLE or delay is None or attempt >= self.attempts or delay > self.longest:
            return None
        return delay + random.uniform(0, 0.1 * delay)  # So that clients do not all come back at once.

    def after_error(self, request: ClientRequest, error: OSError, attempt: int) -> float | None:
        """How long to wait before trying again without an answer; None if there is no retry."""
        may = request.idempotent or isinstance(error, Unreachable)
        if not may or attempt >= self.attempts:
            return None
        pause: float = min(FIRST_PAUSE * 2 ** (attempt - 1), self.longest)
        return pause
