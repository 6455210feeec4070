"""Workers that a Ray cluster places, on hosts of their own: namespaces with their own addresses and files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests

from harness.answers import checking_clients
from harness.ray_hosts import RayHosts, missing, ray_hosts
from harness.server import Server
from harness.wait import until

pytestmark = pytest.mark.heavy

APP = """
import os
import socket
import time

import jitney
from beside import FACTOR


@jitney.model(workers=2)
class Doubler:
    def __init__(self):
        print("here is", os.getpid(), flush=True)
        with open(os.path.join(os.path.dirname(__file__), "weights.txt")) as file:
            self.factor = FACTOR * int(file.read())

    @jitney.batch(max_batch_size=32)
    def predict(self, number: list[int]) -> list[int]:
        time.sleep(0.005 + 0.0002 * len(number))
        return [self.factor * one for one in number]

    @jitney.endpoint
    def where(self) -> list:
        return [os.getpid(), os.path.dirname(__file__), os.environ.get("JITNEY_WORKER_TOKEN")]


@jitney.model(workers=1, ray={"num_cpus": 0, "resources": {"host2": 0.5}})
class OnSecondHost:
    doubler = jitney.depends(Doubler)

    @jitney.endpoint
    async def predict(self, number: int) -> list:
        return [await self.doubler.predict.remote(number), socket.gethostname(), os.getpid()]


@jitney.endpoint(ray={"num_gpus": 1}, startup_timeout_s=600)
def accelerated(number: int) -> int:
    return number
"""

reason = "asked for by --heavy" if find_spec("ray") is None else missing()
needs_hosts = pytest.mark.skipif(reason is not None, reason=str(reason))


@pytest.fixture(scope="module")
def hosts() -> Iterator[RayHosts]:
    with ray_hosts(2) as cluster:
        yield cluster


@pytest.fixture
def app(tmp_path: Path) -> Path:
    home = tmp_path / "app"
    home.mkdir()
    (home / "app.py").write_text(APP)
    (home / "beside.py").write_text("FACTOR = 1\n")
    (home / "weights.txt").write_text("2")
    return home


Start = Callable[..., Server]


def serve(start: Start, hosts: RayHosts, app: Path, target: str, *flags: str, **options: object) -> Server:
    words = ["serve", f"app.py:{target}", "--ray", hosts.address, "--python", sys.executable, *flags]
    return start(*words, cwd=app, env={"RAY_AUTH_MODE": "disabled"}, **options)


def call(server: Server, path: str, body: object = None) -> object:
    answer = requests.post(server.url(path), json=body if body is not None else {}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@needs_hosts
def test_code_and_files_reach_the_nodes_and_nothing_is_left_there(start: Start, hosts: RayHosts, app: Path) -> None:
    server = serve(start, hosts, app, "Doubler")
    assert call(server, "/Doubler/predict", {"number": 21}) == 42
    process, directory, token = call(server, "/Doubler/where")
    assert any(process in host.processes() for host in hosts.hosts), "on another host"
    assert directory != str(app) and token is None
    server.logged("here is")
    workers = server.describe("Doubler")["workers"]
    assert all("pid" not in one or one["pid"] is None for one in workers), (
        "process ids of other hosts mean nothing here"
    )
    server.terminate()
    assert server.wait() == 0
    until(lambda: not worker_processes(hosts), "no worker is left on any host")


def worker_processes(hosts: RayHosts) -> list[int]:
    return [one for host in hosts.hosts for one in host.processes() if b"jitney.worker" in command_of(one)]


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@needs_hosts
def test_a_server_that_is_killed_leaves_no_worker(start: Start, hosts: RayHosts, app: Path) -> None:
    server = serve(start, hosts, app, "Doubler")
    assert worker_processes(hosts)
    server.kill()
    until(lambda: not worker_processes(hosts), "no worker is left on any host")


@needs_hosts
def test_workers_are_placed_by_custom_resources_and_call_each_other(start: Start, hosts: RayHosts, app: Path) -> None:
    server = serve(start, hosts, app, "OnSecondHost")
    for number in range(5):
        doubled, _, process = call(server, "/OnSecondHost", {"number": number})
        assert doubled == 2 * number
        assert process in hosts.hosts[1].processes(), "the only host with that resource"


@needs_hosts
def test_without_a_place_a_worker_loads_and_says_why(start: Start, hosts: RayHosts, app: Path) -> None:
    server = serve(start, hosts, app, "accelerated", wait_for_workers=False)
    server.logged("no node of the cluster has CPU 1, GPU 1")
    worker = until(lambda: server.describe("accelerated")["workers"][0].get("progress"), "the reason")
    assert "GPU 1" in worker["what"]


@needs_hosts
def test_the_side_car_may_die(start: Start, hosts: RayHosts, app: Path) -> None:
    import os
    import signal

    server = serve(start, hosts, app, "Doubler")
    before = call(server, "/Doubler/where")[0]
    cars = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit() and is_side_car(int(one.name))]
    assert len(cars) == 1
    os.kill(cars[0], signal.SIGKILL)
    assert call(server, "/Doubler/predict", {"number": 4}) == 8
    server.logged("workers that run go on")
    until(lambda: server.log.count("part of the Ray cluster") == 2, "it is started again")
    assert before in worker_processes(hosts), "the workers have not noticed"
    os.kill(before, signal.SIGKILL)
    until(lambda: len(server.ready("Doubler")) == 2 and before not in worker_processes(hosts), "a new worker")


def is_side_car(process: int) -> bool:
    return b"jitney.cluster.ray_placement" in command_of(process)


@needs_hosts
@pytest.mark.parametrize("loss", ["kill", "cut_off"])
def test_a_lost_host_loses_no_request(start: Start, app: Path, loss: str) -> None:
    with ray_hosts(2) as hosts:
        server = serve(start, hosts, app, "Doubler")
        with checking_clients(server.address, "/Doubler/predict", 16) as tally:
            until(lambda: tally.right > 200, "answers")
            getattr(hosts.hosts[0], loss)()
            until(lambda: len(server.ready("Doubler")) == 1, "the loss is noticed")
            seen = tally.right
            until(lambda: tally.right > seen + 200, "the other host goes on")
            hosts.add()
            until(lambda: len(server.ready("Doubler")) == 2, "a new host takes over", poll=0.2)
            seen = tally.right
            until(lambda: tally.right > seen + 200, "both work")
        assert (tally.lost, tally.wrong) == ([], [])


def test_what_is_wrong_with_a_cluster_is_said(start: Start, app: Path) -> None:
    for address, why in (("127.0.0.1:1", "cannot be joined"), ("ray://127.0.0.1:1", "client protocol")):
        with pytest.raises(AssertionError, match=why if find_spec("ray") or "://" in address else "pip install"):
            start("serve", "app.py:Doubler", "--ray", address, "--python", sys.executable, cwd=app)
