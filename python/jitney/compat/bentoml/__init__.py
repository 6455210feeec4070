"""BentoML's names, served by Jitney: write `from jitney.compat import bentoml` instead of `import bentoml`.

`jitney serve service.py:Name --port 3000` serves what `bentoml serve service:Name` serves. docs/coming-from/bentoml.md
says what is here. What is not fails when it is first used, with what to do instead.
"""

from __future__ import annotations

from jitney.compat.absent import absent_names
from jitney.compat.bentoml import exceptions, images, io, models, validators
from jitney.compat.bentoml.api import api, importing, on_deployment, on_shutdown, on_startup, task
from jitney.compat.bentoml.asgi import asgi_app
from jitney.compat.bentoml.client import AsyncHTTPClient, SyncHTTPClient
from jitney.compat.bentoml.configuration import use_arguments
from jitney.compat.bentoml.context import Context, get_current_service
from jitney.compat.bentoml.dependencies import depends
from jitney.compat.bentoml.frameworks import onnx, picklable_model, pytorch, sklearn, torchscript
from jitney.compat.bentoml.legacy import Service
from jitney.compat.bentoml.runner import Runnable, Runner
from jitney.compat.bentoml.service import service
from jitney.compat.bentoml.store import StoredModel as Model
from jitney.compat.bentoml.store import Tag

mount_asgi_app = asgi_app

__all__ = [
    "AsyncHTTPClient", "Context", "Model", "Runnable", "Runner", "Service", "SyncHTTPClient", "Tag", "api", "asgi_app",
    "depends", "exceptions", "get_current_service", "images", "importing", "io", "models", "mount_asgi_app",
    "on_deployment", "on_shutdown", "on_startup", "onnx", "picklable_model", "pytorch", "service", "sklearn", "task",
    "torchscript", "use_arguments", "validators",
]  # fmt: skip


_OWN_IMAGE = "put the file, its packages and the `jitney` binary into an image of your own (docs/operations)"
_ABSENT = {
    "build": f"there are no bundles: {_OWN_IMAGE}",
    "bentos": f"there are no bundles: {_OWN_IMAGE}",
    "container": _OWN_IMAGE,
    "containerize": _OWN_IMAGE,
    "deployment": "there is no cloud: run `jitney serve` on your own machines, with --ray on a cluster of them",
    "cloud": "there is no cloud: run `jitney serve` on your own machines, with --ray on a cluster of them",
    "api_token": "there is no cloud, and so no token of one; `jitney serve --api-keys` protects a server",
    "secret": "there is no cloud; give secrets to the server in its environment",
    "batch": "run the service over a file with `jitney infer service.py:Name INPUT -o OUTPUT`",
    "monitor": "log what you need with `logging`, and count it with `jitney.Counter` and `jitney.Histogram`",
    "metrics": "use `prometheus_client`, or `jitney.Counter` and its like; they are shown under /metrics",
    "serve": "run `jitney serve service.py:Name --port 3000`, or `jitney.run(Name)` beside your program",
    "runner_service": "use bentoml.Runner, or a service with bentoml.depends",
    "gradio": "run Gradio as a program of its own that calls the server with bentoml.SyncHTTPClient",
    "arguments": "use bentoml.use_arguments()",
    "legacy": "the names of BentoML 1.0 are in `bentoml` itself: Service, Runner, Runnable, io",
    "HTTPServer": "run `jitney serve service.py:Name --port 3000`, or `jitney.run(Name)` beside your program",
    "GrpcServer": "every service answers gRPC by the Open Inference Protocol, on --grpc-port",
    "get": f"there are no bundles: {_OWN_IMAGE}; models are in bentoml.models",
    "list": f"there are no bundles: {_OWN_IMAGE}; models are in bentoml.models",
    "delete": f"there are no bundles: {_OWN_IMAGE}; models are in bentoml.models",
    "export_bento": f"there are no bundles: {_OWN_IMAGE}",
    "import_bento": f"there are no bundles: {_OWN_IMAGE}",
    "push": "there is no cloud; copy the model store's directory",
    "pull": "there is no cloud; copy the model store's directory",
    "load": "import the service, as in `from service import Name`",
    "server_context": "use bentoml.Context as a parameter of the API",
}
_FRAMEWORKS = (
    "catboost", "detectron", "diffusers", "easyocr", "fastai", "flax", "keras", "lightgbm", "mlflow",
    "pytorch_lightning", "tensorflow", "transformers", "xgboost", "vllm", "ray", "spark",
)  # fmt: skip
"""Frameworks of BentoML's that have no module here."""
_OTHER = "use bentoml.picklable_model, or load the model in the service's __init__"

__getattr__ = absent_names("bentoml", {**dict.fromkeys(_FRAMEWORKS, _OTHER), **_ABSENT}, error=exceptions.NotSupported)


def __dir__() -> list[str]:
    return sorted(__all__)
