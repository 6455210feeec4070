"""TorchServe: a Java front and Python workers. `jitney torchserve` reads the same files."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import zipfile

from ..workloads import Workload
from .base import APPS, Server, Site

JAVA = "openjdk-17-jre-headless"
MANIFEST = {
    "createdOn": "01/01/2026 00:00:00",
    "runtime": "python",
    "archiverVersion": "0.12.0",
}


class TorchServe(Server):
    """https://github.com/pytorch/serve."""

    name = "torchserve"
    title = "TorchServe"
    requirements = ("torchserve==0.12.0", "torch-model-archiver==0.12.0")
    start_s = 6.0
    warm_s = 4.0
    warm_requests = 6000  # Java compiles what runs often, and until then it is several times slower.
    front = "java"
    loadgen = True
    path = "/predictions/bench"

    def prepare(self, python: pathlib.Path) -> None:
        """Java, and a torch that the workers can import."""
        if not shutil.which("java"):
            as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
            done = subprocess.run([*as_root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", JAVA])
            if done.returncode or not shutil.which("java"):
                raise RuntimeError(f"it needs Java 17 (Debian's {JAVA}), which could not be installed")
        if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
            raise RuntimeError("its workers import torch, which is not there (see `make setup`)")

    def command(self, site: Site) -> list[str]:
        config = properties(site)
        program = str(site.python.parent / "torchserve")
        return [program, "--start", "--foreground", "--ncs", "--disable-token-auth", "--ts-config", str(config)]

    def settings(self, workload: Workload) -> str:
        return torchserve_settings(workload)


def properties(site: Site, yaml: str = "") -> pathlib.Path:
    """Writes the archive and a config.properties; returns the path of the latter."""
    workload = site.workload
    store = site.folder / "store"
    store.mkdir(exist_ok=True)
    archive(store / "bench.mar", yaml)
    metrics, management, *rest = site.other_ports
    model = {
        "defaultVersion": True,
        "marName": "bench.mar",
        "minWorkers": 1,
        "maxWorkers": 1,
        "batchSize": workload.batch,
        "maxBatchDelay": max(1, workload.delay_ms),
        "responseTimeout": 120,
    }
    config = site.folder / "config.properties"
    config.write_text(
        "\n".join(
            [
                f"inference_address=http://127.0.0.1:{site.port}",
                f"management_address=http://127.0.0.1:{management}",
                f"metrics_address=http://127.0.0.1:{metrics}",
                f"grpc_inference_port={rest[0]}",
                f"grpc_management_port={rest[1]}",
                f"model_store={store}",
                f"job_queue_size={workload.queue}",
                "load_models=bench.mar",
                f"models={json.dumps({'bench': {'1.0': model}})}",
            ]
        )
        + "\n"
    )
    return config


def archive(path: pathlib.Path, yaml: str = "") -> pathlib.Path:
    """The workload's handler as an archive."""
    model = {"modelName": "bench", "handler": "handler.py", "modelVersion": "1.0"}
    with zipfile.ZipFile(path, "w") as out:
        if yaml:
            model["configFile"] = "model-config.yaml"
            out.writestr("model-config.yaml", yaml + "\n")
        out.writestr("MAR-INF/MANIFEST.json", json.dumps({**MANIFEST, "model": model}))
        for name in ("handler.py", "work.py"):
            out.write(APPS / name, name)
    return path


def torchserve_settings(workload: Workload) -> str:
    """The settings of config.properties in words."""
    return f"batchSize {workload.batch}, maxBatchDelay {max(1, workload.delay_ms)} ms, one worker, job_queue_size {workload.queue}, logs as they come"
