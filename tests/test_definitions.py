"""`jitney serve module:object`, `--watch` and `jitney check`, from outside."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.client import later, together
from harness.gate import Gate
from harness.server import ASK_SECONDS, FREE_PORTS, Server
from harness.wait import until

APP = '''
import time
from pathlib import Path

import jitney

HERE = Path(__file__).parent


@jitney.model(workers=2, queue=500)
class Shop:
    """A shop."""

    def setup(self):
        self.rate = 2

    @jitney.batch(max_batch_size=8)
    def price(self, item: list[str], count: list[int] = 1) -> list[float]:
        """What it costs."""
        return [
            jitney.Error(f"no {one}", status=404) if one == "nothing" else self.rate * many
            for one, many in zip(item, count)
        ]

    @jitney.endpoint
    def who(self, request: jitney.Request) -> dict:
        request.response_headers["X-Seen"] = request.id
        return {"agent": request.headers["user-agent"]}

    @jitney.batch(max_batch_size=8)
    def size(self, x: list[int]) -> list[int]:
        return [len(x)] * len(x)

    @jitney.endpoint
    def hold(self, name: str) -> str:
        (HERE / f"{name}-arrived").touch()
        while not (HERE / f"{name}-opened").exists():
            time.sleep(0.005)
        return name

    @jitney.endpoint
    def upload(self, file: bytes, name: str = "") -> str:
        return f"{name} {len(file)}"

    @jitney.batch(max_batch_size=8)
    def fussy(self, x: list[int]) -> list[int]:
        if 13 in x:
            raise ValueError("thirteen")
        return x

    @jitney.batch(max_batch_size=8)
    def short(self, x: list[int]) -> list[int]:
        return x[1:]


@jitney.batch(max_batch_size=4, concurrency=3)
async def calm(x: list[int]) -> list[int]:
    return x


def plain(text: str, times: int = 1) -> str:
    return text * times


@jitney.batch
def sorts(x: list[int]) -> list[int]:
    return sorted(x)
'''


MODELS = ["app:Shop", "app.py:calm", "other=app:plain"]


def post(server: Server, path: str, body: object = None, **more: object) -> requests.Response:
    return requests.post(server.url(path), json=body, timeout=ASK_SECONDS, **more)


def test_endpoints_answer_under_their_own_names(served):
    assert post(served, "/Shop/price", {"item": "tea", "count": 3}).json() == 6
    assert post(served, "/Shop/price", {"item": "tea"}).json() == 2
    assert requests.get(served.url("/Shop/price?item=tea&count=4"), timeout=ASK_SECONDS).json() == 8
    assert post(served, "/predictions/Shop/1.0/price", {"item": "tea"}).json() == 2
    answer = post(served, "/predictions/other", {"text": "ab", "times": 2})
    assert (answer.text, answer.headers["content-type"]) == ("abab", "text/plain; charset=utf-8")
    assert post(served, "/calm", {"x": 5}).json() == 5


def test_options_of_the_decorator_are_the_models_settings(served):
    shop = served.describe("Shop")
    assert (shop["minWorkers"], shop["maxWorkers"], shop["batchSize"]) == (2, 2, 8)
    assert len(served.ready("Shop")) == 2


def test_every_request_has_a_context_of_its_own(served):
    answers = together([lambda at=at: post(served, "/Shop/who", headers={"User-Agent": f"a{at}"}) for at in range(8)])
    assert [one.json()["agent"] for one in answers] == [f"a{at}" for at in range(8)]
    assert all(one.headers["x-seen"] == one.headers["x-request-id"] for one in answers)


def test_wrong_arguments_and_single_failures_are_told_to_their_caller_only(served):
    asked = [{"item": "tea"}, {"item": "nothing"}, {"itm": "tea"}, {"item": "tea", "count": "many"}]
    answers = together([lambda body=body: post(served, "/Shop/price", body) for body in asked])
    assert [one.status_code for one in answers] == [200, 404, 400, 400]
    assert answers[1].json()["message"] == "no nothing"
    assert "there is no parameter 'itm'" in answers[2].json()["message"]
    assert "'count' cannot be read as int" in answers[3].json()["message"]
    unknown = post(served, "/Shop/nowhere", {})
    assert unknown.status_code == 404
    assert "it has: price, who" in unknown.json()["message"]


def test_one_bad_item_spoils_no_other_answer(served):
    answers = together([lambda x=x: post(served, "/Shop/fussy", {"x": x}) for x in (1, 13, 2, 3, 4)])
    assert [one.status_code for one in answers] == [200, 500, 200, 200, 200]
    assert answers[1].json()["message"] == "ValueError: thirteen"


def test_a_model_that_returns_too_little_gives_no_request_anothers_row(served):
    answers = together([lambda x=x: post(served, "/Shop/short", {"x": x}) for x in range(5)])
    assert {one.status_code for one in answers} <= {500, 503}


def test_requests_of_different_endpoints_never_share_a_batch(served, home):
    gates = [Gate(home, name) for name in ("left", "right")]
    held = [later(lambda name=name: post(served, "/Shop/hold", {"name": name}).text) for name in ("left", "right")]
    for gate in gates:
        gate.wait()
    sizes = [later(lambda: post(served, "/Shop/size", {"x": 1}).json()) for _ in range(16)]
    prices = [later(lambda: post(served, "/Shop/price", {"item": "tea"}).json()) for _ in range(16)]
    until(lambda: served.metric("jitney_waiting", "Shop") == 32, "all wait")
    for gate in gates:
        gate.open()
    assert [one.result() for one in held] == ["left", "right"]
    assert [one.result() for one in prices] == [2] * 16
    assert all(1 <= one.result() <= 8 for one in sizes)
    assert max(one.result() for one in sizes) > 1


def test_files_and_fields_arrive_as_arguments(served):
    files = {"file": ("a.bin", io.BytesIO(b"12345"), "application/octet-stream")}
    answer = requests.post(served.url("/Shop/upload"), files=files, data={"name": "a"}, timeout=ASK_SECONDS)
    assert answer.text == "a 5"
    raw = requests.post(served.url("/Shop/upload?name=b"), data=b"123", timeout=ASK_SECONDS)
    assert raw.text == "b 3"


def test_the_api_is_described_and_can_be_tried(served):
    document = requests.get(served.url("/openapi.json"), timeout=ASK_SECONDS).json()
    assert {"/Shop/price", "/calm", "/other"} <= document["paths"].keys()
    assert document["paths"]["/Shop/price"]["post"]["summary"] == "What it costs."
    page = requests.get(served.url("/docs"), timeout=ASK_SECONDS)
    assert page.headers["content-type"].startswith("text/html")
    assert "openapi.json" in page.text
    for tag in ("script", "style"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL)
        sum_of = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{sum_of}';" in page.headers["content-security-policy"]
    assert "unsafe-inline" not in page.headers["content-security-policy"]


def test_a_request_that_is_nested_too_deeply_is_wrong_and_costs_few_lines(served):
    before = len(served.log)
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for headers in ({"content-type": "application/json"}, {"content-type": "application/octet-stream"}):
        replies = [requests.post(served.url("/other"), deep, headers=headers, timeout=ASK_SECONDS) for _ in range(10)]
        assert {reply.status_code for reply in replies} == {400}, replies[0].text
    logged = served.log[before:]
    assert "Traceback" not in logged and logged.count("\n") < 20, logged


def test_changed_code_is_served_without_losing_a_request(start: Callable[..., Server], tmp_path: Path):
    home = tmp_path / "app"
    home.mkdir()
    app = home / "live.py"
    source = "import jitney, time\n\n@jitney.batch(max_batch_size=4)\ndef live(x: list[int]) -> list[int]:\n"
    app.write_text(source + "    time.sleep(0.02)\n    return [one + 1 for one in x]\n")
    server = start("serve", "live:live", "--watch", cwd=home)
    assert post(server, "/live", {"x": 1}).json() == 2
    seen: list[tuple[int, object]] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answer = post(server, "/live", {"x": 1})
            seen.append((answer.status_code, answer.json()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        app.write_text(source + "    time.sleep(0.02)\n    return [one + 100 for one in x]\n")
        until(lambda: (200, 101) in seen, "the new code answers", 60)
        app.write_text("this is no Python\n")
        server.logged("the changed code was not loaded", 60)
        app.write_text(source + "    return [one + 1000 for one in x]\n")
        until(lambda: (200, 1001) in seen, "code that works again answers", 60)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert {status for status, _ in seen} == {200}
    assert {value for _, value in seen} == {2, 101, 1001}


def check(binary: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary, "check", *arguments], cwd=home, capture_output=True, text=True, timeout=120)


def test_check_finds_mistakes_without_a_server(binary: Path, tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    wrong = check(binary, tmp_path, "app:sorts", "--sample", '{"x": 2}', "--sample", '{"x": 1}')
    assert wrong.returncode == 1
    assert "WRONG" in wrong.stdout
    right = check(binary, tmp_path, "app:plain")
    assert (right.returncode, right.stderr) == (0, "")
    missing = check(binary, tmp_path, "app:nothing")
    assert missing.returncode == 1
    assert "its definitions: " in missing.stderr


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import jitney\n@jitney.batch(max_batch_size=0)\ndef f(x): return x\n", "max_batch_size must be"),
        ("1/0\n", "ZeroDivisionError"),
        ("x = 3\n", "has no 'f'"),
    ],
)
def test_a_definition_that_cannot_be_served_ends_the_start_with_the_reason(binary, tmp_path, source, words):
    (tmp_path / "bad.py").write_text(source)
    done = subprocess.run(
        [binary, "serve", "bad:f", *FREE_PORTS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize("spec", ["../app.py:shout", "{home}/app.py:shout"])
def test_a_definition_may_lie_outside_of_the_directory(spec: str, binary: Path, tmp_path: Path):
    (tmp_path / "app.py").write_text("def shout(text: str) -> str:\n    return text.upper()\n")
    below = tmp_path / "below"
    below.mkdir()
    server = Server(binary, tmp_path / "server", ["serve", spec.format(home=tmp_path)], cwd=below)
    try:
        answer = requests.post(server.started().url("/shout"), json={"text": "hey"}, timeout=ASK_SECONDS)
        assert (answer.status_code, answer.text.strip('"')) == (200, "HEY")
    finally:
        server.end()
