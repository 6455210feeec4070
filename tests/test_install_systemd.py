"""The unit of deploy/systemd under a real systemd: an ONNX file and a Python archive are served, stop drains.

systemd runs as the first process of a container of its own (tests/systemd-root makes it), with the static program.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from harness.archives import Store
from harness.artefacts import ROOT, artefact

pytestmark = pytest.mark.heavy

SYSTEMD = ROOT / "deploy" / "systemd"
MAGIKA = ROOT / "models" / "magika"
BOOT_SECONDS = 600

CHECK = """[Unit]
After=network.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /check.py
StandardOutput=file:/answer.json
StandardError=file:/check.log
[Install]
WantedBy=multi-user.target
"""

SCRIPT = """
import json, subprocess, urllib.request

def say(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout

def ask(path, data):
    try:
        with urllib.request.urlopen("http://127.0.0.1:8080" + path, data, timeout=120) as answer:
            return answer.read().decode()
    except OSError as error:
        return str(error)

def wait_for(*models):
    follow = ["timeout", "300", "journalctl", "-u", "jitney", "-o", "cat", "--follow", "--lines=all"]
    waiting = set(models)
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as log:
        for line in log.stdout:
            waiting -= {name for name in waiting if "model ready" in line and name in line}
            if not waiting:
                break
        log.terminate()

def state():
    names = "ActiveState,SubState,StatusText,Result,NRestarts,ExecMainStatus"
    return dict(line.split("=", 1) for line in say("systemctl", "show", "jitney", "-p", names).splitlines())

found = {"start": say("systemctl", "start", "jitney"), "started": state()}
wait_for("magika", "echo")
found["onnx"] = ask("/predictions/magika", b"[package]\\nname = 'x'\\nversion = '1'\\nedition = '2024'\\n")
found["python"] = ask("/predictions/echo", b"hello")
found["stop"] = say("systemctl", "stop", "jitney")
found["stopped"] = state()
found["log"] = say("journalctl", "-u", "jitney", "-o", "cat", "--no-pager")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """What was seen inside: the container boots, looks, and ends."""
    given = os.environ.get("JITNEY_SYSTEMD_ROOT")
    assert given, "JITNEY_SYSTEMD_ROOT must name a root file system (see tests/systemd-root)"
    home = tmp_path_factory.mktemp("systemd")
    root = home / "root"
    subprocess.run(["cp", "--archive", "--reflink=auto", given, root], check=True)
    shutil.copy(artefact(f"jitney-*-{platform.machine()}-linux-static"), root / "usr/local/bin/jitney")
    (root / "etc/jitney").mkdir()
    shutil.copy(SYSTEMD / "jitney.yaml", root / "etc/jitney")
    shutil.copy(SYSTEMD / "jitney.service", root / "etc/systemd/system")
    models = Store(root / "var/lib/private/jitney/models")
    models.mar("echo")
    for kind in ("onnx", "yaml"):
        shutil.copy(next(MAGIKA.glob(f"*.{kind}")), models.path / f"magika.{kind}")
    shutil.copy(MAGIKA / "labels.txt", models.path)
    (root / "check.py").write_text(SCRIPT)
    (root / "etc/systemd/system/check.service").write_text(CHECK)
    wanted = root / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / "check.service").symlink_to("/etc/systemd/system/check.service")
    boot = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot", "-D", str(root)]
    done = subprocess.run(boot, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOOT_SECONDS)
    answer = root / "answer.json"
    log = (root / "check.log").read_text() if (root / "check.log").exists() else ""
    assert answer.exists() and answer.read_text(), f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}\n{log}"
    yield json.loads(answer.read_text())
    shutil.rmtree(root)


def test_the_service_becomes_active_when_the_server_says_so(found) -> None:
    assert found["started"]["ActiveState"] == "active", found["log"]
    assert found["started"]["StatusText"] == "listening on http://127.0.0.1:8080"


def test_models_of_both_kinds_are_served_within_the_limits_of_the_unit(found) -> None:
    answer = json.loads(found["onnx"])
    assert max(answer, key=answer.get) == "toml", found["log"]
    assert found["python"] == "hello", found["log"]


def test_stop_drains_and_is_no_failure(found) -> None:
    assert found["stopped"]["ActiveState"] == "inactive" and found["stopped"]["Result"] == "success", found["log"]
    assert found["stopped"]["NRestarts"] == "0" and "drained" in found["log"]
