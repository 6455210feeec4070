"""Jitney, in the ways in which it can be used."""

from __future__ import annotations

import os
import pathlib
import shutil
import struct
import subprocess

from ..workloads import GRPC, OBJECTIVE_MS, W1, W2, W5, Load, Workload
from .base import APPS, Ask, Server, Site, framed
from .torchserve import archive, properties, torchserve_settings
from .triton import Triton, repository

ROOT = APPS.parent.parent.parent
YAML = f"batching: {{max_latency_ms: {OBJECTIVE_MS}}}"
BINARY = pathlib.Path(os.environ.get("JITNEY_BIN", "target/release/jitney")).absolute()


class Jitney(Server):
    """What all of them share: one environment, and one program."""

    front = "jitney"
    ours = True
    path = "/predictions/bench"

    def __init__(self) -> None:
        self.environment = "jitney"

    def prepare(self, python: pathlib.Path) -> None:
        if not BINARY.is_file():
            raise RuntimeError("JITNEY_BIN must name the program (make release)")

    def version(self, python: pathlib.Path) -> str:
        told = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
        if not BINARY.is_relative_to(ROOT):
            return told
        command = ["git", "-C", str(ROOT), "log", "-1", "--no-merges", "--format=%s"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        return f'{told}, commit "{commit}"' if commit else told


class JitneyTorchServe(Jitney):
    """TorchServe's command line and config.properties, with its logs."""

    name = "jitney-torchserve"
    title = "`jitney torchserve`"
    loadgen = True

    yaml = ""

    def command(self, site: Site) -> list[str]:
        config = properties(site, self.yaml)
        flags = ["--start", "--foreground", "--ncs", "--disable-token-auth", "--ts-config", str(config)]
        return [str(BINARY), "torchserve", *flags]

    def variables(self, site: Site) -> dict[str, str]:
        return {"JITNEY_PYTHON": str(site.python)}

    def settings(self, workload: Workload) -> str:
        return f"TorchServe's config.properties: {torchserve_settings(workload)}"


class JitneyObjective(JitneyTorchServe):
    """The same with an objective beside the window."""

    name = "jitney-objective"
    title = "`jitney torchserve` with an objective"
    yaml = YAML

    def loads(self, workload: Workload) -> tuple[Load, ...]:
        return workload.loads if workload is W5 else ()

    def settings(self, workload: Workload) -> str:
        return f"{super().settings(workload)}, and in model-config.yaml `{YAML}`"


class JitneyServe(Jitney):
    """The archive under the adaptive policy."""

    name = "jitney-serve"
    title = "`jitney serve`"
    loadgen = True

    def command(self, site: Site) -> list[str]:
        model = archive(site.folder / "bench.mar")
        return serve(site, f"bench={model}", "--batch-size", str(site.workload.batch))

    def settings(self, workload: Workload) -> str:
        objective = f" --max-latency-ms {workload.objective_ms}" if workload.objective_ms else ""
        return f"the same archive, `--batch-size {workload.batch} --queue {workload.queue}{objective}`, so adaptive"


class JitneyDefinition(Jitney):
    """A Python definition under the adaptive policy."""

    name = "jitney-definition"
    title = "`jitney serve`, a definition"
    path = "/bench"

    def loads(self, workload: Workload) -> tuple[Load, ...]:
        return workload.loads if workload.model != "classifier" else ()

    def command(self, site: Site) -> list[str]:
        for name in ("jitney_app.py", "work.py"):
            shutil.copy2(APPS / name, site.folder)
        return serve(site, "jitney_app.py:bench")

    def settings(self, workload: Workload) -> str:
        objective = f", `--max-latency-ms {workload.objective_ms}`" if workload.objective_ms else ""
        return f"`@jitney.batch(max_batch_size={workload.batch})`{objective}, so adaptive"


class JitneyGrpc(JitneyServe):
    """TorchServe's gRPC call, 256 at a time over eight connections."""

    name = "jitney-grpc"
    title = "`jitney serve`, gRPC"

    def loads(self, workload: Workload) -> tuple[Load, ...]:
        return (GRPC,) if workload is W1 else ()

    def ask(self, site: Site) -> Ask:
        """Predictions with the value `data`; the answer is the length of the whole value."""
        value, _ = framed('{"input": "%s"}')
        entry = field(1, b"data") + field(2, value)
        message = field(1, b"bench") + field(3, entry)
        headers = {"content-type": "application/grpc", "te": "trailers"}
        path = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
        return Ask(path, struct.pack(">BI", 0, len(message)) + message, str(len(value)), headers)


class JitneyTriton(Jitney):
    """Triton's own folder: the same configuration, the same model.py, the same requests."""

    name = "jitney-triton"
    title = "`jitney serve`, Triton's model.py"

    def __init__(self) -> None:
        self.environment = TRITON.environment
        self.requirements = TRITON.requirements

    def loads(self, workload: Workload) -> tuple[Load, ...]:
        return super().loads(workload) if workload in (W1, W2) else ()

    def command(self, site: Site) -> list[str]:
        return serve(site, str(repository(site)))

    def settings(self, workload: Workload) -> str:
        return "the folder that Triton serves, untouched"

    def ask(self, site: Site) -> Ask:
        return TRITON.ask(site)


TRITON = Triton()


def field(number: int, value: bytes) -> bytes:
    """A field of a protobuf message; everything here is shorter than 128 bytes or has two bytes of length."""
    count = len(value)
    length = bytes([count]) if count < 128 else bytes([count & 127 | 128, count >> 7])
    return bytes([number << 3 | 2]) + length + value


def serve(site: Site, model: str, *flags: str) -> list[str]:
    """`jitney serve` with the workload's settings."""
    metrics, management, grpc, grpc_management = site.other_ports
    port, grpc = (grpc, site.port) if site.grpc else (site.port, grpc)
    objective = site.workload.objective_ms
    return [
        str(BINARY),
        "serve",
        model,
        *("--port", str(port), "--management-port", str(management), "--metrics-port", str(metrics)),
        *("--grpc-port", str(grpc), "--grpc-management-port", str(grpc_management)),
        *("--python", str(site.python), "--queue", str(site.workload.queue)),
        *(("--max-latency-ms", str(objective)) if objective else ()),
        *flags,
    ]


JITNEY: tuple[Server, ...] = (JitneyServe(), JitneyTorchServe(), JitneyDefinition(), JitneyGrpc(), JitneyObjective())
"""Those that are measured beside every peer."""
JITNEY_TRITON = JitneyTriton()
