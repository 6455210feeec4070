"""TorchServe's walk-through, command by command, and our own migration page: what the documents tell users works.

The commands are typed into bash with the original names (`torchserve`, `torch-model-archiver`) standing for ours,
as the optional distribution installs them. The documents' ports become free ones; nothing else in a command is changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from harness.archives import Store
from harness.processes import MARK, marked
from harness.wait import until

ROOT = Path(__file__).parent.parent
DESCRIPTORS = ROOT / "crates/proto/src/generated/descriptors.bin"
PAGE = ROOT / "docs/coming-from/torchserve.md"
WELL_KNOWN = {"inference": 8080, "management": 8081, "metrics": 8082, "grpc_inference": 7070, "grpc_management": 7071}
NAMES = {"torchserve": "torchserve", "torch-model-archiver": "archive"}
ALL_HEALTHY = '{\n  "status": "Healthy"\n}\n'

HANDLER = '''
import json
import os

from weights import scale


class Census:
    """Counts bytes: enough of a model to tell one picture from another."""

    def initialize(self, context):
        folder = context.system_properties["model_dir"]
        with open(os.path.join(folder, context.manifest["model"]["serializedFile"]), "rb") as file:
            self.factor = scale(file.read())
        self.initialized = True

    def handle(self, data, context):
        return [{"bytes": len(row.get("data") or row.get("body")) * self.factor, "batch": len(data)} for row in data]
'''
WEIGHTS = "def scale(blob):\n    return int(blob)\n"


class Desk:
    """A working directory, a shell in it, and ports that were free a moment ago."""

    def __init__(self, binary: Path, home: Path) -> None:
        self.home = home
        self.typed = 0
        self.store = Store(home / "model_store")
        self.ports = free_ports()
        names = home / "bin"
        names.mkdir()
        (names / "jitney").symlink_to(binary)
        for name, command in NAMES.items():
            (names / name).write_text(f'#!/bin/sh\nexec "{binary}" {command} "$@"\n')
            (names / name).chmod(0o755)
        (home / "tmp").mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JITNEY_", "TS_"))}
        self.env = {**kept, "PATH": f"{names}:{kept['PATH']}", "TMPDIR": str(home / "tmp"), MARK: home.name}

    def type(self, command: str) -> str:
        """Runs a command as typed, but for the ports; it must succeed, and its stdout is returned."""
        for name, port in WELL_KNOWN.items():
            command = re.sub(rf"(localhost|127\.0\.0\.1|0\.0\.0\.0):{port}\b", rf"\1:{self.ports[name]}", command)
        # Files of its own for every command, and no pipes: a server that is started here keeps its stdout.
        self.typed += 1
        out_file, err_file = self.home / f"stdout-{self.typed}", self.home / f"stderr-{self.typed}"
        with out_file.open("w") as out, err_file.open("w") as err:
            shell = ["bash", "-ec", command]
            code = subprocess.run(
                shell, cwd=self.home, env=self.env, stdout=out, stderr=err, timeout=120, check=False
            ).returncode
        said = out_file.read_text()
        assert code == 0, f"{command}\nexited with {code}:\n{said}{err_file.read_text()}\n{self.log()}"
        return said

    def configure(self, text: str) -> None:
        """Writes config.properties: the documents' text, and addresses of our own where it has none."""
        for name in ("inference", "management", "metrics"):
            if f"{name}_address" not in text:
                text = f"{name}_address=http://127.0.0.1:{self.ports[name]}\n" + text
            text = text.replace(f"0.0.0.0:{WELL_KNOWN[name]}", f"127.0.0.1:{self.ports[name]}")
        grpc_ports = "".join(f"{name}_port={self.ports[name]}\n" for name in ("grpc_inference", "grpc_management"))
        (self.home / "config.properties").write_text(grpc_ports + text)

    def pack(self, name: str, version: str = "1.0") -> None:
        """The archiver's command line of the documents."""
        (self.home / "weights.pt").write_text("3")
        folder = self.home / "custom_files"
        folder.mkdir(exist_ok=True)
        (folder / "weights.py").write_text(WEIGHTS)
        (folder / "my_handler.py").write_text(HANDLER)
        self.type(
            f"torch-model-archiver --model-name {name} \\\n--version {version} \\\n--serialized-file weights.pt \\\n"
            "--extra-files custom_files/weights.py \\\n--handler custom_files/my_handler.py  \\\n"
            "--export-path model_store -f"
        )

    def describe(self, model: str) -> dict[str, Any]:
        """The model's description, once its one worker is ready."""
        ask = f"curl -s http://localhost:8081/models/{model}"
        until(lambda: '"READY"' in self.type(ask), f"{model} is ready", 60)
        return json.loads(self.type(ask))[0]

    def log(self) -> str:
        """The end of the server's log, for failures."""
        log = self.home / "logs/ts_log.log"
        return log.read_text()[-3000:] if log.exists() else ""


def free_ports() -> dict[str, int]:
    """A port for every name; all are held until all are known, so that no two are the same."""
    held = {name: socket.create_server(("127.0.0.1", 0)) for name in WELL_KNOWN}
    ports = {name: listener.getsockname()[1] for name, listener in held.items()}
    for listener in held.values():
        listener.close()
    return ports


@pytest.fixture
def desk(binary: Path, tmp_path: Path) -> Iterator[Desk]:
    """A place to follow a document; its server is stopped afterwards."""
    home = tmp_path / f"desk-{os.getpid()}-{tmp_path.name}"
    home.mkdir()
    desk = Desk(binary, home)
    yield desk
    desk.type("torchserve --stop --foreground")
    until(lambda: not marked(home.name), "the server is gone with its workers")


@pytest.fixture
def pictures(desk: Desk) -> list[Path]:
    """Two files of different sizes; what is in them does not matter to the handler."""
    files = [desk.home / "kitten.jpg", desk.home / "puppy.jpg"]
    files[0].write_bytes(bytes(1000))
    files[1].write_bytes(bytes(2000))
    return files


DOCUMENTED = {
    "modelName", "modelVersion", "modelUrl", "runtime", "minWorkers", "maxWorkers", "batchSize", "maxBatchDelay",
    "loadedAtStartup", "workers",
}  # fmt: skip
OF_A_WORKER = {"id", "startTime", "status", "memoryUsage", "pid", "gpu", "gpuUsage"}


def check_description(described: dict[str, Any], **expected: Any) -> None:
    """The fields that the documents show, one ready worker, and the values asked for."""
    assert set(described) >= DOCUMENTED
    assert {name: described[name] for name in expected} == expected
    assert (described["runtime"], described["minWorkers"], described["maxWorkers"]) == ("python", 1, 1)
    [worker] = described["workers"]
    assert set(worker) >= OF_A_WORKER
    assert (worker["status"], worker["gpu"]) == ("READY", False)
    assert worker["id"].isdigit() and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", worker["startTime"])


def start_plainly(desk: Desk) -> None:
    """The documents start with a model store and the config.properties that lies there."""
    desk.configure(
        "inference_address=http://0.0.0.0:8080\nmanagement_address=http://0.0.0.0:8081\n"
        "disable_token_authorization=true\nenable_model_api=true\n"
    )
    desk.type("torchserve --start --model-store model_store")
    assert until(lambda: up(desk), "the server answers", 60) == ALL_HEALTHY


def up(desk: Desk) -> str:
    """The ping of the documents; nothing until the server listens."""
    done = subprocess.run(["curl", "-s", f"localhost:{desk.ports['inference']}/ping"], capture_output=True, text=True)
    return done.stdout


def test_batching_is_set_up_through_the_management_api(desk: Desk, pictures: list[Path]) -> None:
    desk.pack("census", "2.0")
    start_plainly(desk)
    said = desk.type(
        'curl -s -X POST "localhost:8081/models?url=census.mar&batch_size=8&max_batch_delay=50&initial_workers=1"'
    )
    # The documents show what 0.12 says to synchronous=false only, which is no longer its default.
    assert json.loads(said) == {"status": 'Model "census" Version: 2.0 registered with 1 initial workers'}
    described = desk.describe("census")
    check_description(
        described, modelName="census", modelVersion="2.0", modelUrl="census.mar", batchSize=8, maxBatchDelay=50,
        loadedAtStartup=False,
    )  # fmt: skip
    said = desk.type("curl -s http://localhost:8080/predictions/census -T kitten.jpg")
    assert json.loads(said) == {"bytes": 3000, "batch": 1}


def test_the_same_through_config_properties(desk: Desk, pictures: list[Path]) -> None:
    desk.pack("census", "2.0")
    desk.configure(
        'disable_token_authorization=true\nload_models=census.mar\nmodels={\\\n  "census": {\\\n    "2.0": {\\\n'
        '        "defaultVersion": true,\\\n        "marName": "census.mar",\\\n        "minWorkers": 1,\\\n'
        '        "maxWorkers": 1,\\\n        "batchSize": 3,\\\n        "maxBatchDelay": 5,\\\n'
        '        "responseTimeout": 120\\\n    }\\\n  }\\\n}\n'
    )
    desk.type("torchserve --start --model-store  model_store  --ts-config  config.properties")
    assert until(lambda: up(desk), "the server answers", 60) == ALL_HEALTHY
    check_description(
        desk.describe("census"), modelUrl="census.mar", batchSize=3, maxBatchDelay=5, loadedAtStartup=True
    )
    said = desk.type("curl -s http://localhost:8080/predictions/census -T kitten.jpg")
    assert json.loads(said) == {"bytes": 3000, "batch": 1}


def test_several_files_go_up_with_one_curl_and_through_grpc(desk: Desk, pictures: list[Path]) -> None:
    desk.pack("faces")
    desk.configure("disable_token_authorization=true\ndefault_workers_per_model=1\n")
    desk.type("torchserve --start --ncs --model-store model_store --models faces.mar")
    until(lambda: up(desk), "the server answers", 60)
    desk.describe("faces")
    said = desk.type('curl -s http://127.0.0.1:8080/predictions/faces -T "{kitten.jpg,puppy.jpg}"')
    assert [json.loads(answer)["bytes"] for answer in re.findall(r"\{[^}]*\}", said)] == [3000, 6000]
    answers = [json.loads(answer)["bytes"] for answer in infer(desk, "faces", "kitten.jpg,puppy.jpg")]
    assert answers == [3000, 6000], "what the sample client of the documents does with a list of files"


def infer(desk: Desk, model: str, files: str) -> Iterator[bytes]:
    """The documents' gRPC client: one call per file, the bytes as the input `data`."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    service = pool.FindServiceByName("org.pytorch.serve.grpc.inference.InferenceAPIsService")
    method = service.FindMethodByName("Predictions")
    question, answer = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
    with grpc.insecure_channel(f"localhost:{desk.ports['grpc_inference']}") as channel:
        ask = channel.unary_unary(
            f"/{service.full_name}/Predictions",
            request_serializer=question.SerializeToString,
            response_deserializer=answer.FromString,
        )
        for name in files.split(","):
            request = question(model_name=model, input={"data": (desk.home / name).read_bytes()})
            yield ask(request, timeout=120).prediction


def test_a_model_comes_from_a_url_as_the_documents_register_it(desk: Desk, pictures: list[Path], web: str) -> None:
    start_plainly(desk)
    query = f"url={web}/remote.mar&batch_size=8&max_batch_delay=10&initial_workers=1&synchronous=false"
    said = desk.type(f'curl -s -X POST "localhost:8081/models?{query}"')
    assert json.loads(said) == {"status": "Processing worker updates..."}
    check_description(desk.describe("remote"), modelUrl=f"{web}/remote.mar", batchSize=8, maxBatchDelay=10)
    assert desk.type("curl -s http://localhost:8080/predictions/remote -T kitten.jpg") == "\0" * 1000


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A web server that has one archive."""
    files = Store(tmp_path / "web")
    files.mar("remote", "echo")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = subprocess.Popen(
        [shutil.which("python3"), "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        cwd=files.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(
        lambda: subprocess.run(["curl", "-sf", f"127.0.0.1:{port}/"], capture_output=True).returncode == 0, "it serves"
    )
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(10)


def commands(page: Path) -> Iterator[str]:
    """The commands of a page's `bash` blocks, one by one."""
    for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        yield from filter(None, block.splitlines())


def test_the_migration_page_works_as_printed(desk: Desk) -> None:
    for name in ("my_model", "other_model"):
        desk.store.mar(name, "echo")
    (desk.home / "input.txt").write_text("as it was")
    (desk.home / "labels.json").write_text("{}")
    (desk.home / "handler.py").write_text("def handle(data, context):\n    return [1] * len(data or [])\n")
    desk.configure("default_workers_per_model=1\nnumber_of_netty_threads=32\n")
    said = {}
    for command in commands(PAGE):
        said[command] = desk.type(command.replace("curl ", "curl -sf ", 1))
        if "--start --ncs" in command:
            until(lambda: up(desk), "the server answers", 60)
    answers = [answer for command, answer in said.items() if "/predictions/" in command]
    assert answers == ["as it was", "as it was"]
    assert any("my_model" in answer for command, answer in said.items() if command.startswith("jitney config"))
    assert (desk.store.path / "my_model.mar").read_bytes()[:2] == b"PK"
