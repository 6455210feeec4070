"""A disk that is full: what was served goes on, what needs the disk fails with a reason, and room that comes back is
used. The disk is a small file system of the test's own, which root may mount."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.server import ASK_SECONDS, FREE_ADDRESSES, Server
from harness.wait import until


@pytest.fixture
def disk() -> Iterator[Path]:
    """24 MB, at a short path: the server makes its scratch directory elsewhere when a socket's would be too long."""
    path = Path(tempfile.mkdtemp(prefix="bb-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", path], capture_output=True, check=False)
    if mounted.returncode != 0:
        path.rmdir()
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)
    path.rmdir()


def fill(disk: Path) -> Path:
    """Leaves no byte free."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


def test_a_full_disk_stops_nothing_that_runs(start: Callable[..., Server], store: Store, disk: Path) -> None:
    """Archives, key file, logs and snapshots are all on it."""
    store.mar("echo")
    # Larger than what the server's own temporary files may give back meanwhile.
    store.mar("later", "echo", files={"weights": "0" * (4 << 20)})
    config = disk / "config.properties"
    text = f"{FREE_ADDRESSES}model_store={store.path}\nload_models=echo.mar\nenable_model_api=true\n"
    config.write_text(text + "disable_token_authorization=true\n")
    server = start("torchserve", "--start", "--foreground", "--ts-config", config, cwd=disk, env={"TMPDIR": str(disk)})
    filler = fill(disk)
    for number in range(300):
        assert server.predict("echo", b"%d" % number).content == b"%d" % number
    refused = server.manage("POST", "/models", url="later.mar", initial_workers=1, synchronous="true")
    assert refused.status_code >= 400, refused.text
    assert server.manage("GET", "/models/later").status_code == 404
    assert server.manage("PUT", "/models/echo", min_worker=2).status_code < 500
    assert requests.get(server.url("/metrics", "metrics"), timeout=ASK_SECONDS).status_code == 200
    filler.unlink()
    until(lambda: server.manage("POST", "/models", url="later.mar").status_code == 200, "there is room again")
    server.manage("PUT", "/models/later", min_worker=1, synchronous="true")
    assert server.predict("later", b"x").content == b"x" and server.predict("echo", b"y").content == b"y"


def test_a_download_that_fills_the_disk_leaves_nothing(start: Callable[..., Server], store: Store, disk: Path) -> None:
    big = store.zip("big.mar", {"MAR-INF/MANIFEST.json": "{}", "weights": "0" * (40 << 20)})
    assert big.stat().st_size < 1 << 20
    server = start(
        "serve",
        store.mar("echo"),
        "--model-store",
        store.path,
        "--max-unpacked-size",
        "1GiB",
        env={"TMPDIR": str(disk)},
    )
    used = os.statvfs(disk).f_bfree
    reply = server.manage("POST", "/models", url="big.mar", initial_workers=1, synchronous="true")
    assert reply.status_code >= 400 and server.predict("echo", b"x").content == b"x"
    until(lambda: os.statvfs(disk).f_bfree >= used - 16, "nothing of it is left")


def test_a_log_that_cannot_be_written_holds_no_request(start: Callable[..., Server], store: Store) -> None:
    server = start("serve", store.mar("echo"), "--access-log", under=["bash", "-c", 'exec "$@" 2>/dev/full', "bash"])
    for number in range(300):
        assert server.predict("echo", b"%d" % number).content == b"%d" % number
    assert server.manage("GET", "/models").status_code == 200
