"""The command lines of TorchServe's launcher and of its Python worker, as parsers (see `ts.protocol`)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


class ArgParser:
    """Where the parsers are made."""

    @staticmethod
    def ts_parser() -> argparse.ArgumentParser:
        """The parser of `torchserve`."""
        parser = argparse.ArgumentParser(prog="torchserve", description="Start or stop the model server.")
        action = parser.add_mutually_exclusive_group(required=False)
        action.add_argument("-v", "--version", action="store_true", help="print the version")
        action.add_argument("--start", action="store_true", help="start the server")
        action.add_argument("--stop", action="store_true", help="stop the server")
        add = parser.add_argument
        add("--ts-config", help="configuration file")
        add("--model-store", help="directory or bucket the models are in")
        add("--workflow-store", help="directory the workflows are in [the model store]")
        add("--models", nargs="+", metavar="MODEL", help="models to load at the start: NAME=ARCHIVE, ARCHIVE or all")
        add("--log-config", help="configuration of the log")
        add("--cpp-log-config", help="configuration of the C++ backend's log")
        add("--foreground", action="store_true", help="stay until the server ends")
        add("--no-config-snapshots", "--ncs", action="store_true", help="write no snapshots")
        add("--plugins-path", "--ppath", help="plugins, separated by commas")
        add("--disable-token-auth", "--dt", action="store_true", help="require no token")
        add("--enable-model-api", action="store_true", help="allow models to be registered while the server runs")
        return parser

    @staticmethod
    def model_service_worker_args() -> argparse.ArgumentParser:
        """The parser of `ts/model_service_worker.py`."""
        parser = argparse.ArgumentParser(prog="model-server-worker", description="Serve one model over a socket.")
        add = parser.add_argument
        add("--sock-type", required=True, choices=["unix", "tcp"], help="kind of socket")
        add("--sock-name", help="path of a unix socket")
        add("--host", help="address of a tcp socket [127.0.0.1]")
        add("--port", help="port of a tcp socket")
        add("--metrics-config", help="metrics file")
        add("--async", dest="async_comm", action="store_true", help="the handler is asynchronous")
        return parser

    @staticmethod
    def extract_args(args: Sequence[str] | None = None) -> argparse.Namespace:
        """The launcher's arguments; from the process's own command line unless given."""
        return ArgParser.ts_parser().parse_args(args)
