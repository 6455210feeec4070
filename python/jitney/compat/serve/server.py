"""The server of `serve.run`: one process for all applications, which come and go while it runs.

An application is packed into model directories of the server's own store and registered there, its parts first. A new
one of the same name is a new version: it serves once it is loaded, and the old one is drained then.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitney.call.errors import RemoteError
from jitney.client import Client
from jitney.compat.serve.build import Routed, remarks
from jitney.compat.serve.config import HTTPOptions
from jitney.compat.serve.deployment import logger
from jitney.compat.serve.exceptions import RayServeException
from jitney.compat.serve.handle import DeploymentHandle
from jitney.compat.serve.replica import Replica
from jitney.definition.application import graph
from jitney.handle.running import ServerProcess, Session
from jitney.machine.process import find_program, is_interactive
from jitney.packing import by_value
from jitney.packing.pack import pack
from jitney.wire.address import read_url

PORTS = ("management-port", "metrics-port", "grpc-port", "grpc-management-port")
LOAD_SECONDS = 24 * 3600.0
SEEN_SECONDS = 30.0


@dataclass
class Deployed:
    """An application that is served."""

    name: str
    route_prefix: str | None
    version: str
    models: dict[str, str]
    """The models, by the names of their deployments; the root is the last one."""
    since: float = field(default_factory=time.time)

    @property
    def root(self) -> str:
        """The deployment that requests come to."""
        return list(self.models)[-1]


class SeenServer:
    """The server as one of its replicas sees it, by what the program that started it has written down."""

    def __init__(self, state: str) -> None:
        told = json.loads(Path(state).read_text(encoding="utf-8"))
        self.applications = {name: Deployed(**one) for name, one in told["applications"].items()}
        self._client = Client(told["management"], timeout=SEEN_SECONDS)

    def workers(self, model: str, version: str) -> list[dict[str, Any]]:
        """The workers of a model."""
        found: list[dict[str, Any]] = self._client.describe(model, version)[0].get("workers", [])
        return found


class Server(SeenServer):
    """A running server and what it serves."""

    def __init__(self, http: HTTPOptions) -> None:
        directory = tempfile.mkdtemp(prefix="jitney-serve-")
        self._store = Path(directory, "models")
        self._store.mkdir()
        self._directory = directory
        self.applications: dict[str, Deployed] = {}
        self._versions = 0
        try:
            self._process = ServerProcess(self._command(http), ".", directory, of_cells=is_interactive())
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.url, management = self._process.addresses["Inference"], self._process.addresses["Management"]
        self.session = Session(read_url(self.url))
        self._client = Client(management, timeout=LOAD_SECONDS)
        self._management = management
        self.state = str(Path(directory, "applications.json"))
        self._tell()
        atexit.register(self.close)

    def _command(self, http: HTTPOptions) -> list[str]:
        command = [find_program(None), "serve", "--model-store", str(self._store), "--until-eof", "--debug-errors"]
        command += ["--python", sys.executable, "--port", str(http.port), "--host", http.host or "127.0.0.1"]
        command += ["--management-host", "127.0.0.1"]
        for flag in PORTS:
            command += [f"--{flag}", "0"]
        if http.ssl_certfile and http.ssl_keyfile:
            command += ["--tls-cert", http.ssl_certfile, "--tls-key", http.ssl_keyfile]
        return command

    def deploy(self, routed: Any, name: str, route_prefix: str | None) -> Deployed:
        """Serves an application, in place of the one that had its name."""
        application = graph(routed)
        for part in application.parts:
            if isinstance(part.definition.target, type) and issubclass(part.definition.target, Replica):
                for remark in remarks(part.definition.target.deployment):
                    logger.warning("%s", remark)
        self._versions += 1
        version = f"{self._versions}.0"
        source = by_value.write(routed, self._directory)
        out = self._store / f"{self._versions}"
        told = pack(application, source.spec, source.directory, out, version)
        models = {part.name.removeprefix(f"{name}."): part.name for part in application.parts}
        deployed = Deployed(name, route_prefix, version, models)
        self._make_room(deployed)
        registered: list[str] = []
        try:
            for part, directory in zip(application.parts, [*(one["directory"] for one in told["parts"]), str(out)]):
                # A number here would win over the two between which the load decides.
                workers = {"initial_workers": 1} if part.definition.options.workers is None else {}
                self._client.register(Path(directory).name, synchronous="true", **workers)
                registered.append(part.name)
        except RemoteError as error:
            for model in reversed(registered):
                self._client.unregister(model, version)
            raise RayServeException(f"the application {name!r} did not start: {error}; see the server's log") from None
        old = self.applications.get(name)
        for model in registered:
            self._client.set_default(model, version)
        self.applications[name] = deployed
        self._tell()
        if old is not None:
            self._end(old)
        return deployed

    def _make_room(self, new: Deployed) -> None:
        """Ends the application of this name first where both want the same paths. One whose root has the same name
        is replaced without a gap instead, since its models are new versions."""
        old = self.applications.get(new.name)
        if old is not None and old.route_prefix is not None and old.models[old.root] != new.models[new.root]:
            self.delete(new.name)

    def share(self, model: str, shares: dict[str, float]) -> None:
        """Lets other models answer the requests of this one, by their shares."""
        self._client.set_traffic(model, shares)

    def delete(self, name: str) -> None:
        """Ends an application."""
        deployed = self.applications.get(name)
        if deployed is None:
            raise RayServeException(f"Application {name!r} does not exist.")
        try:
            self._end(deployed)
        except RemoteError as error:  # Another application calls it.
            raise RayServeException(f"the application {name!r} stays: {error}") from None
        del self.applications[name]
        self._tell()

    def _end(self, deployed: Deployed) -> None:
        """Drains the models of an application, those that call others first."""
        for model in reversed(list(deployed.models.values())):
            self._client.unregister(model, deployed.version)

    def _tell(self) -> None:
        """Writes down what is served, for replicas that ask: at once, so that nobody reads half of it."""
        told = {name: dataclasses.asdict(one) for name, one in self.applications.items()}
        new = Path(f"{self.state}.new")
        new.write_text(json.dumps({"management": self._management, "applications": told}), encoding="utf-8")
        new.rename(self.state)

    def handle(self, deployment: str, app_name: str) -> DeploymentHandle:
        """The handle of a deployment."""
        deployed = self.applications.get(app_name)
        if deployed is None:
            raise RayServeException(f"Application {app_name!r} does not exist.")
        model = deployed.models.get(deployment)
        if model is None:
            known = ", ".join(deployed.models)
            raise RayServeException(f"the application {app_name!r} has no deployment {deployment!r}; it has: {known}")
        return DeploymentHandle(deployment, app_name, lambda: self.session.model(model))

    def close(self) -> None:
        """Ends the server after it has answered what it has accepted."""
        atexit.unregister(self.close)
        self._client.close()
        self.session.close()
        self._process.close()


def routed(application: Any, name: str, route_prefix: str | None, state: str | None = None) -> Routed:
    """An application with its name and prefix, checked."""
    if route_prefix is not None and not route_prefix.startswith("/"):
        raise ValueError(f"route_prefix must begin with /, not {route_prefix!r}")
    if not name:
        raise RayServeException("the application's name cannot be empty")
    return Routed(application, name, route_prefix, state)
