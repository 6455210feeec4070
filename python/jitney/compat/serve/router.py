"""Endpoints of the older API: a small model that has the route, and sends each request to one of its backends."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jitney.compat.serve.flask_request import told_of
from jitney.definition.application import Bound, Dependency
from jitney.definition.decorators import NOTE, Note
from jitney.definition.options import Options
from jitney.http.request import HttpRequest
from jitney.http.response import Response

METHOD_HEADER = "x-serve-call-method"
ROUTER_CALLS = 255
NO_LIMIT_S = 24 * 3600


@dataclass(frozen=True)
class EndpointRoute:
    """An endpoint of the older API: a route, and the shares of its backends."""

    model: str
    route: str
    methods: tuple[str, ...]
    traffic: Mapping[str, float]
    """Weights by the backends' models."""

    def __jitney_application__(self) -> Bound:
        options = Options(name=self.model, mount=self.route, response_timeout_s=NO_LIMIT_S)
        backends = [Dependency(model) for model in self.traffic]
        return Bound(
            RouterReplica, (backends, list(self.traffic.values()), list(self.methods)), name=self.model, options=options
        )


class RouterReplica:
    """Sends each request to one of the backends."""

    def __init__(self, backends: list[Any], weights: list[float], methods: list[str]) -> None:
        self._backends, self._weights, self._methods = backends, weights, methods

    async def http(self, request: HttpRequest) -> Response:
        """Requests of the route."""
        if request.method not in self._methods:
            allowed = ", ".join(self._methods)
            return Response(f"Methods {allowed} are allowed here, not {request.method}", 405, {"allow": allowed})
        told = {**told_of(request), "method_name": request.headers.get(METHOD_HEADER, "")}
        backend = random.choices(self._backends, self._weights)[0]
        answer = await backend.options(method_name="web").remote(told)
        return Response(answer["body"], media_type=answer["type"])


setattr(RouterReplica.http, NOTE, Note(Options(raw=True, concurrency=ROUTER_CALLS), "endpoint"))
setattr(RouterReplica, NOTE, Note(Options(), "model"))
