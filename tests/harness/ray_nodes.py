"""A Ray cluster of several nodes that share this machine's address and files (`ray_hosts` has nodes with their own)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STORE_BYTES = 80_000_000
START_SECONDS = 300.0


@contextmanager
def ray_nodes(count: int) -> Iterator[Any]:
    """A head without processors, and nodes with one each: `ray.cluster_utils.Cluster`."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        cluster.wait_for_nodes(timeout=START_SECONDS)
        yield cluster
    finally:
        cluster.shutdown()
