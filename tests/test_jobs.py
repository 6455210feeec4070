"""Jobs against the real binary: kept before they are told of, answered as if waited for, through SIGKILL and by key."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.gate import Gate
from harness.package import jitney
from harness.server import ASK_SECONDS, FREE_ADDRESSES, Server
from harness.wait import until
from test_named_keys import bearer, row, write

APP = """
import jitney


@jitney.batch(max_batch_size=8)
def double(x: list[float]) -> list[float]:
    return [value * 2 for value in x]


@jitney.model(route="/upper")
def text(text: str) -> str:
    if text == "bad":
        raise jitney.BadInput("not this one")
    return text.upper()
"""

ASYNC = {"Prefer": "respond-async"}
KEY = "key-of-one"


def post(server: Server, path: str, body: object, **headers: str) -> requests.Response:
    """A request; bytes go as they are, anything else as JSON."""
    content = {"data": body} if isinstance(body, bytes) else {"json": body}
    return requests.post(server.url(path), headers={**server.headers, **headers}, timeout=ASK_SECONDS, **content)


def get(server: Server, path: str) -> requests.Response:
    """A request for something of a job."""
    return requests.get(server.url(path), headers=server.headers, timeout=ASK_SECONDS)


def deleted(server: Server, job: str) -> int:
    """The status of a request to forget a job."""
    return requests.delete(server.url(job), headers=server.headers, timeout=ASK_SECONDS).status_code


def submitted(server: Server, path: str, body: object, **headers: str) -> str:
    """The path of a job that was kept."""
    reply = post(server, path, body, **ASYNC, **headers)
    assert (reply.status_code, reply.headers.get("preference-applied")) == (202, "respond-async"), reply.text
    assert re.fullmatch("/jobs/[0-9a-f]{32}", reply.headers["location"])
    assert reply.json()["id"] == reply.headers["location"].removeprefix("/jobs/")
    return reply.headers["location"]


def result(server: Server, job: str) -> requests.Response:
    """The result of a job, once it has one."""
    until(lambda: get(server, f"{job}?wait=30s").json().get("result"), f"{job} ends")
    return get(server, f"{job}/result")


def same(one: requests.Response, other: requests.Response) -> None:
    """Status, type and body are the same but for the request's own id."""
    names = [(reply.status_code, reply.headers.get("content-type")) for reply in (one, other)]
    assert names[0] == names[1]
    bodies = [re.sub(rb'"requestId": "[^"]*"', b"", reply.content) for reply in (one, other)]
    assert bodies[0] == bodies[1]


@pytest.fixture
def served(start, tmp_path: Path, store: Store) -> Server:
    """A server with archives, definitions and a key, and its folder of jobs beside it."""
    (tmp_path / "app.py").write_text(APP)
    archives = [store.mar("echo"), store.mar("orders")]
    flags = ["--keys", write(tmp_path / "keys.yaml", row("one", KEY, "predict")), "--jobs-dir", tmp_path / "jobs"]
    server = start("serve", *archives, "app:double", "app:text", *flags, cwd=tmp_path, wait_for_workers=False)
    server.headers = bearer(KEY)
    return server


def test_a_result_is_what_the_prediction_would_have_answered(served: Server, tmp_path: Path) -> None:
    assert get(served, "/jobs").json() == {"jobs": []}
    assert not (tmp_path / "jobs").exists(), "no file before the first job"
    large = os.urandom(200_000)
    tensors = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP64", "data": [1.5, 2.0]}]}
    requests_made = [
        ("/predictions/echo", b"hello"),
        ("/predictions/echo/1.0", large),
        ("/predictions/double", {"x": 21}),
        ("/v1/models/double:predict", {"instances": [{"x": 1}, {"x": 2}]}),
        ("/v2/models/double/infer", tensors),
        ("/upper", {"text": "gr\u00fcn"}),
        ("/upper", {"text": "bad"}),
        ("/upper", {"no": "text"}),
        ("/double", {"x": 4}),
        ("/invocations?model_name=echo", b"body"),
    ]
    for path, body in requests_made:
        same(result(served, submitted(served, path, body)), post(served, path, body))
    jobs = get(served, "/jobs").json()["jobs"]
    assert len(jobs) == len(requests_made)
    failed = get(served, "/jobs?state=failed").json()["jobs"]
    assert {job["status"] for job in failed} == {post(served, *requests_made[6]).status_code, 400} - {200}
    first = get(served, f"/jobs/{jobs[-1]['id']}").json()
    assert (first["state"], first["status"], first["model"], first["attempts"]) == ("succeeded", 200, "echo", 1)
    assert first["created"] <= first["ended"] < first["expires"]
    for path in (tmp_path / "jobs", tmp_path / "jobs" / "jobs.redb"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, "for the server's user only"


def test_what_is_no_job_is_said(served: Server) -> None:
    missing = get(served, f"/jobs/{'0' * 32}")
    assert (missing.status_code, "no such job" in missing.text) == (404, True)
    assert get(served, "/jobs/x").status_code == 404
    assert post(served, "/predictions/none", b"x", **ASYNC).status_code == 404
    assert get(served, "/jobs?state=lost").status_code == 400
    assert get(served, "/jobs?limit=many").status_code == 400
    job = submitted(served, "/predictions/echo", b"x")
    assert get(served, f"{job}?wait=soon").status_code == 400
    assert post(served, "/predictions/echo", b"x", Prefer="return=minimal").text == "x"
    long_key = post(served, "/predictions/echo", b"x", **ASYNC, **{"Idempotency-Key": "k" * 256})
    assert long_key.status_code == 400


def test_a_job_that_waits_or_runs_can_be_watched_and_deleted(served: Server, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    running = submitted(served, "/predictions/orders", gate.order)
    gate.wait()
    assert get(served, running).json()["state"] == "running"
    early = get(served, f"{running}/result")
    assert (early.status_code, "has no result yet, it is running" in early.text) == (409, True)
    assert [job["model"] for job in get(served, "/jobs?state=running&model=orders").json()["jobs"]] == ["orders"]
    assert deleted(served, running) == 200
    assert get(served, running).status_code == 404
    assert deleted(served, running) == 404
    gate.open()
    assert result(served, submitted(served, "/predictions/echo", b"next")).text == "next"


def test_a_list_has_pages(served: Server) -> None:
    paths = [submitted(served, "/predictions/echo", b"%d" % number) for number in range(5)]
    listed, token = [], None
    while token is not None or not listed:
        page = get(served, f"/jobs?limit=2{f'&next_page_token={token}' if token else ''}").json()
        listed += [f"/jobs/{job['id']}" for job in page["jobs"]]
        token = page.get("nextPageToken")
    assert listed == paths[::-1]


def test_an_idempotency_key_makes_one_job(served: Server) -> None:
    key = {"Idempotency-Key": "order-17"}
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: submitted(served, "/predictions/echo", b"x", **key), range(16)))
    assert len(set(made)) == 1
    assert len(get(served, "/jobs").json()["jobs"]) == 1
    other = post(served, "/predictions/echo", b"y", **ASYNC, **key)
    assert (other.status_code, "another request" in other.text) == (409, True)


def test_python_clients_submit_and_wait(served: Server) -> None:
    with jitney.Client(served.urls["inference"], token=KEY) as client:
        job = client.submit("double", {"x": 21}, idempotency_key="k")
        assert client.result(job) == client.predict("double", {"x": 21}) == 42
        assert client.job(job)["state"] == "succeeded"
        assert client.submit("double", {"x": 21}, idempotency_key="k") == job
        bad = client.submit("text", {"text": "bad"}, endpoint="call")
        with pytest.raises(jitney.BadInput, match="not this one"):
            client.result(bad)
        client.delete_job(job)
        with pytest.raises(jitney.RemoteError, match="no such job"):
            client.job(job)

    async def asked() -> object:
        async with jitney.AsyncClient(served.urls["inference"], token=KEY) as client:
            return await client.result(await client.submit("echo", b"later"))

    assert asyncio.run(asked()) == "later"


def test_handles_submit_calls_and_get_values_and_the_models_own_errors(served: Server) -> None:
    with jitney.connect(served.urls["inference"], token=KEY) as session:
        handle = session.model("double")
        job = handle.submit(21.0)
        assert (job.wait(), job.result(), job.state()) == ("succeeded", 42.0, "succeeded")
        assert session.job(job.id).result() == handle(21.0)
        assert handle.submit(x=2.0).result() == 4.0
        with pytest.raises(jitney.BadInput, match="not this one"):
            session.model("text").call.submit("bad").result()
        assert session.model("echo", encoding="bytes").submit(b"plain").result() == "plain"
        job.cancel()
        with pytest.raises(jitney.RemoteError, match="no such job"):
            job.state()

        async def inside() -> None:
            handle.submit(1.0)

        with pytest.raises(TypeError, match="AsyncClient"):
            asyncio.run(inside())


def events(server: Server, path: str, begun: threading.Event | None = None) -> list[tuple[str, str]]:
    """The events of a job until the stream ends: their names, and the states in them."""
    headers = {**server.headers, "Accept": "text/event-stream"}
    with requests.get(server.url(path), headers=headers, timeout=ASK_SECONDS, stream=True) as reply:
        assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream")
        lines = []
        for line in reply.iter_lines(chunk_size=1, decode_unicode=True):
            lines += [line] if line and not line.startswith(":") else []
            if begun is not None and len(lines) == 2:
                begun.set()
    names = [line.removeprefix("event: ") for line in lines[::2]]
    data = [line.removeprefix("data: ") for line in lines[1::2]]
    return [(name, json.loads(one)["state"] if one else "") for name, one in zip(names, data)]


def test_the_changes_of_a_job_come_as_events_until_it_ends(served: Server, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    job = submitted(served, "/predictions/orders", gate.order)
    gate.wait()
    with ThreadPoolExecutor(1) as pool:
        begun = threading.Event()
        followed = pool.submit(events, served, job, begun)
        assert begun.wait(ASK_SECONDS)
        gate.open()
        assert followed.result(ASK_SECONDS) == [("job", "running"), ("job", "succeeded"), ("end", "")]
        begun.clear()
        gate = Gate(tmp_path, "second")
        other = submitted(served, "/predictions/orders", gate.order)
        gate.wait()
        followed = pool.submit(events, served, other, begun)
        assert begun.wait(ASK_SECONDS)
        assert deleted(served, other) == 200
        assert followed.result(ASK_SECONDS) == [("job", "running"), ("end", "")], "nothing more comes of it"
        gate.open()
    assert events(served, job) == [("job", "succeeded"), ("end", "")]
    missing = requests.get(served.url(f"/jobs/{'0' * 32}"), headers={**served.headers, "Accept": "text/event-stream"})
    assert missing.status_code == 404


def metrics(server: Server) -> dict[str, float]:
    """The metrics of jobs, by name and label."""
    page = requests.get(f"{server.urls['metrics']}/metrics", timeout=ASK_SECONDS).text
    found = re.findall(
        r'^(jitney_jobs\w*)\{(?:(?:state|event)="(\w+)",)?hostname="[^"]*",\} (\S+)$', page, re.MULTILINE
    )
    return {f"{name} {label}".strip(): float(value) for name, label, value in found}


def test_jobs_are_counted_for_metrics_and_for_the_overview(start, tmp_path: Path, store: Store) -> None:
    server = start("serve", store.mar("orders"), "--jobs-dir", tmp_path / "jobs", "--jobs-parallel", "1")
    assert metrics(server) == {}, "nothing before the first job"
    assert "jobs" not in requests.get(f"{server.urls['management']}/overview", timeout=ASK_SECONDS).json()
    gate = Gate(tmp_path)
    first = submitted(server, "/predictions/orders", gate.order)
    gate.wait()
    second = submitted(server, "/predictions/orders", {})
    found = metrics(server)
    assert (found["jitney_jobs running"], found["jitney_jobs queued"]) == (1, 1)
    assert found["jitney_jobs_oldest_seconds"] > 0 and found["jitney_jobs_bytes"] > 0
    overview = requests.get(f"{server.urls['management']}/overview", timeout=ASK_SECONDS).json()["jobs"]
    assert (overview["queued"], overview["running"], overview["submittedTotal"]) == (1, 1, 2)
    status = subprocess.run(
        [server.binary, "status", "--url", server.urls["management"]], capture_output=True, text=True, check=False
    )
    assert "jobs: 1 wait, the oldest for" in status.stdout
    gate.open()
    for job in (first, second):
        result(server, job)
    found = metrics(server)
    assert (found["jitney_jobs_total submitted"], found["jitney_jobs_total succeeded"]) == (2, 2)
    assert (found["jitney_jobs succeeded"], found["jitney_jobs queued"], found["jitney_jobs_oldest_seconds"]) == (
        2,
        0,
        0,
    )


def test_one_key_leaves_room_for_the_jobs_of_others(start, tmp_path: Path, store: Store) -> None:
    keys = write(tmp_path / "keys.yaml", row("one", KEY, "predict"), row("two", "key-of-two", "predict"))
    flags = ["--keys", keys, "--jobs-dir", tmp_path / "jobs", "--jobs-count", "4"]
    server = start("serve", store.mar("echo"), *flags, wait_for_workers=False)
    server.headers = bearer(KEY)
    jobs = [submitted(server, "/predictions/echo", b"x") for _ in range(2)]
    full = post(server, "/predictions/echo", b"x", **ASYNC)
    assert (full.status_code, "half of jobs_count" in full.text) == (503, True)
    server.headers = bearer("key-of-two")
    submitted(server, "/predictions/echo", b"x")
    server.headers = bearer(KEY)
    assert deleted(server, jobs[0]) == 200
    submitted(server, "/predictions/echo", b"x")


def jobs_command(server: Server, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """`jitney jobs`, in an environment that names no other server."""
    env = {name: value for name, value in server.env.items() if not name.startswith("JITNEY_")}
    known = {"JITNEY_INFERENCE_URL": server.urls["inference"], "JITNEY_TOKEN": KEY}
    command = [server.binary, "jobs", *map(str, arguments)]
    return subprocess.run(command, env=env | known, capture_output=True, timeout=ASK_SECONDS, check=False)


def test_the_command_line_looks_after_jobs(served: Server, tmp_path: Path) -> None:
    picture = tmp_path / "picture"
    picture.write_bytes(os.urandom(100_000))
    job = jobs_command(served, "submit", "echo", "-d", f"@{picture}").stdout.decode().strip()
    answer = jobs_command(served, "result", job)
    assert (answer.returncode, answer.stdout) == (0, picture.read_bytes())
    assert jobs_command(served, "result", job, "-o", tmp_path / "answer").stdout == b""
    assert (tmp_path / "answer").read_bytes() == picture.read_bytes()
    assert jobs_command(served, "wait", job).stdout.decode() == f"{job} succeeded 200\n"
    key = ["--idempotency-key", "k"]
    made = {jobs_command(served, "submit", "double", "-d", '{"x": 21}', *key).stdout for _ in range(2)}
    assert len(made) == 1
    assert jobs_command(served, "result", made.pop().decode().strip()).stdout == b"42.0"
    bad = jobs_command(served, "submit", "text", "--endpoint", "call", "-d", '{"text": "bad"}').stdout.decode().strip()
    failed = jobs_command(served, "result", bad)
    assert (failed.returncode, b"not this one" in failed.stdout, b"status" in failed.stderr) == (1, True, True)
    assert jobs_command(served, "wait", job, bad).returncode == 1
    assert (
        f"status   {get(served, f'/jobs/{bad}').json()['status']}" in jobs_command(served, "show", bad).stdout.decode()
    )
    listed = jobs_command(served, "list", "--state", "succeeded", "-n", "1")
    assert len(listed.stdout.splitlines()) == 2
    page = listed.stderr.decode().rsplit(" ", 1)[1].strip()
    rest = jobs_command(served, "list", "--state", "succeeded", "--model", "echo", "--page", page, "--json").stdout
    assert [one["id"] for one in json.loads(rest)["jobs"]] == [job]
    assert jobs_command(served, "delete", job, bad).returncode == 0
    gone = jobs_command(served, "show", job)
    assert (gone.returncode, b"no such job" in gone.stderr) == (1, True)
    denied = jobs_command(served, "list", "--token", "other")
    assert (denied.returncode, b"scope predict" in denied.stderr) == (77, True)


def test_a_job_belongs_to_the_key_that_made_it(start, tmp_path: Path, store: Store) -> None:
    keys = write(tmp_path / "keys.yaml", row("one", KEY, "predict"), row("two", "key-of-two", "predict"))
    server = start("serve", store.mar("echo"), "--keys", keys, "--jobs-dir", tmp_path / "jobs", wait_for_workers=False)
    assert post(server, "/predictions/echo", b"x", **ASYNC).status_code == 401
    one, two = bearer(KEY), bearer("key-of-two")
    server.headers = one
    job = submitted(server, "/predictions/echo", b"mine", **{"Idempotency-Key": "k"})
    assert result(server, job).text == "mine"
    server.headers = two
    assert submitted(server, "/predictions/echo", b"other", **{"Idempotency-Key": "k"}) != job
    assert job.removeprefix("/jobs/") not in get(server, "/jobs").text
    for path in (job, f"{job}/result"):
        assert get(server, path).status_code == 404
    assert deleted(server, job) == 404
    assert requests.get(server.url(job), timeout=ASK_SECONDS).status_code == 401
    server.headers = one
    assert get(server, f"{job}/result").text == "mine"
    kept = b"".join(file.read_bytes() for file in (tmp_path / "jobs").rglob("*") if file.is_file())
    assert KEY.encode() not in kept, "no key is written down"


def test_there_are_bounds_in_count_and_bytes(start, tmp_path: Path, store: Store) -> None:
    flags = ["--jobs-dir", tmp_path / "jobs", "--jobs-count", "2", "--jobs-size", "100KiB"]
    server = start("serve", store.mar("echo"), *flags)
    large = post(server, "/predictions/echo", b"x" * 200_000, **ASYNC)
    assert (large.status_code, "jobs_size" in large.text) == (503, True)
    jobs = [submitted(server, "/predictions/echo", b"x") for _ in range(2)]
    full = post(server, "/predictions/echo", b"x", **ASYNC)
    assert (full.status_code, "jobs_count" in full.text, "retry-after" in full.headers) == (503, True, True)
    result(server, jobs[0])
    assert deleted(server, jobs[0]) == 200
    submitted(server, "/predictions/echo", b"x")


def test_answers_expire(start, tmp_path: Path, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--jobs-dir", tmp_path / "jobs", "--jobs-keep", "1s")
    job = submitted(server, "/predictions/echo", b"x")
    until(lambda: get(server, job).status_code == 404, "the job is forgotten")


def test_a_folder_that_cannot_be_used_is_named(start, tmp_path: Path, store: Store) -> None:
    (tmp_path / "file").write_text("no folder")
    server = start("serve", store.mar("echo"), "--jobs-dir", tmp_path / "file" / "jobs")
    reply = post(server, "/predictions/echo", b"x", **ASYNC)
    assert (reply.status_code, "jobs_dir" in reply.text) == (500, True)
    assert server.predict("echo", b"as ever").text == "as ever"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgres://a:secret@localhost/b", "must not hold a password"),
        ("postgres://localhost/b", "must name a user"),
        ("mysql://a@localhost/b", "must be a URL such as postgres://"),
        ("postgres://a@localhost/b?sslrootcert=x", "is no URL of PostgreSQL"),
    ],
)
def test_the_url_of_a_database_that_cannot_be_used_is_refused_at_the_start(
    binary: Path, store: Store, url: str, said: str
) -> None:
    command = [binary, "serve", store.mar("echo"), "--jobs-database", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and said in done.stderr, done.stderr
    assert "secret" not in done.stderr


def test_torchserve_keeps_jobs_as_well(start, tmp_path: Path, store: Store) -> None:
    config = tmp_path / "config.properties"
    config.write_text(f"{FREE_ADDRESSES}jobs_dir={tmp_path / 'jobs'}\nload_models={store.mar('echo').name}\n")
    flags = ["--foreground", "--ncs", "--disable-token-auth", "--model-store", store.path, "--ts-config", config]
    server = start("torchserve", "--start", *flags)
    job = submitted(server, "/predictions/echo", b"x")
    same(result(server, job), post(server, "/predictions/echo", b"x"))
    listed = get(server, "/jobs")
    assert (listed.status_code, "by its id" in listed.text) == (403, True), "nobody learns the ids of others"
    assert deleted(server, job) == 200


def test_no_job_is_lost_when_server_and_workers_are_killed(start, tmp_path: Path, store: Store) -> None:
    arguments = ["serve", store.mar("echo"), "--jobs-dir", tmp_path / "jobs"]
    bodies = {}

    def submit(server: Server, numbers: range) -> None:
        with ThreadPoolExecutor(8) as pool:
            made = pool.map(lambda number: (submitted(server, "/predictions/echo", b"%d" % number), number), numbers)
            bodies.update({job: b"%d" % number for job, number in made})

    for round_number in range(3):
        server = start(*arguments)
        submit(server, range(round_number * 100, round_number * 100 + 100))
        os.kill(next(iter(server.ready("echo").values())), signal.SIGKILL)
        submit(server, range(1000 + round_number * 100, 1000 + round_number * 100 + 100))
        server.kill()
    server = start(*arguments)
    assert len(bodies) == 600
    for job, body in bodies.items():
        answer = result(server, job)
        assert (answer.status_code, answer.content) == (200, body)


def test_a_second_server_takes_the_folder_over_when_the_first_has_ended(start, tmp_path: Path, store: Store) -> None:
    arguments = ["serve", store.mar("orders"), "--jobs-dir", tmp_path / "jobs"]
    first, gate = start(*arguments), Gate(tmp_path)
    job = submitted(first, "/predictions/orders", gate.order)
    gate.wait()
    second = start(*arguments)
    reply = post(second, "/predictions/orders", {}, **ASYNC)
    assert (reply.status_code, "another server uses" in reply.text) == (503, True)
    first.kill()
    gate.open()
    until(lambda: get(second, job).status_code == 200, "the second server has the job")
    assert result(second, job).status_code == 200
