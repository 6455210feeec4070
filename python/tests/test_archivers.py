"""model_archiver and workflow_archiver: the same archives as ``jitney archive`` makes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import wire

import workflow_archiver
from model_archiver import ModelArchiver, ModelArchiverConfig, model_packaging
from model_archiver.manifest_components.manifest import RuntimeType
from model_archiver.model_archiver_error import ModelArchiverError
from model_archiver.model_packaging_utils import ModelExportUtils
from workflow_archiver import WorkflowArchiver, WorkflowArchiverConfig
from workflow_archiver.workflow_archiver_error import WorkflowArchiverError

FILES = {"MAR-INF/MANIFEST.json", "handler.py", "weights.pt", "notes.txt", "top.txt", "deep/low.txt"}


@pytest.fixture
def yard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("sub/handler.py", "weights.pt", "notes.txt", "extra/top.txt", "extra/deep/low.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    for name in ("extra/__pycache__/x.pyc", "extra/.git/config"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    return tmp_path


def config(**more):
    given = {"model_name": "mod", "handler": "sub/handler.py", "version": "1.5", "export_path": "out/new", **more}
    return ModelArchiverConfig(**given)


def zipped(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: info.compress_type for info in archive.infolist()}


def manifest(path, member="MAR-INF/MANIFEST.json"):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(member))


FULL = {"serialized_file": "weights.pt", "extra_files": "*.txt, extra"}


@pytest.mark.parametrize("kind, method", [("default", zipfile.ZIP_DEFLATED), ("zip-store", zipfile.ZIP_STORED)])
def test_a_mar_holds_everything_flat(yard, kind, method):
    ModelArchiver.generate_model_archive(config(archive_format=kind, **FULL))
    members = zipped("out/new/mod.mar")
    assert set(members) == FILES and set(members.values()) == {method}
    found = manifest("out/new/mod.mar")
    assert re.fullmatch(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d", found.pop("createdOn"))
    model = {"modelName": "mod", "serializedFile": "weights.pt", "handler": "handler.py", "modelVersion": "1.5"}
    assert found == {"runtime": "python", "model": model, "archiverVersion": "0.12.0"}


def test_a_tgz_has_one_directory_at_its_top(yard):
    model_packaging.generate_model_archive(config(archive_format="tgz", **FULL))
    with tarfile.open("out/new/mod.tar.gz") as archive:
        assert {member.name for member in archive} == {f"mod/{name}" for name in FILES}


def test_no_archive_makes_a_directory(yard):
    model_packaging.generate_model_archive(config(archive_format="no-archive", **FULL))
    root = Path("out/new/mod")
    assert {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} == FILES


@pytest.mark.parametrize("kind", ["default", "tgz", "no-archive"])
def test_what_is_there_is_replaced_only_by_force(yard, kind):
    ModelArchiver.generate_model_archive(config(archive_format=kind))
    with pytest.raises(ModelArchiverError, match="already exists"):
        ModelArchiver.generate_model_archive(config(archive_format=kind))
    ModelArchiver.generate_model_archive(config(archive_format=kind, force=True))
    assert len(list(Path("out/new").iterdir())) == 1


@pytest.mark.parametrize(
    "handler, runtime, file",
    [
        ("image_classifier", "python", None),
        ("a/mod:serve", "python", "a/mod.py"),
        ("TorchScriptHandler", "LSP", None),
        ("a/libm:H", "LSP", "a/libm.so"),
    ],
)
def test_handlers_are_read_as_the_command_reads_them(handler, runtime, file):
    assert ModelExportUtils.handler_file(handler, runtime) == file
    assert RuntimeType(runtime)


@pytest.mark.parametrize("name", ["has space", "-dash", "a/b", "ünï", "", "line\n"])
def test_wrong_names_are_rejected(yard, name):
    with pytest.raises(ModelArchiverError, match="model name"):
        ModelArchiver.generate_model_archive(config(model_name=name))


@pytest.mark.parametrize("field", ["serialized_file", "model_file", "extra_files", "requirements_file", "handler"])
def test_a_missing_file_leaves_nothing_behind(yard, field):
    with pytest.raises(FileNotFoundError, match=r"no\.py"):
        ModelArchiver.generate_model_archive(config(**{field: "no.py"}))
    assert not Path("out").exists()


def test_the_command_line_exits_as_the_original_does(yard):
    def run(*args):
        command = [sys.executable, "-m", "model_archiver.model_packaging", *args]
        environment = {"PYTHONPATH": str(Path(model_packaging.__file__).parent.parent), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=wire.PATIENCE_SECONDS)

    flags = ["--model-name", "mod", "-v", "1", "--handler", "sub/handler.py"]
    assert run(*flags).returncode == 0 and Path("mod.mar").exists()
    again = run(*flags)
    assert again.returncode == 1 and "--force/-f" in again.stderr
    assert run("--model-name", "mod").returncode == 2


def test_a_workflow_is_packed_into_an_existing_directory(yard):
    (yard / "flow.yaml").write_text("dag: {}")
    flow = WorkflowArchiverConfig("flow", "flow.yaml", "sub/handler.py", "extra", export_path="nowhere")
    with pytest.raises(WorkflowArchiverError, match="not a directory"):
        WorkflowArchiver.generate_workflow_archive(flow)
    flow.export_path = None
    WorkflowArchiver.generate_workflow_archive(flow)
    found = manifest("flow.war", "WAR-INF/MANIFEST.json")
    assert found["workflow"] == {"workflowName": "flow", "specFile": "flow.yaml", "handler": "handler.py"}
    expected = {"WAR-INF/MANIFEST.json", "flow.yaml", "handler.py", "top.txt", "deep/low.txt"}
    assert set(zipped("flow.war")) == expected


def test_a_configuration_can_stand_in_for_the_command_line(yard, monkeypatch):
    monkeypatch.setattr(model_packaging.ArgParser, "export_model_args_parser", staticmethod(config))
    model_packaging.generate_model_archive()
    assert manifest("out/new/mod.mar")["model"]["modelVersion"] == "1.5"


def test_the_command_in_python_raises_what_the_original_raises(yard, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["torch-model-archiver", "--model-name", "a b", "-v", "1", "--handler", "h"])
    with pytest.raises(ModelArchiverError, match="model name"):
        model_packaging.generate_model_archive()


def test_artifacts_can_be_copied_and_then_packed(yard):
    utils = model_packaging.ModelExportUtils
    copied = utils.copy_artifacts("mod", "python", handler="sub/handler.py", extra_files="extra", model_file=None)
    assert sorted(os.listdir(copied)) == ["deep", "handler.py", "top.txt"]
    given = config(model_name="mod", handler="sub/handler.py")
    utils.archive("out", "mod", copied, utils.generate_manifest_json(given))
    assert set(zipped("out/mod.mar")) == {"MAR-INF/MANIFEST.json", "handler.py", "top.txt", "deep/low.txt"}


@pytest.mark.parametrize("flag", ["requirements_file", "requirements-file"])
def test_requirements_are_copied_as_torchserve_s_archiver_asks_for_them(yard, flag):
    """It writes this one flag with a hyphen."""
    (yard / "needs.txt").write_text("numpy")
    copied = model_packaging.ModelExportUtils.copy_artifacts("mod", "python", **{flag: "needs.txt"})
    assert os.listdir(copied) == ["needs.txt"]


def test_the_workflow_archiver_has_the_version_of_its_last_release():
    assert workflow_archiver.__version__ == "0.2.15"
