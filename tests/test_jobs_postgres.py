"""Jobs in a real PostgreSQL: servers share them, and the jobs of one that is killed are answered by another."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.archives import Store
from harness.certificates import Authority
from harness.gate import Gate
from harness.postgres import Postgres, program
from harness.server import Server
from harness.wait import until
from test_jobs import ASYNC, deleted, get, post, result, same, submitted
from test_named_keys import bearer, row, write

pytestmark = pytest.mark.heavy
JOBS = 2000
KEY = "key-of-one"


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A database of its own."""
    if program() is None:
        pytest.skip("no PostgreSQL: see `make test-postgres`")
    database = Postgres()
    yield database
    database.end()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Postgres]:
    """One that speaks TLS, with a certificate of an authority of its own."""
    if program() is None:
        pytest.skip("no PostgreSQL: see `make test-postgres`")
    database = Postgres(Authority(tmp_path).issue("database"))
    yield database
    database.end()


def test_two_servers_see_each_others_jobs(start, tmp_path: Path, store: Store, postgres: Postgres) -> None:
    keys = write(tmp_path / "keys.yaml", row("one", KEY, "predict"), row("two", "other", "predict"))
    arguments = ["serve", store.mar("echo"), "--keys", keys, *postgres.flags]
    servers = [start(*arguments, wait_for_workers=False, cwd=tmp_path) for _ in range(2)]
    for server in servers:
        server.headers = bearer(KEY)
    first, second = servers
    large = os.urandom(300_000)
    for body in (b"small", large):
        job = submitted(first, "/predictions/echo", body)
        same(result(second, job), post(first, "/predictions/echo", body))
    once = {"Idempotency-Key": "once"}
    job = submitted(first, "/predictions/echo", b"x", **once)
    assert submitted(second, "/predictions/echo", b"x", **once) == job
    assert post(second, "/predictions/echo", b"y", **ASYNC, **once).status_code == 409
    result(first, job)
    page = get(second, "/jobs?limit=2").json()
    rest = get(first, f"/jobs?limit=2&next_page_token={page['nextPageToken']}").json()
    assert [len(it["jobs"]) for it in (page, rest)] == [2, 1] and "nextPageToken" not in rest
    assert page["jobs"][0]["id"] == job.removeprefix("/jobs/"), "the youngest first"
    assert [len(get(first, f"/jobs?{it}").json()["jobs"]) for it in ("state=queued", "model=echo")] == [0, 3]
    second.headers = bearer("other")
    assert (get(second, job).status_code, get(second, "/jobs").json()) == (404, {"jobs": []})
    second.headers = bearer(KEY)
    assert (deleted(second, job), get(first, job).status_code) == (200, 404)
    assert not (tmp_path / "jitney-jobs").exists(), "no folder beside the database"
    assert postgres.rows("SELECT count(*) FROM jitney_job_messages") == ["2"], "nothing is left of it"


def test_the_job_of_a_killed_server_is_answered_by_another(
    start, tmp_path: Path, store: Store, postgres: Postgres
) -> None:
    arguments = ["serve", store.mar("orders"), *postgres.flags]
    first, gate = start(*arguments), Gate(tmp_path)
    job = submitted(first, "/predictions/orders", gate.order)
    gate.wait()
    second = start(*arguments)
    assert get(second, job).json()["state"] == "running"
    first.kill()
    gate.open()
    assert result(second, job).status_code == 200
    assert get(second, job).json()["attempts"] == 2


def test_a_job_that_is_deleted_at_another_server_ends(start, tmp_path: Path, store: Store, postgres: Postgres) -> None:
    arguments = ["serve", store.mar("orders"), "--jobs-parallel", "1", *postgres.flags]
    first, gate = start(*arguments), Gate(tmp_path)
    job = submitted(first, "/predictions/orders", gate.order)
    gate.wait()
    second = start("serve", store.mar("echo"), "--jobs-parallel", "1", *postgres.flags)
    assert deleted(second, job) == 200
    gate.open()
    following = submitted(first, "/predictions/orders", {})
    assert result(first, following).status_code == 200, "its place is free again"
    assert get(first, job).status_code == 404


def test_no_job_is_lost_when_one_of_two_servers_is_killed(start, store: Store, postgres: Postgres) -> None:
    arguments = ["serve", store.mar("echo"), *postgres.flags]
    servers = [start(*arguments), start(*arguments)]
    bodies: dict[str, bytes] = {}

    def submit(numbers: range, to: list[Server]) -> None:
        turns = itertools.cycle(to)
        with ThreadPoolExecutor(8) as pool:
            made = pool.map(
                lambda pair: (submitted(pair[1], "/predictions/echo", b"%d" % pair[0]), b"%d" % pair[0]),
                zip(numbers, turns, strict=False),
            )
            bodies.update(made)

    submit(range(JOBS // 2), servers)
    servers[0].kill()
    submit(range(JOBS // 2, JOBS), servers[1:])
    assert len(bodies) == JOBS
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda job: result(servers[1], job), bodies))
    assert {answer.status_code for answer in answers} == {200}
    assert [answer.content for answer in answers] == list(bodies.values())


def test_jobs_go_on_when_the_database_was_away(start, store: Store, postgres: Postgres) -> None:
    server = start("serve", store.mar("echo"), *postgres.flags)
    before = submitted(server, "/predictions/echo", b"before")
    result(server, before)
    postgres.stop()
    reply = post(server, "/predictions/echo", b"x", **ASYNC)
    assert (reply.status_code, "jobs_away" in reply.text) == (503, True)
    assert server.predict("echo", b"as ever").text == "as ever"
    postgres.start()
    until(lambda: post(server, "/predictions/echo", b"x", **ASYNC).status_code == 202, "jobs are kept again")
    assert result(server, before).content == b"before"
    assert result(server, submitted(server, "/predictions/echo", b"after")).content == b"after"


def test_bounds_hold_and_answers_expire(start, store: Store, postgres: Postgres) -> None:
    server = start("serve", store.mar("echo"), *postgres.flags, "--jobs-count", "3", "--jobs-keep", "1s")
    for number in range(3):
        submitted(server, "/predictions/echo", b"%d" % number)
    reply = post(server, "/predictions/echo", b"x", **ASYNC)
    assert (reply.status_code, "jobs_full" in reply.text) == (503, True)
    until(lambda: postgres.rows("SELECT count(*) FROM jitney_jobs") == ["0"], "all are forgotten")
    until(lambda: post(server, "/predictions/echo", b"x", **ASYNC).status_code == 202, "there is room again")


def test_tls_wants_a_certificate_that_is_trusted(start, tmp_path: Path, store: Store, secured: Postgres) -> None:
    url = f"postgres://jitney@localhost:{secured.port}/postgres?sslmode=require"
    arguments = ["serve", store.mar("echo"), "--jobs-database", url, "--jobs-database-password", secured.password]
    trusting = start(*arguments, env={"SSL_CERT_FILE": str(tmp_path / "authority.pem")})
    assert result(trusting, submitted(trusting, "/predictions/echo", b"x")).content == b"x"
    used = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'jitney'"
    assert secured.rows(used) == ["t"]
    doubting = start(*arguments)
    assert post(doubting, "/predictions/echo", b"x", **ASYNC).status_code == 503
    until(lambda: "certificate" in doubting.log, "the log says why")
