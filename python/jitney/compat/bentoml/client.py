"""`bentoml.SyncHTTPClient` and `AsyncHTTPClient`: a service's APIs as methods, over HTTP.

They speak what BentoML's services speak, so they call services of either server. Values go as a JSON object, or as a
form where one of them is a file. An answer stands for a value, pieces, a file or a failure.
"""

from __future__ import annotations

import asyncio
import enum
import http.client
import json
import mimetypes
import secrets
import tempfile
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jitney.compat.bentoml.answering import is_image, sent
from jitney.compat.bentoml.exceptions import BentoMLException, NotFound, ServiceUnavailable
from jitney.http.response import encode_json


def is_file(value: Any) -> bool:
    """Whether a value is sent as a file; a list of files is sent as several."""
    if isinstance(value, (list, tuple)) and value:
        return all(is_file(one) for one in value)
    return isinstance(value, (Path, bytes, bytearray)) or is_image(value) or hasattr(value, "read")


def encode_form(fields: Mapping[str, Any]) -> tuple[str, bytes]:
    """The content type and the body of a form."""
    boundary = secrets.token_hex(16)
    several = {name: isinstance(value, (list, tuple)) and is_file(value) for name, value in fields.items()}
    parts = [
        f"--{boundary}\r\n".encode() + _part(name, one)
        for name, value in fields.items()
        for one in (value if several[name] else [value])
    ]
    return f"multipart/form-data; boundary={boundary}", b"".join([*parts, f"--{boundary}--\r\n".encode()])


def _part(name: str, value: Any) -> bytes:
    file_name = Path(str(getattr(value, "name", "") or name)).name
    content = value.read() if hasattr(value, "read") else value.read_bytes() if isinstance(value, Path) else value
    if isinstance(content, (bytes, bytearray)):
        kind = mimetypes.guess_type(file_name)[0] or "application/octet-stream"
        head = f'Content-Disposition: form-data; name="{name}"; filename="{file_name}"\r\nContent-Type: {kind}\r\n\r\n'
        return head.encode() + bytes(content) + b"\r\n"
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + encode_json(content) + b"\r\n"


STREAM = "text/event-stream"
PIECE_BYTES = 64 << 10
JSON = "application/json"


def is_stream(response: http.client.HTTPResponse) -> bool:
    return (response.getheader("Content-Type") or "").startswith(STREAM)


def result_of(response: http.client.HTTPResponse) -> Any:
    """What an answer stands for: JSON, text, pieces, or a file."""
    content_type = response.getheader("Content-Type") or ""
    if is_stream(response):
        return _pieces(response)
    body = response.read()
    disposition = response.getheader("Content-Disposition") or ""
    if content_type.startswith(JSON):
        return json.loads(body)
    if content_type.startswith("text/") and "filename" not in disposition:
        return body.decode()
    if "filename" in disposition or content_type.startswith(("image/", "audio/", "video/")):
        name = Path(disposition.partition('filename="')[2].rstrip('"')).name or "answer"
        path = Path(tempfile.mkdtemp(prefix="bentoml-client-")) / name
        path.write_bytes(body)
        return path
    return body


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    while piece := response.read1(PIECE_BYTES):
        yield piece.decode()


async def async_pieces(response: http.client.HTTPResponse) -> AsyncIterator[str]:
    while piece := await asyncio.to_thread(response.read1, PIECE_BYTES):
        yield piece.decode()


def failure_of(response: http.client.HTTPResponse, path: str) -> BentoMLException:
    """The server's error as an exception."""
    text = response.read().decode(errors="replace")
    try:
        content = json.loads(text)
        content = content[0] if isinstance(content, list) else content
        text = content.get("message") or content.get("error") or text
    except (ValueError, AttributeError, IndexError):
        pass
    if response.status == HTTPStatus.NOT_FOUND:
        return NotFound(f"{path}: {text}")
    kinds = {HTTPStatus.SERVICE_UNAVAILABLE: ServiceUnavailable}
    kind = kinds.get(HTTPStatus(response.status), BentoMLException)
    return kind(text, error_code=HTTPStatus(response.status))


def names_of(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """The parameters' names by path, out of an OpenAPI document."""
    found: dict[str, list[str]] = {}
    components = (document.get("components") or {}).get("schemas") or {}
    for path, verbs in (document.get("paths") or {}).items():
        content = ((verbs.get("post") or {}).get("requestBody") or {}).get("content") or {}
        schema = next((one.get("schema") or {} for one in content.values()), {})
        schema = next(iter(schema.get("anyOf") or [schema]))
        schema = components.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
        if path.startswith("/") and schema.get("properties"):
            found.setdefault(path.rpartition("/")[2], list(schema["properties"]))
    return found


TIMEOUT_SECONDS = 30.0


def _checked(response: http.client.HTTPResponse, path: str) -> http.client.HTTPResponse:
    if response.status >= HTTPStatus.BAD_REQUEST:
        raise failure_of(response, path)
    return response


class ResultStatus(enum.Enum):
    """How far a task is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class RemoteApi:
    """A method of the service: called, it answers; `submit` asks for the answer of a task later."""

    def __init__(self, client: HTTPClient, name: str) -> None:
        self._client, self._name = client, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._client.call(self._name, *args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        """Keeps a task on the server; for an asynchronous client to be awaited."""
        return self._client.submit(self._name, *args, **kwargs)


class Task:
    """A task that the server keeps."""

    def __init__(self, client: HTTPClient, name: str, task_id: str) -> None:
        self._client, self._name, self.id = client, name, task_id

    def get_status(self) -> ResultStatus:
        """How far it is."""
        return ResultStatus(self._ask("GET", "status")["status"])

    def get(self) -> Any:
        """Its result, if it is completed."""
        return self._ask("GET", "get")

    def cancel(self) -> None:
        """Ends it, whether it waits or runs."""
        self._ask("PUT", "cancel")

    def retry(self) -> Task:
        """A new task with the same arguments, of one that has ended."""
        return Task(self._client, self._name, self._ask("POST", "retry")["task_id"])

    def _ask(self, method: str, word: str) -> Any:
        return result_of(self._client._task(method, self._name, word, self.id))


class AsyncTask:
    """The same with methods to await."""

    def __init__(self, task: Task) -> None:
        self._task, self.id = task, task.id

    async def get_status(self) -> ResultStatus:
        """How far it is."""
        return await asyncio.to_thread(self._task.get_status)

    async def get(self) -> Any:
        """Its result, if it is completed."""
        return await asyncio.to_thread(self._task.get)

    async def cancel(self) -> None:
        """Ends it, whether it waits or runs."""
        await asyncio.to_thread(self._task.cancel)

    async def retry(self) -> AsyncTask:
        """A new task with the same arguments, of one that has ended."""
        return AsyncTask(await asyncio.to_thread(self._task.retry))


class HTTPClient:
    """What both clients share; an attribute that is no other is a method of the service."""

    call: Callable[..., Any]
    submit: Callable[..., Any]

    def __init__(
        self,
        url: str,
        *,
        server_ready_timeout: float | None = None,
        token: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.url = url if "//" in url else f"http://{url}"
        self._parts = urllib.parse.urlsplit(self.url)
        self._timeout = timeout
        self.default_headers: dict[str, str] = {"Authorization": f"Bearer {token}"} if token else {}
        self._names: dict[str, list[str]] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return RemoteApi(self, name)

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname or "127.0.0.1", self._parts.port, timeout=self._timeout)

    def _ask(
        self, method: str, path: str, body: bytes | None = None, content_type: str = JSON
    ) -> http.client.HTTPResponse:
        connection = self._connection()
        headers = {**self.default_headers, **({"Content-Type": content_type} if body is not None else {})}
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            return connection.getresponse()
        except OSError as error:
            connection.close()
            raise ServiceUnavailable(f"{self.url} does not answer: {error}") from None

    def _ready(self) -> bool:
        try:
            return self._ask("GET", "/readyz").status == HTTPStatus.OK
        except BentoMLException:
            return False

    def _post(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], below: str = ""
    ) -> http.client.HTTPResponse:
        given = {**self._by_name(name, args), **kwargs}
        path = (name if name.startswith("/") else f"/{name}") + below
        if any(is_file(value) for value in given.values()):
            content_type, body = encode_form({key: sent(value) for key, value in given.items()})
        else:
            content_type, body = JSON, encode_json(given)
        return _checked(self._ask("POST", path, body, content_type), path)

    def _task(self, method: str, name: str, word: str, task_id: str) -> http.client.HTTPResponse:
        """Asks for something of a task."""
        path = f"/{name.lstrip('/')}/{word}?{urllib.parse.urlencode({'task_id': task_id})}"
        return _checked(self._ask(method, path), path)

    def _by_name(self, name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """Arguments that were given by position, with the names that the service's description has."""
        if not args:
            return {}
        if self._names is None:
            self._names = self._describe()
        names = self._names.get(name.lstrip("/"))
        if names is None or len(args) > len(names):
            raise BentoMLException(f"{name} does not tell the names of its parameters; give them by name")
        return dict(zip(names, args))

    def _describe(self) -> dict[str, list[str]]:
        for path in ("/openapi.json", "/docs.json"):
            response = self._ask("GET", path)
            if response.status == HTTPStatus.OK:
                return names_of(json.loads(response.read()))
        return {}


class SyncHTTPClient(HTTPClient):
    """Calls a service and waits: `client.summarize(text="...")`."""

    def is_ready(self, timeout: float | None = None) -> bool:
        """Whether the service takes requests."""
        return self._ready()

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls an API by its name."""
        return result_of(self._post(name, args, kwargs))

    def submit(self, name: str, /, *args: Any, **kwargs: Any) -> Task:
        """Keeps a task by the name of its API."""
        return Task(self, name, result_of(self._post(name, args, kwargs, "/submit"))["task_id"])

    def close(self) -> None:
        """Ends it."""

    def __enter__(self) -> SyncHTTPClient:
        return self

    def __exit__(self, *details: Any) -> None:
        self.close()


class AsyncHTTPClient(HTTPClient):
    """The same with methods to await. A stream is awaited, too, and then iterated with `async for`."""

    async def is_ready(self, timeout: float | None = None) -> bool:
        """Whether the service takes requests."""
        return await asyncio.to_thread(self._ready)

    async def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls an API by its name."""
        response = await asyncio.to_thread(self._post, name, args, kwargs)
        if is_stream(response):
            return async_pieces(response)
        return await asyncio.to_thread(result_of, response)

    async def submit(self, name: str, /, *args: Any, **kwargs: Any) -> AsyncTask:
        """Keeps a task by the name of its API."""
        response = await asyncio.to_thread(self._post, name, args, kwargs, "/submit")
        return AsyncTask(Task(self, name, (await asyncio.to_thread(result_of, response))["task_id"]))

    async def close(self) -> None:
        """Ends it."""

    async def __aenter__(self) -> AsyncHTTPClient:
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self.close()


class RemoteService(SyncHTTPClient):
    """A service on another server, for `bentoml.depends(url=...)`."""

    @property
    def to_async(self) -> AsyncHTTPClient:
        """The same with methods to await."""
        return AsyncHTTPClient(self.url, timeout=self._timeout)

    @property
    def to_sync(self) -> SyncHTTPClient:
        """The same."""
        return self
