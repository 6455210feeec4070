"""LitServe: FastAPI in front of Python workers."""

from __future__ import annotations

import base64

from ..workloads import BIG_BYTES, Workload
from .base import APPS, Ask, Server, Site, framed


class LitServe(Server):
    """https://github.com/Lightning-AI/LitServe."""

    name = "litserve"
    title = "LitServe"
    requirements = ("litserve==0.2.19",)
    start_s = 4.0
    slow = True
    path = "/predict"

    def command(self, site: Site) -> list[str]:
        return [str(site.python), str(APPS / "litserve_app.py"), str(site.port)]

    def settings(self, workload: Workload) -> str:
        return f"max_batch_size {workload.batch}, batch_timeout {workload.delay_ms / 1e3:g} s, one worker"

    def ask(self, site: Site) -> Ask:
        return in_json(self.path, site, '{"input": "%s"}')


def in_json(path: str, site: Site, frame: str) -> Ask:
    """Large inputs inside JSON: pictures in base64, and text as it is."""
    if site.workload.model == "classifier":
        picture = frame % base64.b64encode(site.photo).decode()
        return Ask(path, picture.encode(), site.photo_class)
    body, answer = framed(frame, BIG_BYTES) if site.workload.raw else framed(frame)
    return Ask(path, body, answer)
