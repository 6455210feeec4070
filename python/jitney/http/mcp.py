"""Endpoints of a definition as tools of a Model Context Protocol server: `jitney serve shop.py:tools`.

The protocol is the official SDK's (`pip install mcp`); this file says which tools there are and calls the endpoints. A
tool is called as any part of an application is: through the server, with its batches, queue and limits. No session is
kept, so that any worker of any replica can answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jitney.call.errors import DefinitionError
from jitney.definition.application import Bound, bind, bound_of
from jitney.definition.definition import Definition, Endpoint
from jitney.http.asgi import AsgiModel
from jitney.http.response import encode_json

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

OWN_HOSTS = ("127.0.0.1:*", "localhost:*", "[::1]:*")
"""Names of this machine; a page of another site that has itself resolved to it has another name."""


def mcp(target: Any, /, *, hosts: Sequence[str] = (), **options: Any) -> Bound:
    """The endpoints of a definition as tools of an MCP server, below `/mcp`; options are those of `jitney.model`.

    Clients may name this machine only by its loopback address, unless `hosts` has other names, such as
    `api.example.com` or `10.0.0.7:*`.
    """
    try:
        import mcp.server.lowlevel  # noqa: F401
    except ImportError as error:
        raise DefinitionError("jitney.mcp needs the official SDK, version 2: pip install 'mcp>=2'") from error
    model = bound_of(target)
    served = bind(McpModel, model, _definition(model), tuple(hosts), name=f"{model.definition.name}-mcp")
    return served.with_options(**{"mount": "/mcp", **options})


def _definition(model: Bound) -> Definition:
    """What is offered: all endpoints but those that take requests as they came."""
    definition = model.definition
    if all(one.raw for one in definition.endpoints):
        raise DefinitionError(f"{definition.name} has no endpoint that can be a tool: raw ones take HTTP requests")
    return definition


class McpModel(AsgiModel):
    """The server of the tools, which calls `model`."""

    def __init__(self, model: Any, definition: Definition, hosts: Sequence[str]) -> None:
        from mcp.server.lowlevel import Server
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        self._model = model
        self._endpoints = {one.name: one for one in definition.endpoints if not one.raw}
        server: Any = Server(
            definition.name,
            version=definition.version,
            instructions=definition.doc or None,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        names = [*OWN_HOSTS, *hosts]
        origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
        security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=origins)
        self._manager = StreamableHTTPSessionManager(server, None, True, True, security)
        super().__init__(self._app)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._manager.handle_request(scope, receive, send)
            return
        await receive()
        async with self._manager.run():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _list(self, _: Any, __: Any) -> Any:
        from mcp_types import ListToolsResult

        return ListToolsResult(tools=[tool_of(one) for one in self._endpoints.values()])

    async def _call(self, _: Any, params: Any) -> CallToolResult:
        endpoint, arguments = self._endpoints.get(params.name), params.arguments or {}
        if endpoint is None:
            return _result(f"there is no tool {params.name!r}; there are: {', '.join(self._endpoints)}", failed=True)
        handle = self._model.options(method_name=endpoint.name)
        try:
            if endpoint.streams:
                return _result([piece async for piece in handle.stream(**arguments)])
            return _result(await handle.remote(**arguments))
        except Exception as error:
            return _result(str(error) or type(error).__name__, failed=True)


def tool_of(endpoint: Endpoint) -> Tool:
    """An endpoint as clients see it."""
    from mcp_types import Tool
    from pydantic import create_model

    params = [param for param in endpoint.params if not param.is_request]
    fields: Any = {one.name: (_shown(one.hint), ... if one.required else one.default) for one in params}
    schema = create_model(endpoint.name, **fields).model_json_schema()
    return Tool(name=endpoint.name, description=endpoint.doc or None, input_schema=schema)


def _shown(hint: Any) -> Any:
    """A type that has a schema; anything, where it has none, as arrays."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        TypeAdapter(hint).json_schema()
    except PydanticUserError:
        return Any
    return hint


def _result(value: Any, failed: bool = False) -> CallToolResult:
    """An answer as text for the model that asked, and as a value for its program. Pieces of text are one text."""
    from mcp_types import CallToolResult, TextContent

    if isinstance(value, list) and value and all(isinstance(piece, str) for piece in value):
        value = "".join(value)
    encoded = encode_json(value)
    text = value if isinstance(value, str) else encoded.decode()
    plain = None if failed else json.loads(encoded)
    structured = plain if failed or isinstance(plain, dict) else {"result": plain}
    return CallToolResult(content=[TextContent(text=text)], structured_content=structured, is_error=failed)
