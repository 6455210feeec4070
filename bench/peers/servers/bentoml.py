"""BentoML: a Starlette service with an adaptive batcher in it."""

from __future__ import annotations

from ..workloads import Workload
from .base import APPS, Ask, Server, Site
from .litserve import in_json


class BentoML(Server):
    """https://github.com/bentoml/BentoML."""

    name = "bentoml"
    title = "BentoML"
    # 1.4.40 asks for a release of certifi that the package index does not have; both use more of pyparsing than they ask for.
    requirements = ("bentoml==1.4.39", "pyparsing==3.2.5")
    start_s = 5.0
    slow = True
    path = "/predict"

    def command(self, site: Site) -> list[str]:
        program = site.python.parent / "bentoml"
        where = ["--working-dir", str(APPS), "--host", "127.0.0.1", "--port", str(site.port)]
        return [str(program), "serve", "bentoml_app:Work", *where]

    def variables(self, site: Site) -> dict[str, str]:
        return {"BENTOML_HOME": str(site.folder / "bentoml"), "BENTOML_DO_NOT_TRACK": "True"}

    def settings(self, workload: Workload) -> str:
        return f"max_batch_size {workload.batch}, max_latency_ms 100, one worker"

    def ask(self, site: Site) -> Ask:
        return in_json(self.path, site, '{"input": ["%s"]}')
