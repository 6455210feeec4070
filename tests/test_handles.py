"""Handles against the real binary: futures, batches, cancellation, streams, failures, ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.gate import Gate
from harness.package import ROOT, jitney
from harness.server import ASK_SECONDS, Server
from harness.wait import until

APP = """
import pathlib
import time
import jitney

HERE = pathlib.Path(__file__).parent


class Sour(Exception):
    def __init__(self, word, level):
        super().__init__(word)
        self.level = level


@jitney.batch(max_batch_size=5, policy="opportunistic", queue=50)
def shared_calls(x: list[int]) -> list[tuple]:
    if x[0] < 0:  # Holds the worker until the test has queued its calls.
        pathlib.Path(HERE, "held-arrived").touch()
        while not pathlib.Path(HERE, "held-opened").exists():
            time.sleep(0.005)
    return [(one, len(x)) for one in x]


@jitney.batch(max_batch_size=3, max_batch_delay_ms=600000)
def trio(x: list[int]) -> list[list]:
    return [x] * len(x)


@jitney.batch(max_batch_size=2, max_batch_delay_ms=400)
def apart(x: list[int]) -> list[int]:
    return [len(x)] * len(x)


@jitney.batch(max_batch_size=2, max_batch_delay_ms=600000, mix_origins=True)
def together(x: list[int]) -> list[int]:
    return [len(x)] * len(x)


@jitney.batch(max_batch_size=4)
def broken(x: list[int]):
    return 7


class Kit:
    @jitney.batch(max_batch_size=16)
    def add(self, a: list[int], b: list[int] = 1) -> list[int]:
        return [one + other for one, other in zip(a, b)]

    @jitney.endpoint
    def echo(self, x):
        return x

    @jitney.batch(max_batch_size=8)
    def sour(self, x: list[int]) -> list[int]:
        return [Sour("too sour", one) if one > 2 else one for one in x]

    @jitney.batch(max_batch_size=8)
    def divide(self, x: list[int]) -> list[float]:
        return [1 / one for one in x]

    @jitney.endpoint
    def tell(self, words: int, fail: bool = False):
        for at in range(words):
            yield {"at": at}
        if fail:
            raise Sour("mid-story", 9)

    @jitney.endpoint
    def slow(self, seconds: float) -> str:
        time.sleep(seconds)
        return "done"
"""


MODELS = [f"app:{name}" for name in ("shared_calls", "trio", "apart", "together", "broken", "Kit")]


def test_a_call_returns_a_future_at_once(session):
    add = session.model("Kit").add
    calls = [add.remote(number) for number in range(50)]
    assert [call.result(ASK_SECONDS) for call in calls] == list(range(1, 51))
    assert calls[0].timing.batch_items >= 1


def test_arguments_reach_the_parameters_they_were_meant_for(session):
    add = session.model("Kit").add
    calls = [add.remote(1), add.remote(1, 2), add.remote(a=1, b=3), add.remote(b=4, a=1), add.remote(1, b=5)]
    assert [call.result(ASK_SECONDS) for call in calls] == [2, 3, 4, 5, 6]
    for wrong, words in [((1, 2, 3), "takes 2 arguments"), (("x",), "cannot be read as int")]:
        with pytest.raises(jitney.BadInput, match=words):
            add.remote(*wrong).result(ASK_SECONDS)
    with pytest.raises(jitney.BadInput, match="given twice"):
        add.remote(1, a=2).result(ASK_SECONDS)


def test_values_keep_their_types(session):
    echo = session.model("Kit").echo
    for value in (None, True, 2**80, 0.5, "grün", b"\0\xff", [1, (2,)], {1: {"a": None}}, "x" * 300_000):
        assert echo.remote(value).result(ASK_SECONDS) == value


def test_thousands_of_calls_of_one_loop_are_under_way_at_a_time(served):
    async def main() -> list[int]:
        async with jitney.connect(served.urls["inference"]) as session:
            add = session.model("Kit").add
            return await asyncio.gather(*(add.remote(number) for number in range(3000)))

    assert asyncio.run(main()) == list(range(1, 3001))


def test_calls_that_wait_together_run_together(served, session, home):
    handle, gate = session.model("shared_calls"), Gate(home, "held")
    held = handle.remote(-1)
    gate.wait()
    calls = [handle.remote(x) for x in range(20)]
    until(lambda: served.metric("jitney_waiting", "shared_calls") == 20, "all wait")
    gate.open()
    assert held.result(ASK_SECONDS) == (-1, 1)
    assert [call.result(ASK_SECONDS) for call in calls] == [(x, 5) for x in range(20)]


def test_a_handle_is_shared_by_threads_and_loops(session):
    add, seen = session.model("Kit").add, []

    def work(base: int) -> None:
        seen.extend(call.result(ASK_SECONDS) - base for call in [add.remote(base + n) for n in range(100)])

    async def loop_work() -> None:
        seen.extend(await asyncio.gather(*(add.remote(n) for n in range(100))))

    threads = [threading.Thread(target=work, args=(base,)) for base in (0, 1000)]
    threads.append(threading.Thread(target=lambda: asyncio.run(loop_work())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(list(range(1, 101)) * 3)


def test_a_call_of_a_thread_can_be_awaited(session):
    call = session.model("Kit").add.remote(41)

    async def main() -> int:
        return await call

    assert asyncio.run(main()) == 42


def test_a_cancelled_call_never_runs_and_leaves_the_others_waiting(session):
    trio = session.model("trio")
    first, second = trio.remote(1), trio.remote(2)
    assert second.cancel()
    third = trio.remote(3)
    with pytest.raises(TimeoutError):
        first.result(0.3)
    assert trio.remote(4).result(ASK_SECONDS) == first.result(ASK_SECONDS) == third.result(ASK_SECONDS) == [1, 3, 4]


def test_a_cancelled_task_takes_its_call_out_of_the_queue(served):
    async def main() -> list[list[int]]:
        async with jitney.connect(served.urls["inference"]) as session:
            trio = session.model("trio")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(trio.remote(1), 0.2)
            return await asyncio.gather(*(trio.remote(x) for x in (5, 6, 7)))

    assert asyncio.run(main()) == [[5, 6, 7]] * 3


def test_calls_of_a_client_that_is_gone_leave_the_queue(served):
    with jitney.connect(served.urls["inference"]) as gone:
        call = gone.model("trio").remote(1)
        with pytest.raises(TimeoutError):
            call.result(0.2)
    with pytest.raises(jitney.Disconnected):
        call.result(ASK_SECONDS)
    until(lambda: served.metric("jitney_waiting", "trio") == 0, "its call has left the queue")
    with jitney.connect(served.urls["inference"]) as session:
        calls = [session.model("trio").remote(x) for x in (8, 9, 10)]
        assert calls[0].result(ASK_SECONDS) == [8, 9, 10]


def test_a_batch_never_mixes_python_and_http_unless_the_model_allows_it(served, session):
    for model, size in (("apart", 1), ("together", 2)):
        call = session.model(model).remote(1)
        answer = requests.post(served.url(f"/{model}"), json={"x": 2}, timeout=ASK_SECONDS)
        assert (call.result(ASK_SECONDS), answer.json()) == (size, size), model


def test_an_exception_arrives_with_its_type_and_without_the_workers_traceback(served, session):
    calls = [session.model("Kit").sour.remote(x) for x in (1, 3)]
    assert calls[0].result(ASK_SECONDS) == 1
    with pytest.raises(jitney.RemoteError, match="too sour") as caught:
        calls[1].result(ASK_SECONDS)
    assert caught.value.kind == "app.Sour"
    assert caught.value.__cause__ is None, "paths and lines of the server stay there"
    with pytest.raises(ZeroDivisionError) as divided:
        session.model("Kit").divide.remote(0).result(ASK_SECONDS)
    assert divided.value.__cause__ is None
    served.logged("in divide")
    answer = requests.post(served.url("/Kit/divide"), json={"x": 0}, timeout=ASK_SECONDS)
    assert answer.status_code == 500
    assert "division by zero" in answer.text and "Traceback" not in answer.text and "app.py" not in answer.text
    with pytest.raises(jitney.WrongLength):
        session.model("broken").remote(1).result(ASK_SECONDS)


def test_a_deadline_holds_in_the_queue(session):
    slow = session.model("Kit").slow
    busy = slow.remote(2.0)
    with pytest.raises(jitney.Expired) as caught:
        slow.options(timeout=0.05).remote(0.0).result(ASK_SECONDS)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.status == 408
    assert busy.result(ASK_SECONDS) == "done"


def test_what_is_not_there_is_said(session):
    with pytest.raises(jitney.NotFound, match="Model not found: ghost"):
        session.model("ghost").remote(1).result(ASK_SECONDS)
    with pytest.raises(jitney.Error, match="it has: add, echo"):
        session.model("Kit").nothing.remote(1).result(ASK_SECONDS)


def test_a_stream_is_an_iterator_in_threads_and_in_loops(served, session):
    tell = session.model("Kit").tell
    assert list(tell.stream(3)) == [{"at": 0}, {"at": 1}, {"at": 2}]
    assert tell.remote(2).result(ASK_SECONDS) == [{"at": 0}, {"at": 1}]
    assert tell.remote(0).result(ASK_SECONDS) == list(tell.stream(0)) == []
    assert list(session.model("Kit").add.stream(1)) == [2]
    told = []
    with pytest.raises(jitney.RemoteError, match="mid-story"):
        for piece in tell.stream(2, fail=True):
            told.append(piece["at"])  # noqa: PERF401
    assert told == [0, 1]

    async def main() -> list[dict]:
        async with jitney.connect(served.urls["inference"]) as session:
            return [piece async for piece in session.model("Kit").tell.stream(4)]

    assert [piece["at"] for piece in asyncio.run(main())] == [0, 1, 2, 3]


def test_a_loop_is_told_to_await_instead_of_blocking(served):
    async def main() -> None:
        async with jitney.connect(served.urls["inference"]) as session:
            call = session.model("Kit").add.remote(1)
            with pytest.raises(RuntimeError, match="await"):
                call.result()
            assert await call == 2

    asyncio.run(main())


def test_models_of_other_kinds_are_called_with_json_or_bytes(shared: Server):
    with jitney.connect(shared.urls["inference"]) as session:
        with pytest.raises(jitney.RemoteError, match='encoding="json"'):
            session.model("echo").remote(1).result(ASK_SECONDS)
        assert session.model("echo", encoding="bytes").remote(b"hello").result(ASK_SECONDS) == b"hello"


def upgraded(server: Server, headers: str = "") -> socket.socket:
    sock = socket.create_connection(server.address, timeout=ASK_SECONDS)
    ask = f"GET /.jitney/handle HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: jitney-handle/1\r\n{headers}\r\n"
    sock.sendall(ask.encode())
    return sock


@pytest.mark.parametrize("frame", [struct.pack("<IBBHQ", 0, 9, 0, 0, 1), struct.pack("<IBBHQ", 2**31, 1, 0, 0, 1)])
def test_nonsense_ends_its_own_connection_only(served, session, frame):
    with upgraded(served) as sock:
        head = sock.recv(4096)
        assert head.startswith(b"HTTP/1.1 101")
        sock.sendall(frame)
        assert sock.recv(4096) == b""
    assert session.model("Kit").add.remote(1).result(ASK_SECONDS) == 2


def test_a_plain_request_is_told_what_the_path_is_for(served):
    answer = requests.get(served.url("/.jitney/handle"), timeout=ASK_SECONDS)
    assert answer.status_code == 400
    assert "jitney.connect" in answer.json()["message"]


def test_a_server_that_ends_answers_what_it_has(start: Callable[..., Server], tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:Kit", cwd=tmp_path)
    with jitney.connect(server.urls["inference"]) as session:
        slow = session.model("Kit").slow
        slow.remote(0).result(ASK_SECONDS)
        call = slow.remote(1.0)
        until(lambda: server.metric("jitney_batch_items_count", "Kit") >= 2, "the call is taken in")
        server.terminate()
        assert call.result(ASK_SECONDS) == "done"
        server.wait()
        with pytest.raises(jitney.Disconnected):
            slow.remote(0).result(ASK_SECONDS)
    with pytest.raises(RuntimeError, match="closed"):
        slow.remote(0)


def test_a_server_that_dies_fails_what_was_under_way_and_a_new_one_is_found(start, tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:trio", cwd=tmp_path)
    with jitney.connect(server.urls["inference"]) as session:
        call = session.model("trio").remote(1)
        with pytest.raises(TimeoutError):
            call.result(0.2)
        server.kill()
        with pytest.raises(jitney.Disconnected):
            call.result(ASK_SECONDS)


def test_a_token_is_asked_for(start: Callable[..., Server], tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:Kit", "--token-auth", cwd=tmp_path, wait_for_workers=False)
    key = json.loads((tmp_path / "key_file.json").read_text())["inference"]["key"]
    with jitney.connect(server.urls["inference"]) as session, pytest.raises(jitney.RemoteError, match="Token"):
        session.model("Kit").add.remote(1).result(ASK_SECONDS)
    with jitney.connect(server.urls["inference"], token=key) as session:
        assert session.model("Kit").add.remote(1).result(ASK_SECONDS) == 2


PROGRAM = """
import asyncio, os, sys
import jitney


@jitney.batch(max_batch_size=4)
def double(x: list[int]) -> list[int]:
    if 13 in x:
        raise KeyError("thirteen")
    return [2 * one for one in x]


if __name__ == "__main__":
    handle = jitney.run(double, program=sys.argv[1])
    print(handle.url, flush=True)
    print([call.result(30) for call in [handle.remote(x) for x in range(5)]], flush=True)
    try:
        handle.remote(13).result(30)
    except KeyError as error:
        print("KeyError", error, "in double" in str(error.__cause__), flush=True)
    if sys.argv[2] == "wait":
        sys.stdin.read()
"""


def program(binary: Path, home: Path, mode: str) -> subprocess.Popen[str]:
    (home / "program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "program.py", str(binary), mode]
    return subprocess.Popen(command, cwd=home, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_run_serves_a_definition_beside_the_program_and_ends_with_it(binary: Path, tmp_path: Path):
    with program(binary, tmp_path, "end") as running:
        out, _ = running.communicate(timeout=120)
    url, answers, error = out.splitlines()
    assert (answers, error) == ("[0, 2, 4, 6, 8]", "KeyError 'thirteen' True")
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{url}/ping", timeout=ASK_SECONDS)


HOPELESS = """
import sys
import jitney


class Hopeless:
    def setup(self):
        raise ValueError("no weights")

    def __call__(self, x: int) -> int:
        return x


if __name__ == "__main__":
    jitney.run(Hopeless, program=sys.argv[1])
"""


def test_run_says_that_a_model_does_not_load(binary: Path, tmp_path: Path):
    (tmp_path / "hopeless.py").write_text(HOPELESS)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "hopeless.py", str(binary)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "no weights" in done.stderr and "RuntimeError: Hopeless did not load" in done.stderr


def test_the_server_of_a_program_that_is_killed_ends_too(binary: Path, tmp_path: Path):
    with program(binary, tmp_path, "wait") as running:
        url = running.stdout.readline().strip()
        running.stdout.readline()
        assert requests.get(f"{url}/ping", timeout=ASK_SECONDS).status_code == 200
        running.send_signal(signal.SIGKILL)

        def gone() -> bool:
            try:
                requests.get(f"{url}/ping", timeout=ASK_SECONDS)
            except requests.ConnectionError:
                return True
            return False

        until(gone, "the server has ended")
