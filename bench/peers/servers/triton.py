"""Triton with its Python backend, as the wheel of pytriton brings it."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import struct
import subprocess

from ..workloads import BIG_BYTES, W5, Workload
from .base import APPS, Ask, Server, Site, framed

FRAME = '{"inputs":[{"name":"INPUT","shape":[1,1],"datatype":"BYTES","data":["%s"]}]}'


class Triton(Server):
    """https://github.com/triton-inference-server."""

    name = "triton"
    title = "Triton"
    requirements = ("nvidia-pytriton==0.7.0",)
    start_s = 4.0
    front = "tritonserver"
    loadgen = True
    path = "/v2/models/bench/infer"

    def prepare(self, python: pathlib.Path) -> None:
        """The program that runs models must lie beside the backend."""
        home = server_home(python)
        version = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
        if not stub.exists():
            raise RuntimeError(f"the wheel has no Python backend for Python {version}")
        shutil.copy2(stub, home / "backends" / "python")

    def version(self, python: pathlib.Path) -> str:
        """Of the server and of the wheel. A server without models says its version and ends."""
        command = [str(server_home(python) / "bin" / "tritonserver"), "--model-repository=/nonexistent"]
        variables = {"LD_LIBRARY_PATH": libraries(python)}
        done = subprocess.run(
            [*command, "--allow-gpu-metrics=false"], env=variables, capture_output=True, text=True, timeout=60
        )
        found = re.search(r"server_version\s*\|\s*([\d.]+)", done.stdout + done.stderr)
        return f"{found[1] if found else '2'} of nvidia-pytriton {super().version(python)}"

    def command(self, site: Site) -> list[str]:
        home = server_home(site.python)
        return [
            str(home / "bin" / "tritonserver"),
            f"--model-repository={repository(site)}",
            f"--backend-directory={home / 'backends'}",
            "--http-address=127.0.0.1",
            f"--http-port={site.port}",
            "--allow-grpc=false",
            f"--metrics-port={site.other_ports[0]}",
            "--allow-gpu-metrics=false",
        ]

    def variables(self, site: Site) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": libraries(site.python)}

    def settings(self, workload: Workload) -> str:
        queue = f", max_queue_size {workload.queue}" if workload is W5 else ""
        return f"max_batch_size {workload.batch}, dynamic_batching without a delay, as its guide begins{queue}, one instance of the Python backend"

    def ask(self, site: Site) -> Ask:
        if not site.workload.raw:
            body, answer = framed(FRAME)
            return Ask(self.path, body, answer)
        if site.workload.model == "classifier":
            data = struct.pack("<I", len(site.photo)) + site.photo
            return binary(self.path, "BYTES", [1, 1], data, site.photo_class)
        return binary(self.path, "UINT8", [1, BIG_BYTES], b"a" * BIG_BYTES, str(BIG_BYTES))


def binary(path: str, datatype: str, shape: list[int], data: bytes, answer: str) -> Ask:
    """A request whose tensor follows the JSON as it is."""
    parameters = {"binary_data_size": len(data)}
    tensor = {"name": "INPUT", "shape": shape, "datatype": datatype, "parameters": parameters}
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return Ask(path, head + data, answer, headers)


def repository(site: Site) -> pathlib.Path:
    """The folder of the model, with its configuration and its code."""
    model = site.folder / "models" / "bench"
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(config(site.workload))
    shutil.copy2(APPS / "triton_model.py", model / "1" / "model.py")
    shutil.copy2(APPS / "work.py", model / "1")
    return model.parent


def config(workload: Workload) -> str:
    """The model's config.pbtxt."""
    bytes_in = workload.raw and workload.model == "noop"
    kind, dims = ("TYPE_UINT8", -1) if bytes_in else ("TYPE_STRING", 1)
    policy = f"default_queue_policy {{ max_queue_size: {workload.queue} }}" if workload is W5 else ""
    return f"""name: "bench"
backend: "python"
max_batch_size: {workload.batch}
input [ {{ name: "INPUT" data_type: {kind} dims: [ {dims} ] }} ]
output [ {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
dynamic_batching {{ {policy} }}
"""


def packages(python: pathlib.Path) -> pathlib.Path:
    """Where the environment's packages lie."""
    [path] = (python.parent.parent / "lib").glob("python3.*/site-packages")
    return path


def server_home(python: pathlib.Path) -> pathlib.Path:
    """Where the wheel has the server."""
    return packages(python) / "pytriton" / "tritonserver"


def libraries(python: pathlib.Path) -> str:
    """Where the loader finds the wheel's libraries and those of the environment's own Python."""
    code = "import sysconfig as s; print(s.get_config_var('LIBDIR'), s.get_config_var('MULTIARCH') or '', sep='/')"
    own = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return f"{packages(python) / 'nvidia_pytriton.libs'}:{own}"
