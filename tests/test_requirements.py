"""Models that bring requirements of their own: packages beside the model, virtual environments, and what goes wrong.

Nothing is downloaded: the requirement is a wheel that the test writes into the archive.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest

from harness.archives import Store
from harness.server import FREE_ADDRESSES, Server

HANDLER = """
import json, sys

def handle(data, context):
    import tiny_requirement
    return [json.dumps({"file": tiny_requirement.__file__, "python": sys.executable}) for _ in data or []]
"""

WHEEL = "tiny_requirement-1.0-py3-none-any.whl"
FILES = {
    "tiny_requirement.py": "ANSWER = 42\n",
    "tiny_requirement-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny-requirement\nVersion: 1.0\n",
    "tiny_requirement-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
    "Tag: py3-none-any\n",
}


def wheel() -> bytes:
    """A package of one module."""
    record, name = "", "tiny_requirement-1.0.dist-info/RECORD"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file, text in FILES.items():
            archive.writestr(file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{file},sha256={digest},{len(text)}\n"
        archive.writestr(name, record + f"{name},,\n")
    return buffer.getvalue()


def needy(store: Store, requirements: str, *, venv: bool = False) -> Path:
    """An archive with a requirements file, and the wheel beside it."""
    model = {"modelName": "needy", "modelVersion": "1.0", "handler": "handler.py", "requirementsFile": "needs.txt"}
    files = {"handler.py": HANDLER.encode(), "needs.txt": requirements.encode(), WHEEL: wheel()}
    if venv:
        model["configFile"] = "model-config.yaml"
        files["model-config.yaml"] = b"useVenv: true\n"
    files["MAR-INF/MANIFEST.json"] = json.dumps({"runtime": "python", "model": model}).encode()
    path = store.path / "needy.mar"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def torchserve(start, tmp_path: Path, store: Store, text: str = "install_py_dep_per_model=true\n") -> Server:
    """A server where anyone may register models."""
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + text)
    flags = ["--foreground", "--ncs", "--disable-token-auth", "--enable-model-api"]
    arguments = ["torchserve", "--start", *flags, "--model-store", store.path, "--ts-config", config]
    return start(*arguments, wait_for_workers=False)


def made(server: Server) -> list[Path]:
    """What lies in the server's directory of unpacked models."""
    return [path for models in server.temp.glob("jitney-*/models") for path in models.iterdir()]


LOCAL = f"--no-index\n./{WHEEL}\n"


@pytest.mark.parametrize("venv", [False, True])
def test_requirements_are_installed_for_their_model_alone(start, tmp_path: Path, store: Store, venv: bool) -> None:
    server = torchserve(start, tmp_path, store)
    server.register(needy(store, LOCAL, venv=venv))
    answer = json.loads(server.predict("needy").text)
    place = "/venv/" if venv else "/packages/"
    assert place in answer["file"] and answer["file"].startswith(str(server.temp))
    assert (place in answer["python"]) == venv
    assert server.describe("needy")["useVenv"] == venv
    server.logged("requirements installed")
    server.logged("pip: Successfully installed tiny-requirement-1.0" if venv else "pip: Successfully installed")
    assert server.manage("DELETE", "/models/needy").status_code == 200
    assert made(server) == []


def test_requirements_that_cannot_be_met_leave_nothing(start, tmp_path: Path, store: Store) -> None:
    server = torchserve(start, tmp_path, store)
    rejected = server.manage("POST", "/models", url=needy(store, "--no-index\nno-such-package\n").name)
    assert (rejected.status_code, rejected.json()["type"]) == (400, "ModelException")
    assert rejected.json()["message"] == "Custom pip package installation failed for model needy"
    server.logged("No matching distribution found for no-such-package")
    assert made(server) == []
    assert server.manage("GET", "/models").json()["models"] == []


def test_without_permission_nothing_is_installed(start, tmp_path: Path, store: Store) -> None:
    server = torchserve(start, tmp_path, store, "")
    rejected = server.manage("POST", "/models", url=needy(store, LOCAL).name, initial_workers=1)
    assert (rejected.status_code, rejected.json()["type"]) == (500, "InternalServerException")
    server.logged("No module named 'tiny_requirement'")
    assert "pip:" not in server.log


def test_serve_installs_requirements_when_told_to(start, store: Store) -> None:
    server = start("serve", needy(store, LOCAL), "--install-requirements")
    assert "/packages/" in json.loads(server.predict("needy").text)["file"]
