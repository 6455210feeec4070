"""The model of an entry script: `/score` runs it, `/` tells that it is there, `/swagger.json` describes it.
Answers have Azure's form and headers."""

from __future__ import annotations

import json
import logging
import os
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

import jitney
from azureml_inference_server_http.script import EntryScript, Rejected, from_variables
from jitney.http.request import HttpRequest
from jitney.http.response import Response

logger = logging.getLogger(__name__)

JSON = "application/json"
RUN_FAILED = "x-ms-run-function-failed"
RUN_TIME = "x-ms-run-fn-exec-ms"
VERSION, VERSION_VARIABLE = "x-ms-server-version", "HTTP_X_MS_SERVER_VERSION"
VERSION_SHOWN = "SERVER_VERSION_LOG_RESPONSE_ENABLED"
ID_CHARACTERS_MAX = 100
FAILED = "An unexpected error occurred in scoring script. Check the logs for more info."
Headers = list[tuple[str, str]]


@jitney.model(name="score", mount="/")
class Score:
    """Runs the entry script, one request at a time."""

    def setup(self) -> None:
        """Imports the script and calls its `init()`."""
        self._script: EntryScript = from_variables()

    @jitney.endpoint(raw=True)
    def http(self, request: HttpRequest) -> Response:
        """Answers one request."""
        named: Headers = []
        try:
            named = ids(request)
            response = self._routed(request)
        except Rejected as rejected:
            response = failure(rejected.status, str(rejected))
        response.headers.extend([*named, *version()])
        return response

    def _routed(self, request: HttpRequest) -> Response:
        match request.path.rstrip("/"), request.method:
            case "", "GET" | "HEAD":
                return Response("Healthy", media_type="text/html; charset=utf-8")
            case "/score", "OPTIONS" if not self._script.is_raw:
                return Response(b"")
            case "/score", "GET" | "POST" | "OPTIONS":
                return self._scored(request)
            case "/swagger.json", "GET" | "HEAD":
                return self._described(request)
            case "" | "/score" | "/swagger.json", _:
                return failure(405, "Method not allowed")
        return failure(404, "There is nothing here: requests go to /score")

    def _described(self, request: HttpRequest) -> Response:
        asked = urllib.parse.parse_qs(request.query_string).get("version", ["2"])
        try:
            return Response(json.dumps(self._script.described(asked[0])), media_type=JSON)
        except LookupError as error:
            return failure(404, str(error))

    def _scored(self, request: HttpRequest) -> Response:
        began = time.perf_counter()
        try:
            result = self._script.run(request)
        except Rejected as rejected:
            return failure(rejected.status, str(rejected))
        except Exception:
            logger.exception("run() failed")
            return failure(500, FAILED, [(RUN_FAILED, "True")])
        took = f"{(time.perf_counter() - began) * 1000:.3f}"
        response = answered(result)
        response.headers.append((RUN_TIME, took))
        return response


def answered(result: Any) -> Response:
    """What `run()` returned, as an answer: a response of werkzeug's or Flask's, or anything that becomes JSON."""
    if hasattr(result, "get_data") and hasattr(result, "status_code"):
        headers: Headers = [(name, str(value)) for name, value in result.headers.items() if name != RUN_FAILED]
        failed = result.status_code >= 500 or result.headers.get(RUN_FAILED) == "True"
        # What comes from a generator leaves piece by piece.
        body = result.iter_encoded() if getattr(result, "is_streamed", False) else result.get_data()
        return Response(body, result.status_code, [*headers, (RUN_FAILED, str(failed))])
    try:
        body = json.dumps({} if result is None else result)
    except (TypeError, ValueError):
        logger.exception("run() returned what JSON cannot hold: return text, numbers, lists or an AMLResponse")
        return failure(500, "An unexpected internal error occurred. Check the logs for more info.")
    return Response(body, headers=[(RUN_FAILED, "False")], media_type=JSON)


def version() -> Headers:
    """The header with the server's version, unless a variable says anything but true."""
    if os.environ.get(VERSION_SHOWN, "true").lower() != "true":
        return []
    return [(VERSION, os.environ.get(VERSION_VARIABLE) or f"jitney/{jitney.__version__}")]


def failure(status: int, message: str, headers: Headers | None = None) -> Response:
    """An error as Azure words it."""
    return Response(json.dumps({"message": message}), status, headers or [(RUN_FAILED, "False")], JSON)


def ids(request: HttpRequest) -> Headers:
    """The ids of a request, as its answer repeats them. The server adds x-request-id by itself."""
    headers: Mapping[str, str] = request.headers
    client, older = headers.get("x-ms-client-request-id", ""), headers.get("x-ms-request-id", "")
    client = client or older
    older = older or client or headers.get("x-request-id", "") or request.id
    given = headers.get("x-request-id", "")
    for name, value in (("x-request-id", given), ("x-ms-request-id", older), ("x-ms-client-request-id", client)):
        if len(value) > ID_CHARACTERS_MAX:
            raise Rejected(431, f"{name} must not exceed {ID_CHARACTERS_MAX} characters")
    named = [("x-ms-request-id", older), ("x-ms-client-request-id", client), ("TraceId", headers.get("TraceId", ""))]
    return [(name, value) for name, value in named if value]


served = Score
