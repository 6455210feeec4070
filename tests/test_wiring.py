"""`jitney.chain` and `jitney.fan_out` from outside: the server runs them, and no process stands between the parts."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

import jitney
from harness.client import request, together
from harness.gate import Gate
from harness.server import ASK_SECONDS, Server
from harness.wait import until

APP = """
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jitney

HERE = Path(__file__).parent


class Words:
    @jitney.batch(max_batch_size=8)
    def split(self, text: list[str], upper: list[bool] = False) -> list[tuple]:
        return [(one.upper() if high else one, one.encode()) for one, high in zip(text, upper)]


class Kinds:
    @jitney.batch(max_batch_size=8)
    def kinds(self, pair: list[Any]) -> list[str]:
        return [" ".join([one[0], *(type(part).__name__ for part in (one, *one))]) for one in pair]


@jitney.endpoint
def length(pair: Any) -> int:
    return len(pair[1])


@jitney.endpoint
def seen(value: Any) -> dict:
    request = jitney.context().request
    facts = {"left": request.deadline, "origin": request.origin, "priority": request.priority}
    return {**facts, "tenant": request.tenant, "id": request.id, "value": value}


@jitney.endpoint
async def hold(name: str) -> str:
    (HERE / f"{name}-arrived").touch()
    try:
        while not (HERE / f"{name}-opened").exists():
            await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        (HERE / f"{name}-cancelled").touch()
        raise
    return name


@jitney.endpoint
def checked(value: Any) -> Any:
    if value == "bad":
        raise jitney.BadInput("bad is not good")
    return value


Pipeline = jitney.chain(Words, Kinds, name="Pipeline")
Both = jitney.chain(Words, jitney.fan_out(Kinds, length), name="Both")
Named = jitney.fan_out(first=seen, second=jitney.chain(checked, seen), name="Named")
Held = jitney.chain(hold, checked, name="Held")
Failing = jitney.chain(checked, checked, name="Failing")
Everything = jitney.fan_out(Pipeline, Both, Named, Held, Failing)
"""

MODELS = ["app.py:Everything"]


def post(server: Server, path: str, body: object, **more: object) -> requests.Response:
    return requests.post(server.url(path), json=body, timeout=ASK_SECONDS, **more)


def test_values_pass_from_part_to_part_as_they_are(served, session):
    assert post(served, "/Pipeline", {"text": "ab", "upper": True}).text == "AB tuple str bytes"
    handle = session.model("Pipeline")
    assert handle("ab") == "ab tuple str bytes"
    assert handle(text="ab", upper=True) == "AB tuple str bytes"


def test_a_fan_out_gives_what_all_parts_gave(served, session):
    answer = post(served, "/Both", {"text": "abc"})
    assert (answer.json(), answer.headers["content-type"]) == (["abc tuple str bytes", 3], "application/json")
    assert session.model("Both")("abc") == ["abc tuple str bytes", 3]
    named = post(served, "/Named", {"value": [1]}).json()
    assert {key: one["value"] for key, one in named.items()} == {"first": [1], "second": [1]}
    assert session.model("Named")((1, b"x"))["second"]["value"] == (1, b"x")


def test_many_requests_are_answered_side_by_side_each_with_its_own(served):
    texts = [str(number) * number for number in range(1, 30)]
    answers = together([lambda text=text: post(served, "/Both", {"text": text}) for text in texts])
    assert [answer.json()[1] for answer in answers] == [len(text) for text in texts]


def test_deadline_priority_tenant_and_id_travel_along(served):
    headers = {"X-Jitney-Timeout-Ms": "60000", "X-Jitney-Priority": "bulk", "X-Jitney-Tenant": "gold"}
    answer = post(served, "/Named", {"value": 1}, headers=headers)
    for one in answer.json().values():
        assert 60 >= one["left"] > 0
        assert (one["origin"], one["priority"], one["tenant"]) == ("python", "bulk", "gold")
        assert one["id"] == answer.headers["x-request-id"]
    assert post(served, "/Named", {"value": 1}).json()["second"]["left"] is None


def test_a_client_that_goes_away_cancels_the_part_that_runs(served, home):
    gate = Gate(home, "gone")
    with socket.create_connection(served.address, timeout=ASK_SECONDS) as client:
        client.sendall(request("/Held", b'{"name": "gone"}', "Content-Type: application/json"))
        gate.wait()
    until((home / "gone-cancelled").exists, "the part is cancelled")


def test_the_failure_of_a_part_is_that_of_the_request(served, session):
    failed = post(served, "/Failing", {"value": "bad"})
    assert (failed.status_code, failed.json()["message"]) == (400, "bad is not good")
    with pytest.raises(jitney.BadInput, match="bad is not good"):
        session.model("Failing")("bad")
    wrong = post(served, "/Pipeline", {"words": "ab"})
    assert wrong.status_code == 400
    assert "there is no parameter 'words'" in wrong.text


def test_no_process_runs_a_chain_and_its_parts_are_known(served):
    described = served.describe("Pipeline")
    assert {one["model"] for one in described["dependsOn"]} == {"Words", "Kinds"}
    assert [worker for worker in described["workers"] if worker["status"] != "READY" or "pid" in worker] == []
    assert all("pid" in worker for worker in served.describe("Words")["workers"])
    assert served.metric("jitney_requests_total", "Pipeline") > 0


def test_a_job_runs_offline_through_a_chain(binary: Path, home: Path):
    (home / "in.jsonl").write_text('{"text": "ab"}\n{"text": "c"}\n')
    job = [binary, "infer", "app.py:Both", "in.jsonl", "-o", "out.jsonl", "--workers", "1"]
    subprocess.run(job, cwd=home, capture_output=True, check=True, timeout=120)
    outputs = [json.loads(line)["output"] for line in (home / "out.jsonl").read_text().splitlines()]
    assert outputs == [["ab tuple str bytes", 2], ["c tuple str bytes", 1]]


BROKEN = """
import jitney

class Broken:
    def setup(self):
        raise RuntimeError("no weights here")

    @jitney.endpoint
    def run(self, text: str) -> str:
        return text

Hopeful = jitney.chain(Broken)
"""


def test_a_part_that_cannot_be_loaded_says_so_to_whoever_asks_the_chain(start: Callable[..., Server], tmp_path: Path):
    (tmp_path / "broken.py").write_text(BROKEN)
    server = start("serve", "broken.py:Hopeful", cwd=tmp_path, wait_for_workers=False)
    server.logged("model Broken is not ready")
    failed = post(server, "/Hopeful", {"text": "x"})
    assert failed.status_code == 503
    assert "no weights here" in failed.text
