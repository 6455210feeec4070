"""Ray Serve: a Python proxy and replicas in actors."""

from __future__ import annotations

from ..workloads import Workload
from .base import APPS, Server, Site


class RayServe(Server):
    """https://github.com/ray-project/ray."""

    name = "ray"
    title = "Ray Serve"
    requirements = ("ray[serve]==2.60.0",)
    start_s = 15.0
    slow = True

    def command(self, site: Site) -> list[str]:
        return [str(site.python), str(APPS / "ray_app.py"), str(site.port), str(site.folder / "r")]

    def variables(self, site: Site) -> dict[str, str]:
        return {"RAY_USAGE_STATS_ENABLED": "0"}

    def settings(self, workload: Workload) -> str:
        return f"max_batch_size {workload.batch}, batch_wait_timeout_s {workload.delay_ms / 1e3:g}, max_ongoing_requests 1000, one replica"
