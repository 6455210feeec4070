"""A worker for TorchServe's own frontend, as code and tests import it: listens, loads one model, answers its batches.

Jitney never starts one (see `ts.protocol`).
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from jitney.torchserve.failures import mentions_cuda
from ts.metrics.metric_cache_yaml_impl import NO_FILE, MetricsCacheYamlImpl
from ts.model_loader import ModelLoaderFactory
from ts.protocol.otf_message_handler import LOAD_MSG, PREDICT_MSG, create_load_model_response, retrieve_msg
from ts.service import Service, text

logger = logging.getLogger(__name__)

SOCKET_ACCEPT_TIMEOUT = 30.0
DEBUG = False


class TorchModelServiceWorker:
    """One socket, one frontend, one model."""

    def __init__(
        self,
        s_type: str | None = None,
        s_name: str | None = None,
        host_addr: str | None = None,
        port_num: int | str | None = None,
        metrics_config: str | None = None,
    ) -> None:
        self.address = listen_address(s_type, s_name, host_addr, port_num)
        family = socket.AF_INET if s_type == "tcp" else socket.AF_UNIX
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.service: Any = None
        self.metrics_cache = MetricsCacheYamlImpl(metrics_config or NO_FILE)
        self.metrics_cache.initialize_cache()

    def load_model(self, load_model_request: dict[str, Any]) -> tuple[Service | None, str, int]:
        """The service, or None, with the frontend's message and status; other than runtime errors are raised."""
        name = text(load_model_request["modelName"])
        try:
            return self._load(name, load_model_request), f"loaded model {name}", 200
        except (MemoryError, RuntimeError) as error:
            logger.error("Load model %s exception: %s", name, error, exc_info=error)
            if isinstance(error, MemoryError):
                return None, "System out of memory", 507
            return (None, "CUDA out of memory", 507) if mentions_cuda(error) else (None, str(error), 500)

    def _load(self, name: str, request: dict[str, Any]) -> Service:
        gpu, batch_size = request.get("gpu"), request.get("batchSize")
        return ModelLoaderFactory.get_model_loader().load(
            name,
            text(request["modelPath"]),
            text(request.get("handler") or ""),
            None if gpu is None else int(gpu),
            None if batch_size is None else int(batch_size),
            text(request.get("envelope") or "") or None,
            bool(request.get("limitMaxImagePixels", True)),
            self.metrics_cache,
        )

    def handle_connection(self, cl_socket: socket.socket) -> None:
        """Answers the frontend's commands until it disconnects."""
        service: Any = None
        while True:
            command, message = retrieve_msg(cl_socket)
            if command == LOAD_MSG:
                service = self._answer_load(cl_socket, message)
            elif command != PREDICT_MSG:
                raise ValueError(f"Received unknown command: {command!r}")
            elif service is None:
                raise RuntimeError(f"Received command: {command!r}, but service is not loaded")
            else:
                cl_socket.sendall(service.predict(message))

    def _answer_load(self, cl_socket: socket.socket, message: Any) -> Any:
        service, result, code = self.load_model(message)
        cl_socket.sendall(create_load_model_response(code, result))
        if service is None or code != 200:
            raise RuntimeError(f"{code} - {result}")
        service.set_cl_socket(cl_socket)
        return service

    def run_server(self) -> None:
        """Listens and serves each connection."""
        self.sock.bind(self.address)
        self.sock.settimeout(None if DEBUG else SOCKET_ACCEPT_TIMEOUT)
        self.sock.listen(1)
        while True:
            cl_socket, _ = self.sock.accept()
            cl_socket.setblocking(True)
            self.handle_connection(cl_socket)


def listen_address(kind: str | None, name: str | None, host: str | None, port: int | str | None) -> Any:
    """Where to listen: a path, or host and port. What an earlier worker left is removed."""
    if kind == "tcp":
        if port is None:
            raise ValueError("Wrong arguments passed. No socket port given.")
        return host or "127.0.0.1", int(port)
    if kind != "unix":
        raise ValueError("Incomplete data provided: the worker needs a socket type, unix or tcp")
    if name is None:
        raise ValueError("Wrong arguments passed. No socket name given.")
    try:
        os.remove(name)
    except OSError as error:
        if os.path.exists(name):
            raise RuntimeError(f"socket already in use: {name}.") from error
    return name
