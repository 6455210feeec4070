"""`python -m jitney.cluster.ray_placement ADDRESS`: the process beside the server that knows Ray.

It takes orders from standard input and tells events on standard output, a JSON object on each line (ADR 0026). An order
starts an actor somewhere in the cluster, which holds one worker (`ray_node`), or ends one. Actors are detached:
they outlive this process, and end with the server, to which they are connected.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import platform
import shutil
import socket
import sys
import tarfile
import tempfile
import threading
import uuid
from typing import Any, TextIO

from jitney.cluster.ray_files import DirectoryTooLarge, fingerprint, pack

NAMESPACE = "jitney"
PENDING_FIRST_SECONDS, PENDING_EVERY_SECONDS = 2.0, 10.0
CONNECT_SECONDS = 10.0
END_SECONDS = 3.0
"""How long an actor whose connection was closed may take to end by itself."""
UNUSED_SECONDS = 20.0
FETCH_SECONDS = 600.0
WHY_CHARS = 600
ORDERS_MAX = 1024
KEPT_MAX = 64
"""Directories that stay in the cluster's memory for the next worker."""


def main(arguments: list[str] | None = None) -> int:
    """Joins the cluster and takes orders until the input ends."""
    address = (sys.argv[1:] if arguments is None else arguments)[0]
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What Ray prints is no event.
    try:
        here = join(address)
    except Exception as error:
        tell(events, event="failed", why=why_not(address, error))
        return 1
    import ray

    tell(events, event="ready", address=here, ray=ray.__version__)
    asyncio.run(SideCar(events).run())
    return 0


def tell(events: TextIO, **event: Any) -> None:
    """Writes one event."""
    if "why" in event:
        event["why"] = " ".join(str(event["why"]).split())[:WHY_CHARS]
    events.write(json.dumps(event) + "\n")
    events.flush()


def join(address: str) -> str:
    """Becomes part of the cluster; returns the address of this machine in it."""
    import ray

    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    ray.init(
        address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="WARNING", configure_logging=True
    )  # fmt: skip
    return str(ray.util.get_node_ip_address())


def why_not(address: str, error: Exception) -> str:
    """What went wrong, and what to do about it."""
    if isinstance(error, ImportError):
        return f"--ray needs Ray in the server's Python ({error}): {sys.executable} -m pip install 'ray[default]'"
    text = str(error)
    if "Version mismatch" in text or ("version" in text.lower() and "Python" in text):
        return (
            f"the cluster at {address} has another version of Ray or Python than {sys.executable} "
            f"(Python {platform.python_version()}): choose a fitting one with --python. Ray says: {text}"
        )
    if address == "auto":
        return f"no Ray cluster was found on this machine ({text}): start a node with `ray start`, or name host:port"
    return (
        f"the Ray cluster at {address} cannot be joined ({type(error).__name__}: {text}): is its head running, and has "
        "this machine a node of it (`ray start --address=HOST:PORT --num-cpus=0`)?"
    )


class NodeTrouble(Exception):
    """A node could not run a worker."""


class SideCar:
    """Starts and ends actors."""

    def __init__(self, events: TextIO) -> None:
        self._events = events
        self._actors: dict[int, asyncio.Task[None]] = {}
        self._files: dict[str, tuple[str, Any]] = {}
        self._seen: dict[str, str] = {}
        self._packing = asyncio.Lock()
        self._run = uuid.uuid4().hex[:12]

    async def run(self) -> None:
        """Takes orders until the input ends; then what waits for a place waits no longer."""
        loop = asyncio.get_running_loop()
        orders: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(ORDERS_MAX)

        def read() -> None:
            for line in sys.stdin:
                asyncio.run_coroutine_threadsafe(orders.put(json.loads(line)), loop).result()
            asyncio.run_coroutine_threadsafe(orders.put(None), loop).result()

        threading.Thread(target=read, daemon=True).start()
        while (order := await orders.get()) is not None:
            number = order["id"]
            if order["do"] == "start":
                self._actors[number] = asyncio.ensure_future(self._hold(number, order))
            elif number in self._actors:
                self._actors.pop(number).cancel()
        for task in self._actors.values():
            task.cancel()
        await asyncio.gather(*self._actors.values(), return_exceptions=True)

    async def _hold(self, number: int, order: dict[str, Any]) -> None:
        """One actor, until it has ended or is not wanted any more."""
        why = "its actor ended"
        try:
            await self._start(number, order)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            why = self._explain(error)
        tell(self._events, event="ended", id=number, why=why)

    async def _start(self, number: int, order: dict[str, Any]) -> None:
        import ray

        files = {}
        for purpose, directory in order["files"].items():
            files[purpose] = await self._shipped(directory)
        wanted = order["resources"]
        actor_class = ray.remote(make_actor())
        actor = actor_class.options(
            name=f"{order['name']} {self._run}-{number}",
            lifetime="detached",
            max_restarts=0,
            num_cpus=wanted["num_cpus"],
            num_gpus=wanted["num_gpus"] or None,
            resources=wanted["resources"] or None,
        ).remote()
        placed = running = None
        try:
            placed = asyncio.ensure_future(as_future(actor.node.remote()))
            wait = PENDING_FIRST_SECONDS
            while not (await asyncio.wait((placed,), timeout=wait))[0]:
                tell(self._events, event="pending", id=number, why=await self._lacking(wanted))
                wait = PENDING_EVERY_SECONDS
            tell(self._events, event="placed", id=number, node=await placed)
            # The files in a list: otherwise Ray would bring them even where they are already.
            running = asyncio.ensure_future(as_future(actor.hold.remote(order["server"], order["token"], [files])))
            trouble = await running
            if trouble:
                raise NodeTrouble(trouble)
        finally:
            await asyncio.shield(self._end(actor, running))

    @staticmethod
    async def _end(actor: Any, running: asyncio.Future[Any] | None) -> None:
        """Makes sure that an actor is gone; one that was placed ends by itself."""
        import ray

        if running is not None:
            await asyncio.wait((running,), timeout=END_SECONDS)
        ray.kill(actor, no_restart=True)

    async def _shipped(self, directory: str) -> tuple[str, Any]:
        """A directory in the cluster's memory: its hash, and the reference to its bytes. Equal ones are there once."""
        import ray

        async with self._packing:
            loop = asyncio.get_running_loop()
            seen = await loop.run_in_executor(None, fingerprint, directory)
            if seen not in self._seen:
                digest, packed = await loop.run_in_executor(None, pack, directory)
                forget_oldest(self._seen)
                self._seen[seen] = digest
                if digest not in self._files:
                    forget_oldest(self._files)
                    self._files[digest] = (digest, ray.put(packed))
            digest = self._seen[seen]
            if digest not in self._files:  # Forgotten meanwhile.
                del self._seen[seen]
                raise NodeTrouble(f"{directory} was not kept in the cluster's memory; it is sent again")
            return self._files[digest]

    async def _lacking(self, wanted: dict[str, Any]) -> str:
        """Why an actor has no place yet."""
        import ray

        needs = {"CPU": wanted["num_cpus"], "GPU": wanted["num_gpus"], **wanted["resources"]}
        needs = {name: amount for name, amount in needs.items() if amount}
        shown = ", ".join(f"{name} {amount:g}" for name, amount in needs.items()) or "nothing"
        nodes = await asyncio.get_running_loop().run_in_executor(None, ray.nodes)
        alive = [node["Resources"] for node in nodes if node["Alive"]]
        fitting = [one for one in alive if all(one.get(name, 0) >= amount for name, amount in needs.items())]
        if not fitting:
            return f"no node of the cluster has {shown}; it starts when one joins"
        which = f"the {len(fitting)} nodes" if len(fitting) > 1 else "the only node"
        return f"waiting for a place: {which} with {shown} may be in use"

    @staticmethod
    def _explain(error: Exception) -> str:
        import ray

        if isinstance(error, (DirectoryTooLarge, NodeTrouble)):
            return str(error)
        if isinstance(error, ray.exceptions.RayActorError):
            return f"its actor or node was lost: {error}"
        return f"{type(error).__name__}: {error}"


def forget_oldest(kept: dict[str, Any]) -> None:
    """Makes room for one more."""
    while len(kept) >= KEPT_MAX:
        kept.pop(next(iter(kept)))


async def as_future(reference: Any) -> Any:
    """What a reference refers to, once it is there."""
    return await reference


def make_actor() -> type:
    """The class of the actors. It is made here so that it travels by value: nodes have no jitney of their own."""

    class Actor:
        """Holds one worker."""

        def __init__(self) -> None:
            # Whoever asked for it may be gone: it must not keep its place for nothing.
            self._unused = threading.Timer(UNUSED_SECONDS, os._exit, (0,))
            self._unused.daemon = True
            self._unused.start()

        def node(self) -> str:
            """The address of the node."""
            import ray

            return str(ray.util.get_node_ip_address())

        def hold(self, server: dict[str, Any], token: str, files: list[dict[str, tuple[str, Any]]]) -> str:
            """Runs the worker until it has ended; returns why that did not work, if it did not.

            The actor ends soon after, also where nobody is left to end it.
            """
            import ray

            self._unused.cancel()
            _, packages = files[0]["packages"]
            first = tempfile.mkdtemp(prefix="jitney-ray-start-")
            with tarfile.open(fileobj=io.BytesIO(ray.get(packages, timeout=FETCH_SECONDS))) as archive:
                archive.extractall(first)
            sys.path.insert(0, first)
            from jitney.cluster import ray_files, ray_node

            held = ray_files.NodeFiles()

            def unpack() -> dict[str, str]:
                return {
                    name: held.unpack(digest, lambda one=one: ray.get(one, timeout=FETCH_SECONDS))
                    for name, (digest, one) in files[0].items()
                }

            try:
                address = ray_node.ServerAddress(server["host"], server["port"], server["certificate"])
                ray_node.run(address, token, self.node(), unpack)
            except OSError as error:
                return (
                    f"node {self.node()} has no connection to the server at {server['host']}:{server['port']} "
                    f"({error!r}); worker_host names another address of the server"
                )
            finally:
                held.close()
                shutil.rmtree(first, ignore_errors=True)
                threading.Timer(END_SECONDS, os._exit, (0,)).start()
            return ""

    return Actor


if __name__ == "__main__":
    sys.exit(main())
