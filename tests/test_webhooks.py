"""Webhooks of jobs with a real receiver: signed, to named addresses only, tried again, and told after a kill."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.archives import Store
from harness.package import jitney
from harness.postgres import Postgres, program
from harness.receiver import KEY, SECRET, Received, Receiver
from harness.server import Server
from harness.wait import until
from test_jobs import ASYNC, deleted, get, post, result, submitted


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that accepts everything."""
    one = Receiver()
    yield one
    one.end()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """The file of the secret."""
    file = tmp_path / "webhook-secret"
    file.write_text(SECRET + "\n")
    return file


@pytest.fixture(params=["folder", pytest.param("postgres", marks=pytest.mark.heavy)])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Any]]:
    """The flags of either store."""
    if request.param == "folder":
        yield ["--jobs-dir", tmp_path / "jobs"]
        return
    if program() is None:
        pytest.skip("no PostgreSQL: see `make test-postgres`")
    database = Postgres()
    yield database.flags
    database.end()


def arguments(store: Store, secret: Path, urls: str, *more: Any) -> list[Any]:
    """A command that serves a model and may tell these URLs."""
    return ["serve", store.mar("echo"), "--webhook-urls", urls, "--webhook-secret", secret, *more]


def told(receiver: Receiver, count: int) -> Received:
    """The last of so many messages."""
    until(lambda: len(receiver.received) >= count, f"{count} messages come")
    assert len(receiver.received) == count
    return receiver.received[-1]


def webhook(server: Server, job: str, state: str) -> dict[str, Any]:
    """How far the webhook of a job is, once that is this far."""
    until(lambda: get(server, job).json()["webhook"]["state"] == state, f"the webhook is {state}")
    return get(server, job).json()["webhook"]


def test_the_end_of_a_job_is_told_with_a_signature_by_every_secret(
    start, store: Store, secret: Path, receiver: Receiver, kept: list[Any]
) -> None:
    server = start(*arguments(store, secret, receiver.url, *kept))
    before = int(time.time())
    job = submitted(server, "/predictions/echo", b"x", **{"X-Jitney-Webhook": f"{receiver.url}/hook?a=1"})
    message = told(receiver, 1)
    assert (message.path, message.headers["content-type"]) == ("/hook?a=1", "application/json")
    assert message.is_signed() and not message.is_signed(b"another key of somebody else")
    assert message.headers["webhook-id"] == job.removeprefix("/jobs/")
    assert before <= int(message.headers["webhook-timestamp"]) <= time.time()
    document = message.document
    assert (document["type"], document["data"]["result"]) == ("job.succeeded", f"{job}/result")
    assert document["timestamp"] == document["data"]["ended"] == get(server, job).json()["ended"]
    assert webhook(server, job, "delivered") == {"state": "delivered", "attempts": 1}
    other = b"the secret that receivers get next"
    secret.write_text(f"{SECRET}\nwhsec_{base64.b64encode(other).decode()}\n")
    with jitney.Client(server.urls["inference"]) as client:
        client.wait(client.submit("echo", b"y", webhook=f"{receiver.url}/"))
    message = told(receiver, 2)
    assert message.is_signed(KEY) and message.is_signed(other)
    flags = ["--url", server.urls["inference"], "-d", "z", "--webhook", f"{receiver.url}/command"]
    subprocess.run([server.binary, "jobs", "submit", "echo", *flags], check=True, capture_output=True)
    assert told(receiver, 3).path == "/command"
    assert server.total("jitney_webhooks_total", 'event="delivered"') == 3


def test_no_other_url_is_told_and_nothing_is_kept_for_one(
    start, tmp_path: Path, store: Store, secret: Path, receiver: Receiver
) -> None:
    urls = f"{receiver.url}/hooks/,https://*.example.com"
    server = start(*arguments(store, secret, urls, "--jobs-dir", tmp_path / "jobs"))
    for url, status, said in [
        (f"{receiver.url}/other", 403, "webhook_urls of this server does not name it"),
        (f"{receiver.url}/hooks/../other", 403, "does not name it"),
        ("http://169.254.169.254/latest", 403, "does not name it"),
        ("https://a.example.com:444/", 403, "does not name it"),
        ("ftp://a.example.com/", 400, "must begin with https:// or http://"),
        ("hooks", 400, "must be a URL such as"),
        (f"http://user:word@127.0.0.1:{receiver.port}/hooks/", 400, "without a password"),
        (f"{receiver.url}/hooks/{'x' * 2048}", 400, "more than 2,048 characters"),
    ]:
        reply = post(server, "/predictions/echo", b"x", **ASYNC, **{"X-Jitney-Webhook": url})
        assert (reply.status_code, said in reply.text) == (status, True), reply.text
    assert not (tmp_path / "jobs").exists()
    silent = start("serve", store.mar("echo"), "--jobs-dir", tmp_path / "others")
    reply = post(silent, "/predictions/echo", b"x", **ASYNC, **{"X-Jitney-Webhook": f"{receiver.url}/hooks/"})
    assert (reply.status_code, "sends no webhooks" in reply.text) == (403, True)
    assert receiver.received == []


def test_a_name_leads_to_a_private_address_only_if_that_is_named(
    start, tmp_path: Path, store: Store, secret: Path, receiver: Receiver
) -> None:
    named = f"http://localhost:{receiver.port}"
    hook = {"X-Jitney-Webhook": f"{named}/hook"}
    server = start(*arguments(store, secret, named, "--jobs-dir", tmp_path / "jobs"))
    job = submitted(server, "/predictions/echo", b"x", **hook)
    assert webhook(server, job, "failed")["attempts"] == 1
    assert "its address is not public" in server.log and receiver.received == []
    assert server.total("jitney_webhooks_total", 'event="failed"') == 1
    open_one = start(*arguments(store, secret, f"{named},127.0.0.0/8", "--jobs-dir", tmp_path / "others"))
    job = submitted(open_one, "/predictions/echo", b"x", **hook)
    assert told(receiver, 1).headers["host"] == f"localhost:{receiver.port}"
    webhook(open_one, job, "delivered")


def test_a_redirect_is_not_followed_and_gone_is_the_end(
    start, tmp_path: Path, store: Store, secret: Path, receiver: Receiver
) -> None:
    server = start(*arguments(store, secret, receiver.url, "--jobs-dir", tmp_path / "jobs"))
    receiver.statuses = [302, 410]
    for count, said in [(1, "redirects are not followed"), (2, "410 Gone")]:
        job = submitted(server, "/predictions/echo", b"x", **{"X-Jitney-Webhook": f"{receiver.url}/hook"})
        assert webhook(server, job, "failed") == {"state": "failed", "attempts": 1}
        assert told(receiver, count).path == "/hook"
        server.logged(said)


def test_what_fails_is_sent_again_also_by_the_next_server(
    start, store: Store, secret: Path, receiver: Receiver, kept: list[Any]
) -> None:
    command = arguments(store, secret, receiver.url, *kept)
    first = start(*command)
    receiver.statuses = [500, 503]
    hook = {"X-Jitney-Webhook": f"{receiver.url}/hook"}
    job = submitted(first, "/predictions/echo", b"x", **hook)
    until(lambda: len(receiver.received) == 2, "it is sent again")
    until(lambda: get(first, job).json()["webhook"]["attempts"] == 2, "both attempts are written down")
    first.kill()
    second = start(*command)
    assert webhook(second, job, "delivered") == {"state": "delivered", "attempts": 3}
    ids = {message.headers["webhook-id"] for message in receiver.received}
    assert (len(receiver.received), ids) == (3, {job.removeprefix("/jobs/")})
    assert all(message.is_signed() for message in receiver.received)


def test_a_server_that_is_killed_between_answer_and_delivery_tells_it_when_it_is_back(
    start, store: Store, secret: Path, receiver: Receiver, kept: list[Any]
) -> None:
    command = arguments(store, secret, receiver.url, *kept)
    first = start(*command)
    receiver.gate.clear()
    job = submitted(first, "/predictions/echo", b"x", **{"X-Jitney-Webhook": f"{receiver.url}/hook"})
    until(lambda: receiver.received, "the message is under way")
    assert result(first, job).text == "x"
    first.kill()
    receiver.gate.set()
    second = start(*command)
    webhook(second, job, "delivered")
    ids = [message.headers["webhook-id"] for message in receiver.received]
    assert ids == [job.removeprefix("/jobs/")] * 2


@pytest.mark.heavy
def test_tables_of_an_older_server_get_what_webhooks_need(
    start, store: Store, secret: Path, receiver: Receiver
) -> None:
    if program() is None:
        pytest.skip("no PostgreSQL: see `make test-postgres`")
    database = Postgres()
    try:
        before = start("serve", store.mar("echo"), *database.flags)
        old = submitted(before, "/predictions/echo", b"old")
        assert result(before, old).text == "old"
        before.kill()
        columns = ("webhook", "webhook_state", "webhook_attempts", "webhook_due")
        database.rows("ALTER TABLE jitney_jobs " + ", ".join(f"DROP COLUMN {one}" for one in columns))
        server = start(*arguments(store, secret, receiver.url, *database.flags))
        assert result(server, old).text == "old" and "webhook" not in get(server, old).json()
        job = submitted(server, "/predictions/echo", b"x", **{"X-Jitney-Webhook": f"{receiver.url}/hook"})
        assert webhook(server, job, "delivered")["attempts"] == 1
    finally:
        database.end()


def test_a_job_that_is_deleted_is_not_told_again(
    start, tmp_path: Path, store: Store, secret: Path, receiver: Receiver
) -> None:
    command = arguments(store, secret, receiver.url, "--jobs-dir", tmp_path / "jobs")
    server = start(*command)
    receiver.statuses = [500]
    receiver.gate.clear()
    hook = {"X-Jitney-Webhook": f"{receiver.url}/hook"}
    job = submitted(server, "/predictions/echo", b"x", **hook)
    until(lambda: receiver.received, "the message is under way")
    assert deleted(server, job) == 200
    receiver.gate.set()
    until(lambda: server.total("jitney_webhooks_total", 'event="again"') == 1, "the attempt failed")
    following = submitted(server, "/predictions/echo", b"y", **hook)
    webhook(server, following, "delivered")
    server.kill()
    again = start(*command)
    until(lambda: get(again, following).status_code == 200, "the jobs are there again")
    assert get(again, job).status_code == 404
    assert [message.document["data"]["id"] for message in receiver.received].count(job.removeprefix("/jobs/")) == 1


def test_an_idempotency_key_belongs_to_one_webhook(
    start, tmp_path: Path, store: Store, secret: Path, receiver: Receiver
) -> None:
    server = start(*arguments(store, secret, receiver.url, "--jobs-dir", tmp_path / "jobs"))
    same = {"Idempotency-Key": "k", "X-Jitney-Webhook": f"{receiver.url}/one"}
    assert submitted(server, "/predictions/echo", b"x", **same) == submitted(server, "/predictions/echo", b"x", **same)
    other = post(server, "/predictions/echo", b"x", **ASYNC, **{**same, "X-Jitney-Webhook": f"{receiver.url}/two"})
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("urls", "content", "said"),
    [
        ("hooks.example.com", SECRET, "is no address and no network"),
        ("ftp://hooks.example.com", SECRET, "is no URL such as"),
        ("10.0.0.0/8", SECRET, "names no URL"),
        ("https://hooks.example.com", None, "webhook_urls needs webhook_secret"),
        ("https://hooks.example.com", "secret", "every line must be whsec_"),
        ("https://hooks.example.com", "whsec_c2hvcnQ=", "at least 24 bytes"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(
    binary: Path, tmp_path: Path, store: Store, urls: str, content: str | None, said: str
) -> None:
    command = [binary, "serve", store.mar("echo"), "--webhook-urls", urls]
    if content is not None:
        (tmp_path / "secret").write_text(content)
        command += ["--webhook-secret", tmp_path / "secret"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and said in done.stderr, done.stderr
    assert SECRET not in done.stderr
