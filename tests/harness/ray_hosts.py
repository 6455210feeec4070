"""A Ray cluster of several hosts on one machine: namespaces with addresses and files of their own, a node in each.

The head has no processors and runs in the machine's own namespace, beside the server under test. A host can be killed
(all its processes at once) or cut off (its link goes down, and nobody is told), and a new one can take its place.
Needs root, `ip` and Ray; `missing()` says what is not there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.wait import until

STORE_BYTES = 80_000_000
START_SECONDS = 120.0


def missing() -> str | None:
    """Why there can be no such cluster here; None if there can."""
    if find_spec("ray") is None:
        return "needs ray"
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "needs root and ip, for network namespaces"
    name = f"jr{os.getpid() % 10000}x"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "needs network namespaces"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


def run(*command: str) -> None:
    """Runs a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"


class RayHost:
    """One node in a namespace of its own."""

    def __init__(self, cluster: RayHosts, number: int, resources: dict[str, float]) -> None:
        self.cluster, self.number = cluster, number
        self.name = f"{cluster.prefix}n{number}"
        self.address = f"{cluster.network}.{10 + number}"
        link = f"{cluster.prefix}v{number}"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", link, "master", cluster.bridge, "up")
        for command in (
            ("addr", "add", f"{self.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            run("ip", "-n", self.name, *command)
        own = {"num-cpus": "1", "resources": json.dumps({f"host{number}": 1, **resources})}
        disk = f'mount --make-rprivate / && mount -t tmpfs none {cluster.directory} && exec "$@"'
        before = ("ip", "netns", "exec", self.name, "unshare", "--mount", "sh", "-c", disk, "sh")
        self.process = cluster.start(self.address, own, before)

    def processes(self) -> list[int]:
        """Everything that runs on this host."""
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True).stdout
        return [int(word) for word in found.split()]

    def kill(self) -> None:
        """Ends everything on this host at once."""
        while left := self.processes():
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.process.poll()
            if all(is_zombie(process) for process in left):
                break
        self.process.wait()

    def cut_off(self) -> None:
        """Takes its link down: packets are lost, and no connection hears of it."""
        run("ip", "link", "set", f"{self.cluster.prefix}v{self.number}", "down")

    def remove(self) -> None:
        """Ends it and its namespace."""
        self.kill()
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        subprocess.run(["ip", "link", "del", f"{self.cluster.prefix}v{self.number}"], capture_output=True)


def is_zombie(process: int) -> bool:
    """Whether it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][:1] in "ZX"
    except OSError:
        return True


class RayHosts:
    """The cluster: a head without processors, and hosts."""

    def __init__(self) -> None:
        number = os.getpid() + 1000 * next(CLUSTERS)
        self.prefix = f"jr{number % 10000}"
        self.network = f"10.{64 + number % 64}.{number // 64 % 256}"
        self.bridge = f"{self.prefix}b"
        self.head_address = f"{self.network}.1"
        self.directory = tempfile.mkdtemp(prefix="jr-")
        self.hosts: list[RayHost] = []
        self._count = 0
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self.head_address}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        self.port = free_port(self.head_address)
        head = {"head": "", "port": str(self.port), "num-cpus": "0", "include-dashboard": "false"}
        self.head = self.start(self.head_address, head)
        self.wait_for(0)

    @property
    def address(self) -> str:
        """What `--ray` is given."""
        return f"{self.head_address}:{self.port}"

    def start(self, address: str, own: dict[str, str], before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """Starts a node that stays in the foreground."""
        flags = {"node-ip-address": address, "object-store-memory": str(STORE_BYTES), "block": "", **own}
        if "head" in own:
            flags["temp-dir"] = self.directory
        else:
            flags["address"] = self.address
        words = [f"--{name}={value}" if value else f"--{name}" for name, value in flags.items()]
        ray = str(Path(sys.executable).with_name("ray"))
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", **FAST}
        environment["TMPDIR"] = self.directory
        with open(Path(self.directory) / f"{address}.log", "ab") as log:
            return subprocess.Popen(
                [*before, ray, "start", *words], env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def add(self, resources: dict[str, float] | None = None) -> RayHost:
        """A new host; does not wait until it is part of the cluster."""
        self._count += 1
        self.hosts.append(RayHost(self, self._count, resources or {}))
        return self.hosts[-1]

    def wait_for(self, hosts: int) -> None:
        """Waits until the cluster has so many hosts beside its head."""
        until(lambda: len(self.alive()) == hosts + 1, f"{hosts} hosts", START_SECONDS, poll=0.3)

    def alive(self) -> list[dict[str, Any]]:
        """The nodes that the cluster knows."""
        code = (
            "import json, ray, sys; from ray._private.state import GlobalState;"
            "from ray._raylet import GcsClientOptions;"
            "state = GlobalState(); state._initialize_global_state(GcsClientOptions.create(sys.argv[1], None,"
            " allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False));"
            "print(json.dumps([one['NodeManagerAddress'] for one in state.node_table() if one['Alive']]))"
        )
        asked = subprocess.run(
            [sys.executable, "-c", code, self.address], capture_output=True, text=True,
            env={**os.environ, "RAY_AUTH_MODE": "disabled"}, timeout=60,
        )  # fmt: skip
        return list(json.loads(asked.stdout)) if asked.returncode == 0 else []

    def close(self) -> None:
        """Ends all of it."""
        for host in self.hosts:
            host.remove()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.head.pid, signal.SIGTERM)
        try:
            self.head.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.head.pid, signal.SIGKILL)
            self.head.wait()
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


CLUSTERS = itertools.count()
FAST = {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}
"""The cluster notices lost hosts sooner than by default."""


def free_port(host: str) -> int:
    """A port that nothing uses."""
    import socket

    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def ray_hosts(count: int) -> Iterator[RayHosts]:
    """A cluster with so many hosts."""
    cluster = RayHosts()
    try:
        for _ in range(count):
            cluster.add()
        cluster.wait_for(count)
        yield cluster
    finally:
        cluster.close()
