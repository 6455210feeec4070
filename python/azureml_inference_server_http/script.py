"""An entry script: found, imported, started by `init()`; and how a request becomes the arguments of its `run()`.

As on Azure, a bare `run` gets the body as text; one with `@input_schema` of the package inference-schema gets values by
their names; one with `@rawhttp` gets the request."""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import os
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from azureml_inference_server_http.swagger import described
from jitney.http.request import HttpRequest

APP_ROOT = "/var/azureml-app"
REQUEST_HEADERS = "request_headers"
RAW_MODULE = "azureml_inference_server_http.api.aml_request"


class Rejected(Exception):
    """A request that `run` is not called for: a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class EntryScript:
    """The functions of an entry script."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        root = Path(variables.get("AML_APP_ROOT") or APP_ROOT)
        self._root = root
        folders = [root]
        if variables.get("AZUREML_SOURCE_DIRECTORY"):
            folders.append(root / variables["AZUREML_SOURCE_DIRECTORY"])
        sys.path.extend(str(folder) for folder in folders if str(folder) not in sys.path)
        self.path = root / (variables.get("AZUREML_ENTRY_SCRIPT") or "main.py")
        module = imported(self.path)
        for name in ("init", "run"):
            if not callable(getattr(module, name, None)):
                raise TypeError(f"{self.path} has no function {name}(): an entry script has init() and run()")
        # Tools of Azure write a script around the user's, whose run() hands on what it gets.
        driven = getattr(module, "driver_module", None)
        self._run: Callable[..., Any] = getattr(driven, "run", module.run) if driven else module.run
        parameters = inspect.signature(self._run).parameters
        self._wants_headers = REQUEST_HEADERS in parameters
        self._parameters = [one for name, one in parameters.items() if name != REQUEST_HEADERS]
        named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not self._parameters or any(one.kind not in named for one in self._parameters):
            raise TypeError(f"run() in {self.path} must take its input by name: run(data), without *args or **kwargs")
        self.is_raw = bool(getattr(sys.modules.get(RAW_MODULE), "raw_http_asked", ()))
        self._has_schema = has_schema(self._run)
        if self.is_raw and self._has_schema:
            raise TypeError(f"run() in {self.path} cannot have both @rawhttp and @input_schema")
        module.init()

    def run(self, request: HttpRequest) -> Any:
        """What `run()` returns for a request."""
        arguments = self._arguments(request)
        if self._wants_headers:
            # As Flask spells them: a dict knows no other case.
            arguments[REQUEST_HEADERS] = {name.title(): value for name, value in request.headers.items()}
        return self._run(**arguments)

    def described(self, version: str) -> dict[str, Any]:
        """What `/swagger.json` says about the script."""
        return described(version, self._root, self._run)

    def _arguments(self, request: HttpRequest) -> dict[str, Any]:
        first = self._parameters[0].name
        if self.is_raw:
            return {first: raw(request)}
        if request.method not in ("GET", "POST"):
            raise Rejected(405, "Method not allowed")
        if self._has_schema:
            return self._by_name(of_query(request) if request.method == "GET" else of_body(request))
        if request.method == "GET":
            return {first: json.dumps(of_query(request))}
        try:
            return {first: request.body.decode()}
        except UnicodeDecodeError as error:
            raise Rejected(400, f"Input cannot be decoded as UTF-8: {error}") from None

    def _by_name(self, values: Mapping[str, Any]) -> dict[str, Any]:
        arguments = {one.name: values.get(one.name, one.default) for one in self._parameters}
        for name, value in arguments.items():
            if value is inspect.Parameter.empty:
                raise Rejected(400, f"A value is not provided for the {name!r} parameter.")
        return arguments


def imported(path: Path) -> ModuleType:
    """The module of a script, under the name that Azure gives it."""
    spec = importlib.util.spec_from_file_location("entry_module", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no entry script {path}: name it in AZUREML_ENTRY_SCRIPT")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def has_schema(run: Callable[..., Any]) -> bool:
    """Whether the function has a mark of inference-schema, if that package is in use."""
    util = sys.modules.get("inference_schema.schema_util")
    return util is not None and bool(util.is_schema_decorated(run))


def of_query(request: HttpRequest) -> dict[str, Any]:
    """The fields of the query, read as JSON where they are; several of one name are a list."""
    fields = urllib.parse.parse_qs(request.query_string, keep_blank_values=True)
    values = {name: [json_or_text(text) for text in texts] for name, texts in fields.items()}
    return {name: many[0] if len(many) == 1 else many for name, many in values.items()}


def json_or_text(text: str) -> Any:
    """The value that a text is in JSON, or the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def of_body(request: HttpRequest) -> dict[str, Any]:
    """The object that a body is."""
    kind = request.media_type
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Rejected(415, "Expects Content-Type to be application/json")
    if not request.body:
        raise Rejected(400, "POST body is empty. Expecting a JSON dictionary.")
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise Rejected(400, f"POST body could not be decoded as JSON: {error}") from None
    if not isinstance(body, dict):
        raise Rejected(400, "POST body should be a JSON dictionary.")
    return body


def raw(request: HttpRequest) -> Any:
    """The request as werkzeug has it; whoever asked for it has imported werkzeug."""
    aml_request = sys.modules[RAW_MODULE]
    host, _, port = request.headers.get("host", "localhost").partition(":")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": (request.root_path + request.path).encode().decode("latin-1"),
        "QUERY_STRING": request.query_string,
        "SERVER_NAME": host,
        "SERVER_PORT": port or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.url_scheme": request.headers.get("x-forwarded-proto", "http"),
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
    }
    if request.client is not None:
        environ["REMOTE_ADDR"] = request.client[0]
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
    environ["CONTENT_LENGTH"] = str(len(request.body))
    return aml_request.AMLRequest(environ)


def from_variables() -> EntryScript:
    """The script that the container's variables name."""
    return EntryScript(os.environ)
