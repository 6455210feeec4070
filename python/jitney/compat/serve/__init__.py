"""Ray Serve's API: `from jitney.compat import serve` in place of `from ray import serve`.

Deployments become definitions, replicas workers, and handles are Jitney's handles. docs/coming-from/ray-serve.md has a
table of what works; any other name of Ray Serve fails when it is first used, with a sentence.
"""

from __future__ import annotations

import contextlib
import importlib

from jitney.compat.absent import absent_names
from jitney.compat.serve import config, exceptions, handle, metrics, schema
from jitney.compat.serve.backend import BackendConfig, accept_batch
from jitney.compat.serve.batching import batch
from jitney.compat.serve.config import AutoscalingConfig, HTTPOptions, ProxyLocation, gRPCOptions
from jitney.compat.serve.context import context, get_multiplexed_model_id, get_replica_context
from jitney.compat.serve.deployment import Application, Deployment, deployment
from jitney.compat.serve.multiplex import multiplexed
from jitney.compat.serve.older import (
    create_backend,
    create_endpoint,
    delete_backend,
    delete_endpoint,
    get_backend_config,
    get_handle,
    init,
    list_backends,
    list_endpoints,
    set_traffic,
    start,
    update_backend_config,
)
from jitney.compat.serve.replica_http import ingress
from jitney.compat.serve.running import (
    delete,
    get_app_handle,
    get_deployment_handle,
    run,
    run_many,
    shutdown,
    shutdown_async,
    status,
)

__all__ = [
    "Application", "AutoscalingConfig", "BackendConfig", "Deployment", "HTTPOptions", "ProxyLocation", "accept_batch",
    "batch", "config", "context", "create_backend", "create_endpoint", "delete", "delete_backend", "delete_endpoint",
    "deployment", "exceptions", "gRPCOptions", "get_app_handle", "get_backend_config", "get_deployment_handle",
    "get_handle", "get_multiplexed_model_id", "get_replica_context", "handle", "ingress", "init", "list_backends",
    "list_endpoints", "metrics", "multiplexed", "run", "run_many", "schema", "set_traffic", "shutdown",
    "shutdown_async", "start", "status", "update_backend_config",
]  # fmt: skip

for _name in ("requests", "responses", "routing", "middleware", "types"):  # Programs that `import starlette` use them.
    with contextlib.suppress(ImportError):
        importlib.import_module(f"starlette.{_name}")

_ABSENT = {
    "ControllerOptions": "there is no controller to configure",
    "RayServegRPCContext": "Jitney's own gRPC protocols are always on",
    "RunTarget": "call serve.run for each application",
    "TracingConfig": "`jitney serve --otlp-endpoint` sends traces",
    "build": "`jitney serve app.py:app` needs no configuration file",
    "get_deployment": "Ray removed it in 2.10; use serve.get_deployment_handle",
    "get_deployment_actor": "make it a deployment, and pass its handle by .bind",
    "get_deployment_actor_context": "make it a deployment, and pass its handle by .bind",
    "get_trace_context": "the request's traceparent travels along by itself; jitney.context().request has it",
    "grpc_util": "Jitney's own gRPC protocols are always on",
    "list_deployments": "Ray removed it in 2.10; use serve.status",
    "llm": "serve the model with its own engine, or as a definition",
    "shadow_traffic": "send the copies from your own code",
    "task_consumer": "call the deployment by handle instead",
}
"""Names of Ray Serve that are not here; they fail when they are used."""

__getattr__ = absent_names("serve", _ABSENT, ": docs/coming-from/ray-serve.md says what is there")


def __dir__() -> list[str]:
    return sorted(__all__)
