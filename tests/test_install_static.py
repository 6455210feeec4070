"""The static program in a root file system that holds nothing else: it serves an ONNX file, and says what it lacks."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.artefacts import ROOT, artefact
from harness.remote import remote_files
from harness.server import Server

pytestmark = pytest.mark.heavy

MAGIKA = ROOT / "models" / "magika"
NAMESPACE = ("unshare", "--user", "--map-root-user")
RUN_SECONDS = 60


class EmptyRoot:
    """A root file system with the program, a model and an empty /tmp."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "tmp").mkdir(parents=True)
        shutil.copy(artefact(f"jitney-*-{platform.machine()}-linux-static"), path / "jitney")
        for source, name in (
            (next(MAGIKA.glob("*.onnx")), "magika.onnx"),
            (next(MAGIKA.glob("*.yaml")), "magika.yaml"),
        ):
            shutil.copy(source, path / name)
        shutil.copy(MAGIKA / "labels.txt", path)

    def enter(self, *, proc: bool) -> list[str]:
        """The command that runs another one in it."""
        if not proc:
            return [*NAMESPACE, f"--root={self.path}", "--wd=/"]
        (self.path / "proc").mkdir(exist_ok=True)
        script = f'mount --rbind /proc "{self.path}/proc" && exec chroot "{self.path}" "$0" "$@"'
        return [*NAMESPACE, "--mount", "sh", "-c", script]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs the program in it, without any variable."""
        command = [*self.enter(proc=False), "/jitney", *arguments]
        env = {"PATH": "/usr/bin:/bin"}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=RUN_SECONDS)


@pytest.fixture
def root(tmp_path: Path) -> EmptyRoot:
    """A root of the test's own."""
    return EmptyRoot(tmp_path / "root")


@pytest.fixture
def inside(root: EmptyRoot, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers in the empty root."""
    servers: list[Server] = []

    def start(*arguments: str, proc: bool = False) -> Server:
        home = tmp_path / f"server-{len(servers)}"
        server = Server(Path("/jitney"), home, arguments, under=root.enter(proc=proc))
        servers.append(server)
        return server.started()

    yield start
    for server in servers:
        server.end()


@pytest.mark.parametrize("proc", [False, True], ids=["nothing", "proc"])
def test_an_onnx_file_is_served_where_there_is_nothing_else(inside, proc: bool) -> None:
    server = inside("serve", "/magika.onnx", proc=proc)
    answer = server.predict("magika", (ROOT / "Cargo.toml").read_bytes())
    assert max(answer.json(), key=answer.json().get) == "toml", answer.text
    server.logged("this is the static build: the built-in engine only")


def test_a_model_is_fetched_by_the_name_of_its_host(root: EmptyRoot, inside) -> None:
    (root.path / "etc").mkdir()
    (root.path / "etc/hosts").write_text("127.0.0.1 models.example\n")
    single = (ROOT / "crates/onnx/src/testdata/single.onnx").read_bytes()
    with remote_files() as there:
        there.files["/single.onnx"] = single
        port = there.base.rpartition(":")[2]
        server = inside("serve", f"http://models.example:{port}/single.onnx", "--model-store", "/tmp")
        assert server.ready("single")


def test_a_name_that_is_not_known_is_named(root: EmptyRoot) -> None:
    done = root.run("serve", "http://nowhere.invalid/model.onnx", "--model-store", "/tmp", "--port", "0")
    assert done.returncode == 1 and "nowhere.invalid" in done.stderr, done.stderr


def test_it_says_that_it_has_the_built_in_engine_only(root: EmptyRoot) -> None:
    assert "this is the static build: the built-in engine only" in root.run("onnx").stdout
    refused = root.run("onnx", "install", "--to", "/tmp")
    assert refused.returncode == 1 and "the static build cannot load ONNX Runtime" in refused.stderr
    wanted = root.run("serve", "/magika.onnx", "--onnx-engine", "onnxruntime", "--port", "0")
    assert wanted.returncode == 1 and "this is the static build" in wanted.stderr, wanted.stderr
