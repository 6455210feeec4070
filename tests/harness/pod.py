"""A container without a container engine: namespaces of its own, a read-only root, a user that is not root.

It has what the manifests of deploy/ promise and nothing else: the model under /mnt/models, temporary files in
/home/model-server/tmp, a network with a loopback only, no capability. Needs root (`make test-deploy`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from harness.wait import until

HOME = "/home/model-server"
USER = 1000
END_SECONDS = 120.0
ASK_SECONDS = 120.0

# The root stays writable until everything is mounted; each mount is for this process's children only.
SETUP = f"""
set -e
mount -t tmpfs tmpfs /mnt && mkdir /mnt/models && mount --bind -o ro "$POD_MODELS" /mnt/models
mount -t tmpfs tmpfs /home && mkdir -p {HOME}/tmp && chown -R {USER}:{USER} {HOME}
mount -t tmpfs tmpfs /opt && cp "$POD_BINARY" /opt/jitney
mkdir /opt/etc && mount --bind -o ro "$POD_CONFIG" /opt/etc
mount -o remount,ro /opt
mount -o remount,bind,ro /
ip link set lo up
cd {HOME}
exec setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \\
  env -i PATH=/opt:/usr/local/bin:/usr/bin:/bin HOME={HOME} TMPDIR={HOME}/tmp "$@"
"""


class Pod:
    """A process in namespaces of its own, and the requests that its neighbours send it."""

    def __init__(self, binary: Path, home: Path, models: Path, command: list[str], config: Path | None = None) -> None:
        home.mkdir(parents=True)
        self.log_file = home / "log"
        config = config or home / "config"
        config.mkdir(exist_ok=True)
        env = {**os.environ, "POD_MODELS": str(models), "POD_BINARY": str(binary), "POD_CONFIG": str(config)}
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", SETUP, "sh", *command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        """What it printed."""
        return self.log_file.read_text(errors="replace")

    def inside(self, *command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command in the pod's network, as a sidecar would."""
        enter = ["nsenter", "--target", str(self.process.pid), "--net"]
        return subprocess.run([*enter, *command], capture_output=True, text=True, timeout=ASK_SECONDS, **options)

    def ask(self, url: str, *options: str) -> tuple[int, str]:
        """Status and body of a request; 0 where nobody answers."""
        done = self.inside("curl", "--silent", "--write-out", "\n%{http_code}", *options, url)
        body, _, status = done.stdout.rpartition("\n")
        return int(status or 0), body

    def probe(self, probe: dict[str, Any], ports: dict[str, int]) -> bool:
        """Whether an httpGet probe of a manifest succeeds."""
        asked = probe["httpGet"]
        port = ports.get(asked["port"], asked["port"])
        return 200 <= self.ask(f"http://127.0.0.1:{port}{asked['path']}")[0] < 400

    def wait_for(self, probe: dict[str, Any], ports: dict[str, int]) -> None:
        """Waits until the probe succeeds."""

        def passed() -> bool:
            assert self.process.poll() is None, f"it exited:\n{self.log}"
            return self.probe(probe, ports)

        until(passed, f"the probe {json.dumps(probe)} succeeds", poll=0.1)

    def listening(self) -> dict[int, set[str]]:
        """The addresses at which it listens, by port."""
        found: dict[int, set[str]] = {}
        for line in self.inside("ss", "--no-header", "--listening", "--tcp", "--numeric").stdout.splitlines():
            address, _, port = line.split()[3].rpartition(":")
            found.setdefault(int(port), set()).add(address)
        return found

    def status(self, field: str) -> str:
        """A line of /proc/PID/status."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:"))

    def terminate(self) -> None:
        """What the kubelet does first."""
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Ends it whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_SECONDS)


def possible() -> bool:
    """Whether this machine lets a test make namespaces."""
    tools = all(shutil.which(tool) for tool in ("unshare", "setpriv", "nsenter", "ip", "ss", "curl"))
    return tools and subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True).returncode == 0
