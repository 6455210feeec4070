"""mosec: a Rust front and Python workers."""

from __future__ import annotations

from ..workloads import Workload
from .base import APPS, Server, Site


class Mosec(Server):
    """https://github.com/mosecorg/mosec."""

    name = "mosec"
    title = "mosec"
    requirements = ("mosec==0.9.8",)
    front = "mosec"
    path = "/inference"

    def command(self, site: Site) -> list[str]:
        return [str(site.python), str(APPS / "mosec_app.py"), "--address", "127.0.0.1", "--port", str(site.port)]

    def settings(self, workload: Workload) -> str:
        return f"max_batch_size {workload.batch}, max_wait_time {max(1, workload.delay_ms)} ms, one worker; room for 1,024 requests, as it comes"
