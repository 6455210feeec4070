"""The handler of a plugin's process: loads the file, describes what it offers, passes requests to its functions.

To the worker runtime this is a model like any other (`docs/adr/0010`). A row brings `ask`, a JSON object of facts about
the request, and `body`. Only a clear yes of `authorize` counts as one: the server fails closed.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jitney.plugin.declare import Allow, Deny, PluginEndpoint, PluginRequest, PluginResponse, declared
from jitney.worker.context import WorkerContext

Facts = dict[str, Any]


async def handle(data: Any, context: WorkerContext) -> list[Any] | None:
    """Loads at the first call, as handlers do; afterwards answers the one request that a batch holds."""
    if data is None:
        load(context.model_yaml_config["plugin"])
        return None
    [row] = data
    facts: Facts = json.loads(bytes(row["ask"]))
    if facts["ask"] == "describe":
        return [describe()]
    request = read_request(facts, context.get_all_request_header(0), bytes(row.get("body", b"")))
    if facts["ask"] == "authorize":
        return [await check_authorization(request)]
    [found] = [
        each for each in declared.endpoints if (each.path, each.listener) == (facts["endpoint"], facts["listener"])
    ]
    return [write(await call(found.function, request), context)]


def load(name: str) -> None:
    """Runs a file, or imports a module; what it declares is kept in `declared`."""
    if not name.endswith(".py"):
        importlib.import_module(name)
    else:
        path = Path(name)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{name} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    if not declared.endpoints and not declared.authorizers:
        raise ValueError(f"plugin {name} declares neither an @endpoint nor an @authorize function")
    if len(declared.authorizers) > 1:
        raise ValueError(f"plugin {name} declares {len(declared.authorizers)} @authorize functions; there can be one")


def describe() -> Facts:
    """What the plugin offers."""
    return {
        "endpoints": [describe_endpoint(each) for each in declared.endpoints],
        "authorize": bool(declared.authorizers),
    }


def describe_endpoint(each: PluginEndpoint) -> Facts:
    """One path; its description is the first paragraph of the function's docstring."""
    first = (inspect.getdoc(each.function) or "").split("\n\n")[0]
    description = " ".join(first.split())
    return {"path": each.path, "methods": each.methods, "listener": each.listener, "description": description}


def read_request(facts: Facts, headers: Any, body: bytes) -> PluginRequest:
    """The client's request as plugins see it; the entries of our own parameters are not its headers."""
    for name in ("ask", "body"):
        headers.pop(name, None)
    known = ("method", "path", "query_string", "listener", "protocol", "client")
    target: Facts = {name: facts.get(name) for name in ("model", "version", "workflow")}
    operation = facts.get("operation") or ""
    return PluginRequest(
        **{name: facts[name] for name in known}, headers=headers, body=body, operation=operation, **target
    )


async def call(function: Callable[[PluginRequest], Any], request: PluginRequest) -> Any:
    """Calls a plugin's function; one that is not `async` runs on a thread and delays no other."""
    if inspect.iscoroutinefunction(function):
        return await function(request)
    return await asyncio.to_thread(function, request)


async def check_authorization(request: PluginRequest) -> Facts:
    """The plugin's decision; anything but a plain yes or no is the plugin's mistake, and raised."""
    decision = await call(declared.authorizers[0], request)
    if decision is True:
        decision = Allow()
    if isinstance(decision, Allow):
        return {"allow": True} if decision.tenant is None else {"allow": True, "tenant": decision.tenant}
    if decision is False:
        decision = Deny()
    if not isinstance(decision, Deny):
        raise TypeError(f"@authorize must return True, False, Allow or Deny, not {type(decision).__name__}")
    return {"allow": False, "status": decision.status, "message": decision.message}


def write(answer: Any, context: WorkerContext) -> Any:
    """An endpoint's answer, its status and headers put where the runtime looks for them."""
    response = answer if isinstance(answer, PluginResponse) else PluginResponse(answer)
    context.set_response_status(response.status, "", 0)
    if not isinstance(response.body, (str, bytes, type(None))):
        context.set_response_header(0, "Content-Type", "application/json")
    for name, value in response.headers.items():
        context.set_response_header(0, name, value)
    return b"" if response.body is None else response.body
