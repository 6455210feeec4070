"""deploy/systemd: the program speaks the protocol of Type=notify, and the unit is valid and hardened."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from harness.wait import PATIENCE_SECONDS

SYSTEMD = Path(__file__).parent.parent / "deploy" / "systemd"
UNIT = (SYSTEMD / "jitney.service").read_text()
EXPOSURE_MAX = 1.5
"""Of 10, which a unit without any of these settings has nearly; systemd calls what is below 2 OK."""


def test_the_manager_is_told_when_the_server_is_ready_alive_and_stopping(start, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(PATIENCE_SECONDS)
        server = start("demo", env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"})
        ready = manager.recv(1024).decode()
        assert ready == f"READY=1\nSTATUS=listening on {server.urls['inference']}"
        assert manager.recv(1024) == b"WATCHDOG=1"
        server.terminate()
        facts = iter(lambda: manager.recv(1024), b"STOPPING=1\nSTATUS=draining")
        assert set(facts) <= {b"WATCHDOG=1"}


def test_the_example_configuration_is_accepted(binary: Path) -> None:
    command = [binary, "config", "serve", "--config", SYSTEMD / "jitney.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "/var/lib/jitney/models" in done.stdout, done.stderr


def test_the_service_is_given_more_time_to_stop_than_requests_to_end() -> None:
    [stop] = re.findall(r"^TimeoutStopSec=(\d+)s$", UNIT, re.MULTILINE)
    [drain] = re.findall(r"^drain_timeout: (\d+)s", (SYSTEMD / "jitney.yaml").read_text(), re.MULTILINE)
    assert int(stop) > int(drain)


@pytest.mark.heavy
def test_systemd_accepts_the_unit_and_finds_it_hardened(binary: Path, tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "the package systemd is needed"
    unit = tmp_path / "jitney.service"
    unit.write_text(UNIT.replace("/usr/local/bin/jitney", str(binary)))
    drop_in = tmp_path / "jitney.service.d"
    for with_gpu in (False, True):
        if with_gpu:
            drop_in.mkdir()
            shutil.copy(SYSTEMD / "gpu.conf", drop_in)
        verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
        # systemd-analyze also complains about units of the machine that have nothing to do with this one.
        own = [line for line in verified.stderr.splitlines() if "jitney" in line]
        assert not own, verified.stderr
    command = ["systemd-analyze", "security", "--offline=true", unit]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=60)
    [exposure] = re.findall(r"Overall exposure level for jitney.service: ([\d.]+)", judged.stdout)
    assert float(exposure) <= EXPOSURE_MAX, judged.stdout
