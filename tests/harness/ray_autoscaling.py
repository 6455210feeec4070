"""A Ray cluster whose autoscaler starts and ends nodes, all on this machine.

The head has no processors. Ray's own autoscaler decides by what is asked for and what is idle; its provider of fake
nodes starts a raylet for each. `ray.cluster_utils.AutoscalingCluster` does the same where nothing else of Ray runs: it
ends all of it first, and needs a file that the wheel does not have.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from harness import processes
from harness.ray_hosts import free_port
from harness.wait import until

STORE_BYTES = 80_000_000
START_SECONDS = 300.0
RAY = Path(sys.executable).with_name("ray")


class AutoscalingCluster:
    """A head, and up to so many nodes with one processor each; a node that is idle goes after some seconds."""

    def __init__(self, nodes_max: int) -> None:
        self.address = f"127.0.0.1:{free_port('127.0.0.1')}"
        self._mark = uuid.uuid4().hex
        self._directory = Path(tempfile.mkdtemp(prefix="jr-"))
        self._environment = {
            **os.environ,
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_AUTH_MODE": "disabled",
            "RAY_FAKE_CLUSTER": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "TMPDIR": str(self._directory),
            processes.MARK: self._mark,
        }
        config = self._directory / "autoscaling.json"
        config.write_text(json.dumps(config_of(self.address, nodes_max)))
        host, _, port = self.address.partition(":")
        flags = [f"--node-ip-address={host}", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
        flags += [f"--object-store-memory={STORE_BYTES}", f"--temp-dir={self._directory}"]
        with open(self._directory / "head.log", "ab") as log:
            subprocess.Popen(
                [RAY, "start", "--head", *flags, f"--autoscaling-config={config}", "--block"],
                env=self._environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def status(self) -> str:
        """What Ray's autoscaler says of its last round; empty before the first one."""
        command = [RAY, "status", "--address", self.address]
        asked = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60)
        return asked.stdout if asked.returncode == 0 and "Autoscaler status" in asked.stdout else ""

    def nodes(self) -> int | None:
        """The nodes that there are or will be, beside the head; none before the first round."""
        said = self.status()
        active, _, rest = said.partition("Pending:")
        pending, _, _ = rest.partition("Recent failures:")
        here = sum(int(count) for count in re.findall(r"^ (\d+) worker$", active, re.MULTILINE))
        coming = len(re.findall(r": worker,", pending))
        return here + coming if said else None

    def waiting(self) -> bool:
        """Whether something waits for a place."""
        _, found, demands = self.status().partition("Pending Demands:")
        return bool(found) and "(no resource demands)" not in demands

    def close(self) -> None:
        """Ends all of it."""
        while left := processes.marked(self._mark):
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        shutil.rmtree(self._directory, ignore_errors=True)


def config_of(address: str, nodes_max: int) -> dict[str, object]:
    """What the autoscaler is told."""
    nothing: dict[str, object] = {
        **{f"{which}_commands": [] for which in ("initialization", "setup", "head_setup", "worker_setup")},
        **{f"{which}_start_ray_commands": [] for which in ("head", "worker")},
        **{"auth": {}, "docker": {}, "file_mounts": {}, "cluster_synced_files": [], "rsync_exclude": []},
        **{"rsync_filter": [], "file_mounts_sync_continuously": False},
    }
    # All nodes have the same address.
    alike = {"use_node_id_as_ip": True, "disable_node_updaters": True, "disable_launch_config_check": True}
    worker = {"CPU": 1, "object_store_memory": STORE_BYTES}
    return {
        **nothing,
        "cluster_name": "fake",
        "max_workers": nodes_max,
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 1.0,
        "provider": {"type": "fake_multinode", "gcs_address": address, "launch_multiple": True, **alike},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "max_workers": 0, "node_config": {}},
            "worker": {"resources": worker, "min_workers": 0, "max_workers": nodes_max, "node_config": {}},
        },
    }


@contextlib.contextmanager
def autoscaling_cluster(nodes_max: int) -> Iterator[AutoscalingCluster]:
    """A cluster that begins with its head alone."""
    cluster = AutoscalingCluster(nodes_max)
    try:
        until(lambda: cluster.nodes() == 0, "the autoscaler's first round", START_SECONDS, poll=0.3)
        yield cluster
    finally:
        cluster.close()
