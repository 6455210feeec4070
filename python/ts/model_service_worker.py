"""A worker for TorchServe's own frontend (see `ts.protocol`): listens, loads one model, answers its batches."""

from __future__ import annotations

import logging
import os
import platform
import socket
import sys
from collections.abc import Sequence
from typing import Any

from jitney.torchserve.failures import mentions_cuda
from ts.arg_parser import ArgParser
from ts.async_service import AsyncService
from ts.metrics.metric_cache_yaml_impl import NO_FILE, MetricsCacheYamlImpl
from ts.model_loader import ModelLoaderFactory
from ts.protocol.otf_message_handler import LOAD_MSG, PREDICT_MSG, create_load_model_response, retrieve_msg
from ts.service import Service, text

logger = logging.getLogger(__name__)

MAX_FAILURE_THRESHOLD = 5
SOCKET_ACCEPT_TIMEOUT = 30.0
DEBUG = False
LOCAL_RANK = int(os.environ.get("LOCAL_RANK") or 0)

Loaded = tuple["Service | None", str, int]


class TorchModelServiceWorker:
    """One socket, one frontend, one model."""

    def __init__(
        self,
        s_type: str | None = None,
        s_name: str | None = None,
        host_addr: str | None = None,
        port_num: int | str | None = None,
        metrics_config: str | None = None,
        async_comm: bool = False,
    ) -> None:
        self.sock_type = s_type
        self.sock_name, self.port = listen_address(s_type, s_name, host_addr, port_num)
        family = socket.AF_INET if s_type == "tcp" else socket.AF_UNIX
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.service: Any = None
        self.async_comm = async_comm
        self.metrics_cache = MetricsCacheYamlImpl(metrics_config or NO_FILE)
        self.metrics_cache.initialize_cache()

    def load_model(self, load_model_request: dict[str, Any]) -> Loaded:
        """The service, or None, with the frontend's message and status; other than runtime errors are raised."""
        name = text(load_model_request["modelName"])
        try:
            service = self._load(name, load_model_request)
        except MemoryError as error:
            return failed(name, error, "System out of memory", 507)
        except RuntimeError as error:
            if mentions_cuda(error):
                return failed(name, error, "CUDA out of memory", 507)
            return failed(name, error, str(error), 500)
        logger.debug("Model %s loaded.", name)
        return service, f"loaded model {name}", 200

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
            if command == PREDICT_MSG:
                cl_socket.sendall(loaded(service).predict(message))
            elif command == LOAD_MSG:
                service = self._answer_load(cl_socket, message)
            else:
                raise ValueError(f"Received unknown command: {command!r}")

    def handle_connection_async(self, cl_socket: socket.socket) -> None:
        """Loads a model, then has its asynchronous handler answer many batches at a time."""
        command, message = retrieve_msg(cl_socket)
        if command != LOAD_MSG:
            raise ValueError(f"Received unknown command: {command!r}")
        service = AsyncService(self._answer_load(cl_socket, message))
        service.set_cl_socket(cl_socket)
        service.run()

    def _answer_load(self, cl_socket: socket.socket, message: Any) -> Any:
        service, result, code = self.load_model(message)
        cl_socket.sendall(create_load_model_response(code, result))
        if service is None or code != 200:
            raise RuntimeError(f"{code} - {result}")
        service.set_cl_socket(cl_socket)
        return service

    def run_server(self) -> None:
        """Listens, announces it on stdout as the frontend expects, and serves each connection."""
        if self.sock_type == "unix":
            self.sock.bind(self.sock_name)
        else:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.sock.bind((self.sock_name, int(self.port)))
        self.sock.settimeout(None if DEBUG else SOCKET_ACCEPT_TIMEOUT)
        self.sock.listen(1)
        announce(self.sock_name, self.port)
        while True:
            cl_socket, _ = self.sock.accept()
            cl_socket.setblocking(True)
            serve = self.handle_connection_async if self.async_comm else self.handle_connection
            serve(cl_socket)


def listen_address(
    kind: str | None, name: str | None, host: str | None, port: int | str | None
) -> tuple[str, int | str]:
    """Where to listen: path and -1, or address and port. What an earlier worker left is removed."""
    if kind == "tcp":
        if port is None:
            raise ValueError("Wrong arguments passed. No socket port given.")
        return host or "127.0.0.1", port
    if kind != "unix":
        raise ValueError("Incomplete data provided: the worker needs a socket type, unix or tcp")
    if name is None:
        raise ValueError("Wrong arguments passed. No socket name given.")
    try:
        os.remove(name)
    except OSError as error:
        if os.path.exists(name):
            raise RuntimeError(f"socket already in use: {name}.") from error
    return name, -1


def announce(name: str, port: int | str) -> None:
    """The lines a frontend waits for."""
    lines = [
        f"Listening on addr:port: {name}:{port}",
        f"[PID]{os.getpid()}",
        "Torch worker started.",
        f"Python runtime: {platform.python_version()}",
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def loaded(service: Any) -> Any:
    """The service; raises if the frontend sent a batch before it loaded a model."""
    if service is None:
        raise RuntimeError("received a batch before any model was loaded")
    return service


def failed(name: str, error: Exception, message: str, code: int) -> Loaded:
    """The answer for a model that cannot be loaded; the log gets the traceback."""
    logger.error("Load model %s exception: %s", name, error, exc_info=error)
    return None, message, code


def main(args: Sequence[str] | None = None) -> None:
    """Runs a worker by its command line."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    given = ArgParser.model_service_worker_args().parse_args(args)
    name, port = given.sock_name, given.port
    if LOCAL_RANK and given.sock_type == "unix" and name:  # Every rank has a socket of its own.
        base, _, number = name.rpartition(".")
        name = f"{base}.{int(number) + LOCAL_RANK}"
    elif LOCAL_RANK and port is not None:
        port = int(port) + LOCAL_RANK
    worker = TorchModelServiceWorker(given.sock_type, name, given.host, port, given.metrics_config, given.async_comm)
    worker.run_server()


if __name__ == "__main__":
    main()
