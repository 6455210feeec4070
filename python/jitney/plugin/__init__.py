"""What a plugin file imports: decorators for endpoints and authorization, and what they are given and give.

A plugin is a Python file the operator names. It runs in a process of its own; the server asks it for nothing but
what it declares here. Functions may be plain or `async`; plain ones run on threads, several at a time.

    from jitney.plugin import Deny, Request, Response, authorize, endpoint

    @endpoint("/greeting", methods=["GET"])
    def greeting(request: Request) -> Response:
        return Response({"hello": request.query.get("name", "world")})

    @authorize
    def check(request: Request):
        return request.headers.get("x-user") == "alice" or Deny(401, "who are you?")
"""

from __future__ import annotations

from jitney.plugin.declare import Allow, Deny, authorize, endpoint
from jitney.plugin.declare import PluginRequest as Request
from jitney.plugin.declare import PluginResponse as Response

__all__ = ["Allow", "Deny", "Request", "Response", "authorize", "endpoint"]
