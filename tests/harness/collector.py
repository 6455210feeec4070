"""A collector: takes OTLP over HTTP with OpenTelemetry's own messages and keeps spans and log records."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from harness.wait import until

TRACES, LOGS = "/v1/traces", "/v1/logs"


class Collector:
    """Listens on a free port until it is closed."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                known = self.path in (TRACES, LOGS) and self.headers["content-type"] == "application/x-protobuf"
                if known and self.path == TRACES:
                    collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                elif known:
                    collector.logs.append(ExportLogsServiceRequest.FromString(body))
                answers = {TRACES: ExportTraceServiceResponse, LOGS: ExportLogsServiceResponse}
                answer = answers.get(self.path, ExportTraceServiceResponse)().SerializeToString()
                self.send_response(200 if known else 404)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self, trace: str | None = None) -> list[Span]:
        """The spans so far, of one trace or of all."""
        scopes = [scope for message in self.requests for part in message.resource_spans for scope in part.scope_spans]
        return [span for scope in scopes for span in scope.spans if trace in (None, span.trace_id.hex())]

    def records(self) -> list[LogRecord]:
        """The log records so far."""
        scopes = [scope for message in self.logs for part in message.resource_logs for scope in part.scope_logs]
        return [record for scope in scopes for record in scope.log_records]

    def wait(self, what: str, condition: Callable[[Span], bool]) -> Span:
        """The first span of this kind, once it has come."""
        return until(lambda: next(filter(condition, self.spans()), None), f"a span: {what}")

    def trace(self, trace: str, *names: str) -> dict[str, Span]:
        """The spans of a trace by their names, once all of these have come."""

        def found() -> dict[str, Span]:
            spans = {span.name: span for span in self.spans(trace)}
            return spans if all(name in spans for name in names) else {}

        return until(found, f"the spans {names} of trace {trace}")


def facts(span: Span) -> dict[str, Any]:
    """The attributes of a span."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


def failed(span: Span) -> bool:
    """Whether its status is an error."""
    return span.status.code == Status.STATUS_CODE_ERROR


def inside(inner: Span, outer: Span) -> bool:
    """Whether a span lies within another."""
    return (
        outer.start_time_unix_nano <= inner.start_time_unix_nano
        and inner.start_time_unix_nano <= inner.end_time_unix_nano
        and inner.end_time_unix_nano <= outer.end_time_unix_nano
    )
