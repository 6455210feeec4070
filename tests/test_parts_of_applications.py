"""Applications made of parts, from outside: one command serves all of them, and they call each other."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import requests

from harness.client import later, request, together
from harness.gate import Gate
from harness.server import ASK_SECONDS, Server
from harness.wait import until

APP = '''
import asyncio
from pathlib import Path

import jitney

HERE = Path(__file__).parent


class Letters:
    """The last of the chain."""

    @jitney.batch(max_batch_size=16)
    def count(self, word: list[str]) -> list[int]:
        return [len(one) for one in word]

    @jitney.endpoint
    def pieces(self, word: str):
        yield from word

    @jitney.endpoint
    async def hold(self, name: str) -> str:
        (HERE / f"{name}-arrived").touch()
        try:
            while not (HERE / f"{name}-opened").exists():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            (HERE / f"{name}-cancelled").touch()
            raise
        return name

    @jitney.endpoint
    def seen(self) -> dict:
        request = jitney.context().request
        facts = {"left": request.deadline, "origin": request.origin, "priority": request.priority}
        return {**facts, "tenant": request.tenant, "id": request.id}


class Words:
    """The middle of the chain."""

    letters = jitney.depends(Letters)

    @jitney.endpoint
    async def count(self, text: str) -> int:
        return sum(await asyncio.gather(*(self.letters.count.remote(one) for one in text.split())))

    @jitney.endpoint
    async def hold(self, name: str) -> str:
        return await self.letters.hold.remote(name)

    @jitney.endpoint
    async def seen(self) -> list:
        return [jitney.context().request.deadline, await self.letters.seen.remote()]


class Pipeline:
    words = jitney.depends(Words)

    def __init__(self, letters: jitney.Handle = jitney.depends(Letters)) -> None:
        self.letters = letters

    @jitney.endpoint
    async def count(self, text: str) -> int:
        return await self.words.count.remote(text)

    @jitney.endpoint
    async def spell(self, text: str):
        async for piece in self.letters.pieces.stream(text):
            yield piece.upper()

    @jitney.endpoint
    async def hold(self, name: str) -> str:
        name = await self.words.hold.remote(name)
        return f"{name} {await self.letters.count.remote(name)}"

    @jitney.endpoint
    async def seen(self) -> list:
        return [jitney.context().request.deadline, *await self.words.seen.remote()]


class Broken:
    def setup(self):
        raise RuntimeError("no weights here")

    @jitney.endpoint
    def run(self, text: str) -> str:
        return text


class Hopeful:
    broken = jitney.depends(Broken)

    @jitney.endpoint
    async def run(self, text: str) -> str:
        return await self.broken.remote(text)
'''

MODELS = ["app.py:Pipeline"]


def post(server: Server, path: str, body: object, **more: object) -> requests.Response:
    return requests.post(server.url(path), json=body, timeout=ASK_SECONDS, **more)


def test_one_command_serves_all_parts_and_they_call_each_other(served):
    texts = [f"some {'words ' * number}here" for number in range(8)]
    answers = together([lambda text=text: post(served, "/Pipeline/count", {"text": text}) for text in texts])
    assert [answer.json() for answer in answers] == [len(text.replace(" ", "")) for text in texts]
    assert "Letters, Words of Pipeline" in served.stdout
    assert served.metric("jitney_requests_total", "Letters") >= sum(len(text.split()) for text in texts)


def test_a_stream_passes_through_a_part(served):
    answer = post(served, "/Pipeline/spell", {"text": "abc"})
    assert answer.text.replace("\n", "").replace('"', "") == "ABC"


def test_deadline_priority_tenant_and_id_travel_along_the_chain(served):
    headers = {"X-Jitney-Timeout-Ms": "60000", "X-Jitney-Priority": "bulk", "X-Jitney-Tenant": "gold"}
    answer = post(served, "/Pipeline/seen", {}, headers=headers)
    first, second, last = answer.json()
    assert 60 >= first >= second >= last["left"] > 0
    assert (last["origin"], last["priority"], last["tenant"]) == ("python", "bulk", "gold")
    assert last["id"] == answer.headers["x-request-id"]
    assert post(served, "/Pipeline/seen", {}).json()[2]["left"] is None


def test_a_client_that_goes_away_cancels_the_whole_chain(served, home):
    gate = Gate(home, "gone")
    with socket.create_connection(served.address, timeout=ASK_SECONDS) as client:
        client.sendall(request("/Pipeline/hold", b'{"name": "gone"}', "Content-Type: application/json"))
        gate.wait()
    until((home / "gone-cancelled").exists, "the last part is cancelled")


def test_models_say_whom_they_call_and_parts_stay_while_they_are_needed(served):
    pipeline, letters = served.describe("Pipeline"), served.describe("Letters")
    calls = {(one["model"], one["version"]) for one in pipeline["dependsOn"]}
    assert calls == {("Words", "1.0"), ("Letters", "1.0")}
    assert letters["partOf"] == [{"model": "Pipeline", "version": "1.0"}]
    assert "dependsOn" not in letters
    overview = requests.get(served.url("/overview", "management"), timeout=ASK_SECONDS).json()
    words = next(model for model in overview["models"] if model["name"] == "Words")
    assert words["dependsOn"] == [{"model": "Letters", "version": "1.0"}]
    refused = served.manage("DELETE", "/models/Letters")
    assert (refused.status_code, refused.json()["type"]) == (409, "ConflictStatusException")
    assert "is needed by" in refused.json()["message"]


def test_a_job_runs_offline_with_all_parts(binary: Path, home: Path):
    (home / "in.jsonl").write_text('{"text": "ab c"}\n{"text": "d"}\n')
    job = [binary, "infer", "app.py:Pipeline", "in.jsonl", "-o", "out.jsonl", "--workers", "1", "--endpoint", "count"]
    subprocess.run(job, cwd=home, capture_output=True, check=True, timeout=120)
    assert [json.loads(line)["output"] for line in (home / "out.jsonl").read_text().splitlines()] == [3, 1]


def test_a_part_that_cannot_be_loaded_is_named_and_a_drain_finishes_a_chain(start: Callable[..., Server], home: Path):
    server, gate = start("serve", "app.py:Hopeful", *MODELS, cwd=home, wait_for_workers=False), Gate(home, "drained")
    held = later(lambda: post(server, "/Pipeline/hold", {"name": "drained"}))
    server.logged("model Broken is not ready")
    failed = post(server, "/Hopeful/run", {"text": "x"})
    assert failed.status_code >= 500
    assert "no weights here" in failed.text
    assert requests.get(server.url("/ping"), timeout=ASK_SECONDS).status_code != 200
    gate.wait()
    server.terminate()
    server.logged("draining")
    gate.open()
    assert held.result().text == "drained 7", "it has called a part after the drain began"
    assert server.wait() == 0


def test_changed_code_replaces_all_parts_without_losing_a_request(start: Callable[..., Server], tmp_path: Path):
    home = tmp_path / "app"
    home.mkdir()
    app = home / "live.py"
    source = """
import jitney

class Part:
    @jitney.batch(max_batch_size=4)
    def add(self, x: list[int]) -> list[int]:
        return [one + STEP for one in x]

class Whole:
    part = jitney.depends(Part)
    @jitney.endpoint
    async def run(self, x: int) -> list:
        return [STEP, await self.part.add.remote(x)]
"""
    app.write_text(source.replace("STEP", "1"))
    server = start("serve", "live.py:Whole", "--watch", cwd=home)
    seen: list[tuple[int, object]] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answer = post(server, "/Whole", {"x": 0})
            seen.append((answer.status_code, answer.json()))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: (200, [1, 1]) in seen, "the first code answers")
        app.write_text(source.replace("STEP", "2"))
        until(lambda: (200, [2, 2]) in seen, "the new code answers")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert {(status, *value) for status, value in seen} == {(200, 1, 1), (200, 2, 2)}, "no mixture, no loss"
    until(lambda: len(server.manage("GET", "/models/Part/all").json()) == 1, "the old part is gone")
