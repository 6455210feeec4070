"""Replicas behind a real nginx and a real Envoy with the configurations of deploy: `make test-replicas`."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.archives import Store
from harness.nginx import BY_MODEL, ENVOY_BY_MODEL, Envoy, Nginx
from harness.server import ASK_SECONDS, Server
from harness.wait import until

pytestmark = pytest.mark.heavy

PROGRAM = os.environ.get("JITNEY_TEST_NGINX", "")
ENVOY = os.environ.get("JITNEY_TEST_ENVOY", "")
MANY = int(os.environ.get("JITNEY_TEST_MANY_MODELS", "100"))
if not PROGRAM:
    pytest.skip("see `make test-replicas`", allow_module_level=True)

ID, STARTS = "ts_request_sequence_id", "ts_request_sequence_start"
SEQUENCES = {
    "minWorkers": 1, "maxWorkers": 1, "batchSize": 4, "maxBatchDelay": 1, "sequenceBatching": True,
    "sequenceMaxIdleMSec": 600000, "maxNumSequence": 64, "maxSequenceJobQueueSize": 10, "sequenceStartRequired": True,
}  # fmt: skip
ANSWER = 'def handle(data, context):\n    return data and [bytes(row["body"]) + b" {0}" for row in data]\n'


class Replicas:
    """Servers that follow one list of models."""

    def __init__(self, binary: Path, home: Path) -> None:
        self.binary, self.home = binary, home
        self.store = Store(home / "store")
        self.list = home / "list" / "models.yaml"
        self.list.parent.mkdir()
        self.servers: list[Server] = []

    def write(self, *models: dict[str, Any]) -> None:
        """Swaps the list, as whoever shares one does."""
        fresh = self.list.with_suffix(".new")
        fresh.write_text(json.dumps({"models": models}))
        fresh.rename(self.list)

    def start(
        self, port: int = 0, drain_delay: str = "1s", *, more: tuple[str, ...] = ("--startup-wait", "0s")
    ) -> Server:
        """One more; ready when it returns."""
        followed = ("--registrations", self.list, "--registrations-every", "0.2s")
        behind_a_balancer = (*more, "--drain-delay", drain_delay, "--drain-timeout", "60s")
        arguments = ("serve", *followed, *behind_a_balancer)
        home = self.home / f"replica-{len(self.servers)}"
        server = Server(self.binary, home, arguments, wait_for_workers=False)
        server.arguments[server.arguments.index("--port") + 1] = str(port)
        self.servers.append(server)
        server.started()
        until(lambda: requests.get(server.url("/v2/health/ready"), timeout=ASK_SECONDS).ok, "the replica is ready")
        return server


def address(server: Server) -> str:
    host, port = server.address
    return f"{host}:{port}"


@pytest.fixture
def replicas(binary: Path, tmp_path: Path) -> Iterator[Replicas]:
    replicas = Replicas(binary, tmp_path)
    yield replicas
    for server in replicas.servers:
        server.end()


class Clients:
    """Threads with a kept connection each that ask one request after another, and look at every answer."""

    def __init__(self, nginx: Nginx, model: str, size: int, right: Callable[[bytes, bytes], bool]) -> None:
        self.nginx, self.model, self.right = nginx, model, right
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(number,)) for number in range(size)]
        for thread in self.threads:
            thread.start()

    def ask(self, number: int) -> None:
        """One client."""
        connection = HTTPConnection(*self.nginx.address, timeout=ASK_SECONDS)
        turn = 0
        while not self.over.is_set():
            body, turn = b"%d-%d" % (number, turn), turn + 1
            connection.request("POST", f"/predictions/{self.model}", body)
            reply = connection.getresponse()
            content = reply.read()
            self.outcomes[content.rpartition(b" ")[2].decode() if reply.status == 200 else str(reply.status)] += 1
            if reply.status != 200 or not self.right(body, content):
                self.wrong.append(f"{body!r} got {reply.status} {content!r}")
        connection.close()

    def more(self, count: int, word: str | None = None) -> None:
        """Waits for so many more answers, with this word at their end if one is named."""
        seen = (lambda: self.outcomes[word]) if word else self.outcomes.total
        goal = seen() + count
        until(lambda: seen() >= goal or self.wrong, f"{count} more answers")

    def end(self) -> Counter[str]:
        """Everybody goes; all answers were right."""
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.wrong, (self.wrong[:5], self.nginx.log.read_text()[-2000:])
        return self.outcomes


def test_a_replica_is_drained_and_replaced_under_load_and_nothing_is_lost(replicas: Replicas) -> None:
    replicas.store.mar("answer", source=ANSWER.format("one"))
    path = str(replicas.store.path / "answer.mar")
    replicas.write({"name": "answer", "path": path, "workers": 2, "queue": 1000, "batching": {"max_batch_size": 8}})
    first, second = replicas.start(), replicas.start()
    with Nginx(PROGRAM, [address(first), address(second)]) as nginx:
        # Closed loops that look at every answer, and an open loop that comes whether or not answers do.
        clients = Clients(nginx, "answer", 16, lambda body, content: content == body + b" one")
        clients.more(300)
        load = ("--rate", "100", "--duration", "20s", "--warm-up", "0s", "--body", "x", "--json", "-")
        command = [replicas.binary, "bench", nginx.url("/predictions/answer"), *load]
        bench = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        clients.more(300)
        for leaving in (first, second):
            leaving.terminate()
            assert leaving.wait() == 0
            clients.more(300)
            fresh = replicas.start(leaving.address[1])
            before = answered(fresh)
            clients.more(300)
            until(lambda fresh=fresh, before=before: answered(fresh) > before, "the new replica takes its share")
        report = json.loads(bench.communicate(timeout=ASK_SECONDS)[0])
        outcomes = clients.end()
    assert set(outcomes) == {"one"} and outcomes.total() > 1200
    assert failures(report) == 0, report


def test_a_replica_that_drains_lets_go_of_the_connections_that_nginx_keeps(replicas: Replicas) -> None:
    replicas.store.mar("answer", source=ANSWER.format("one"))
    path = str(replicas.store.path / "answer.mar")
    replicas.write({"name": "answer", "path": path, "workers": 1})
    leaving, staying = replicas.start(drain_delay="600s"), replicas.start()
    with Nginx(PROGRAM, [address(leaving), address(staying)]) as nginx:

        def ask() -> bool:
            return requests.post(nginx.url("/predictions/answer"), data=b"x", timeout=ASK_SECONDS).content == b"x one"

        until(lambda: ask() and leaving.connections() > 0, "nginx keeps a connection to it")
        leaving.terminate()
        leaving.logged("draining")
        until(lambda: ask() and leaving.connections() == 0, "nginx keeps none while its port is still open")
        before = answered(leaving)
        until(lambda: ask() and answered(leaving) > before, "nginx may still ask it")


def test_versions_share_the_traffic_of_two_replicas_and_no_user_sees_two(replicas: Replicas) -> None:
    entries = []
    for version in ("1.0", "2.0"):
        archive = replicas.store.mar("answer", source=ANSWER.format(version), version=version)
        path = str(archive.rename(archive.with_name(f"answer-{version}.mar")))
        batching = {"max_batch_size": 32}
        entries.append({"name": "answer", "version": version, "path": path, "workers": 1, "batching": batching})
    entries[0]["traffic"] = {"shares": {"1.0": 70, "2.0": 30}, "sticky": "header:x-user"}
    replicas.write(*entries)
    both = [replicas.start(), replicas.start()]
    for server in both:
        until(lambda server=server: all(server.ready("answer", it) for it in ("1.0", "2.0")), "both versions serve")
    with Nginx(PROGRAM, [address(server) for server in both]) as nginx:

        def client(number: int) -> list[tuple[int, str]]:
            """One of eight clients, with an eighth of 100,000 requests of 20,000 users."""
            connection, dice = HTTPConnection(*nginx.address, timeout=ASK_SECONDS), random.Random(number)
            told = []
            for _ in range(12_500):
                user = dice.randrange(20_000)
                connection.request("POST", "/predictions/answer", b"x", {"x-user": f"user-{user}"})
                reply = connection.getresponse()
                content = reply.read()
                assert reply.status == 200, content
                told.append((user, content.removeprefix(b"x ").decode()))
            return told

        with ThreadPoolExecutor(8) as pool:
            told = [one for part in pool.map(client, range(8)) for one in part]
    versions: dict[int, set[str]] = {}
    for user, version in told:
        versions.setdefault(user, set()).add(version)
    assert all(len(seen) == 1 for seen in versions.values())
    assert abs(Counter(version for _, version in told)["2.0"] / len(told) - 0.3) < 0.01
    assert all(answered(server) > 10_000 for server in both)


def answered(server: Server) -> float:
    """Requests that a replica has answered."""
    return server.total("jitney_requests_answered_total")


def failures(report: dict[str, Any]) -> int:
    """Requests of an open loop that were not answered with 200."""
    return report["total"]["offered"] - report["total"]["answered"]


def test_a_change_of_the_list_reaches_both_while_requests_run(replicas: Replicas) -> None:
    entry = {"name": "answer", "workers": 1, "queue": 1000}
    for word in ("one", "two"):
        source = ANSWER.format(word)
        replicas.store.mar(f"answer-{word}", source=source, version=word)
    paths = {word: str(replicas.store.path / f"answer-{word}.mar") for word in ("one", "two")}
    replicas.write(entry | {"path": paths["one"]})
    both = [replicas.start(), replicas.start()]
    right = lambda body, content: content in (body + b" one", body + b" two")  # noqa: E731
    with Nginx(PROGRAM, [address(server) for server in both]) as nginx:
        clients = Clients(nginx, "answer", 8, right)
        clients.more(200)
        replicas.write(entry | {"path": paths["two"]})
        for server in both:
            until(lambda server=server: versions(server) == ["two"], "the new version is the only one")
        clients.more(200, "two")
        # What cannot be loaded changes nothing, at neither of them.
        replicas.write(entry | {"path": str(replicas.store.path / "nowhere.mar")})
        for server in both:
            server.logged("not loaded; what was served stays")
        clients.more(200, "two")
        outcomes = clients.end()
    assert set(outcomes) == {"one", "two"}


def versions(server: Server) -> list[str]:
    overview = server.manage("GET", "/overview").json()
    return [model["version"] for model in overview["models"]]


def test_sequences_stay_with_their_replica_until_it_goes(replicas: Replicas) -> None:
    replicas.store.mar("rememberer", config=json.dumps(SEQUENCES))
    path = str(replicas.store.path / "rememberer.mar")
    replicas.write({"name": "rememberer", "path": path})
    first, second = replicas.start(), replicas.start()
    with Nginx(PROGRAM, [address(first), address(second)]) as nginx, requests.Session() as session:

        def say(sequence: str, **headers: str) -> requests.Response:
            url = nginx.url("/predictions/rememberer")
            return session.post(url, data=b"x", headers={ID: sequence, **headers}, timeout=ASK_SECONDS)

        # So many that each replica has some.
        names = [f"sequence-{number}" for number in range(24)]
        begun = {name: say(name, **{STARTS: "true"}).json() for name in names}
        homes = {name: told["pid"] for name, told in begun.items()}
        assert len(set(homes.values())) == 2
        for count in (2, 3):
            for name in names:
                told = say(name).json()
                assert (told["count"], told["pid"]) == (count, homes[name])
        first.terminate()
        assert first.wait() == 0
        # Those of the other replica go on; the others are told so, and can begin anew.
        lost = 0
        for name in names:
            reply = say(name)
            if reply.status_code == 200:
                assert (reply.json()["count"], reply.json()["pid"]) == (4, homes[name])
                continue
            lost += 1
            assert reply.status_code == 409 and "[reason: sequence_unknown]" in reply.text
            assert say(name, **{STARTS: "true"}).json()["count"] == 1
            assert say(name).json()["count"] == 2
        assert 0 < lost < len(names)


WHO = "import os\n\ndef handle(data, context):\n    return data and [str(os.getppid()) for _ in data]\n"


@pytest.mark.parametrize("balancer", ["nginx", "envoy"])
def test_each_of_many_models_is_loaded_by_one_of_three_servers(replicas: Replicas, balancer: str) -> None:
    """The balancer's hash of the model's name chooses the server; each has room for a few models at a time."""
    path = replicas.store.directory("who", source=WHO)
    names = [f"model-{number}" for number in range(MANY)]
    replicas.write(*({"name": name, "path": str(path), "load": "on_demand"} for name in names))
    servers = [replicas.start(more=("--memory", "400MiB", "--startup-wait", "1200s")) for _ in range(3)]
    program, kind, example = (PROGRAM, Nginx, BY_MODEL) if balancer == "nginx" else (ENVOY, Envoy, ENVOY_BY_MODEL)
    with kind(program, [address(server) for server in servers], example) as front:
        paths = [f"/predictions/{name}" for name in names] + [f"/v2/models/{name}/ready" for name in names[:20]]

        def ask(path: str) -> requests.Response:
            method = "GET" if path.endswith("/ready") else "POST"
            return requests.request(method, front.url(path), data=b"x", timeout=1200)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, paths))
        wrong = [answer.text for answer in answers if answer.status_code != 200]
        assert not wrong, (len(wrong), wrong[:3])
        first = [answer.text for answer in answers[: len(names)]]
        share = Counter(first)
        assert len(share) == 3 and min(share.values()) > MANY / 10, share
        with ThreadPoolExecutor(8) as pool:
            again = [answer.text for answer in pool.map(ask, paths[: len(names) : 10])]
        loads = [loaded(server) for server in servers]
    print(f"{balancer}: {len(first)} models answered, {[len(names) for names in loads]} loaded by server")
    assert again == first[::10], "a model stays with its server"
    assert sorted(name for names in loads for name in names) == sorted(names), "nobody loaded another's"


def loaded(server: Server) -> list[str]:
    """The models that this server has loaded, now or before, as its metrics say."""
    page = requests.get(server.urls["metrics"] + "/metrics", timeout=ASK_SECONDS).text
    counts = re.findall(r'^jitney_load_seconds_count\{.*model_name="([^"]+)".* ([\d.]+)$', page, re.MULTILINE)
    return [name for name, count in counts if float(count) > 0]
