"""What the container's variables say, for user code that asks."""

from __future__ import annotations

import os

from sagemaker_inference import content_types, parameters

DEFAULT_MODULE_NAME = "inference.py"
DEFAULT_MODEL_SERVER_TIMEOUT = "60"
DEFAULT_STARTUP_TIMEOUT = "600"
DEFAULT_HTTP_PORT = "8080"
SAGEMAKER_BASE_PATH = "/opt/ml"
MEBIBYTE = 1 << 20

base_dir = os.environ.get(parameters.BASE_PATH_ENV, SAGEMAKER_BASE_PATH)
model_dir = os.path.join(base_dir, "models" if os.environ.get(parameters.MULTI_MODEL_ENV) == "true" else "model")
code_dir = os.path.join(model_dir, "code")
allow_pickle = os.environ.get(parameters.ALLOW_PICKLE_ENV) == "true"
"""Whether objects in npy bodies are unpickled, as AWS's toolkit does: then a client's body can run code."""


class Environment:
    """The variables at the moment it is made."""

    def __init__(self) -> None:
        get = os.environ.get
        program = get(parameters.USER_PROGRAM_ENV, DEFAULT_MODULE_NAME)
        seconds = get(parameters.MODEL_SERVER_TIMEOUT_SECONDS_ENV)
        size = get(parameters.MAX_REQUEST_SIZE)
        self.module_name = program.removesuffix(".py")
        """The user's module."""
        self.model_server_timeout = int(get(parameters.MODEL_SERVER_TIMEOUT_ENV, DEFAULT_MODEL_SERVER_TIMEOUT))
        self.model_server_timeout_seconds = None if seconds is None else int(seconds)
        self.model_server_workers = get(parameters.MODEL_SERVER_WORKERS_ENV)
        self.startup_timeout = int(get(parameters.STARTUP_TIMEOUT_ENV, DEFAULT_STARTUP_TIMEOUT))
        self.default_accept = get(parameters.DEFAULT_INVOCATIONS_ACCEPT_ENV, content_types.JSON)
        """The type of an answer whose client names none."""
        self.inference_http_port = get(parameters.BIND_TO_PORT_ENV, DEFAULT_HTTP_PORT)
        self.management_http_port = self.inference_http_port
        self.safe_port_range = get(parameters.SAFE_PORT_RANGE_ENV)
        self.vmargs = get(parameters.MODEL_SERVER_VMARGS, "")
        """Options of a Java server, which is not here."""
        self.max_request_size = None if size is None else int(size) * MEBIBYTE
