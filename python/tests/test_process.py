"""The real process: `python -m jitney.worker` over a real socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import pytest
import wire

OPS = """
    import os, signal, sys

    def handle(data, context):
        op, _, arg = data[0]["body"].decode().partition(" ") if data else ("", "", "")
        if op == "print":
            for _ in range(int(arg)):
                print("x" * 1023)
        if op == "say":
            print("grüße", arg)
            print("to stderr", arg, file=sys.stderr)
        if op == "exit":
            sys.exit(int(arg))
        if op == "_exit":
            os._exit(int(arg))
        if op == "fork":
            child = os.fork()
            if child == 0:
                signal.pause()
            return [str(child)]
        if op == "raise":
            raise ValueError("exam failure")
        if op == "env":
            return [{k: v for k, v in os.environ.items() if "JITNEY" in k}]
        if op == "cwd":
            return [os.getcwd() + " " + str(os.getpid())]
        return ["done" for _ in data or ()]
"""


class ProcessWorker(wire.Server):
    """A worker process that dialled in to a listening socket; its output is collected by threads."""

    def __init__(self, listener: socket.socket, address: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jitney.worker"],
            env={**os.environ, "PYTHONPATH": wire.PYTHON_DIR, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0",
                 "JITNEY_WORKER_SOCKET": address, "JITNEY_WORKER_TOKEN": "s3cret"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        self.lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._drains = [self._drain("stdout"), self._drain("stderr")]
        listener.settimeout(wire.PATIENCE_SECONDS)
        super().__init__(listener.accept()[0])

    def _drain(self, name: str) -> threading.Thread:
        stream = getattr(self.process, name)
        thread = threading.Thread(target=lambda: self.lines[name].extend(stream))
        thread.start()
        return thread

    def wait(self) -> int:
        """Returns the exit status once all output is read."""
        status = self.process.wait(wire.PATIENCE_SECONDS)
        for thread in self._drains:
            thread.join(30)
        return status

    def do(self, op: str):
        return self.ask(wire.bodies(op.encode()))


@pytest.fixture
def dial_in():
    """Starts worker processes; they have said nothing yet."""
    started = []

    def run(tcp: bool = False):
        family = socket.AF_INET if tcp else socket.AF_UNIX
        with tempfile.TemporaryDirectory() as folder, socket.socket(family) as listener:
            listener.bind(("127.0.0.1", 0) if tcp else os.path.join(folder, "s"))
            listener.listen()
            name = listener.getsockname()
            started.append(ProcessWorker(listener, f"tcp:{name[0]}:{name[1]}" if tcp else name))
        return started[-1]

    yield run
    for worker in started:
        worker.sock.close()
        worker.process.kill()
        worker.wait()
        worker.process.stdout.close()
        worker.process.stderr.close()


@pytest.fixture
def start(dial_in, model):
    """Starts worker processes and loads the handler above."""

    def run(tcp: bool = False):
        worker = dial_in(tcp)
        worker.hello = worker.read_control(wire.HELLO)
        worker.send(wire.control(wire.LOAD, wire.load_spec(model(OPS), "handler.py")))
        worker.read_control(wire.LOADED)
        return worker

    return run


@pytest.mark.parametrize("tcp", [False, True])
def test_a_worker_dials_in_says_hello_serves_and_stops(start, model, tcp):
    worker = start(tcp)
    assert worker.hello == {
        "protocol": 3, "token": "s3cret", "pid": worker.process.pid, "python": sys.version.split()[0],
    }  # fmt: skip
    assert worker.do("cwd")[0]["body"].decode() == f"{os.path.realpath(model(OPS))} {worker.process.pid}"
    worker.send(wire.frame(wire.STOP))
    assert worker.ended() and worker.wait() == 0


def test_address_and_token_are_hidden_from_the_handler(start):
    assert start().do("env")[0]["body"] == b"{}"


def test_output_arrives_line_by_line_in_utf8(start):
    worker = start()
    worker.do("say hello")
    worker.do("raise")
    worker.sock.close()
    assert worker.wait() == 0
    assert worker.lines["stderr"] == ["to stderr hello\n"]
    assert worker.lines["stdout"][0] == "grüße hello\n"
    assert "ValueError: exam failure\n" in worker.lines["stdout"]


def test_a_handler_may_print_megabytes(start):
    worker = start()
    assert worker.do("print 8192")[0]["body"] == b"done"
    worker.sock.close()
    assert worker.wait() == 0 and len(worker.lines["stdout"]) == 8192


@pytest.mark.parametrize("op, status", [("exit 7", 7), ("exit 0", 0), ("_exit 9", 9)])
def test_a_handler_that_exits_ends_the_worker(start, op, status):
    worker = start()
    worker.send(wire.batch(wire.bodies(op.encode())))
    assert worker.ended() and worker.wait() == status


def test_a_forked_child_does_not_hide_the_exit_of_its_worker(start):
    worker = start()
    child = int(worker.do("fork")[0]["body"])
    try:
        worker.send(wire.batch(wire.bodies(b"_exit 9")))
        assert worker.ended()
    finally:
        os.kill(child, signal.SIGKILL)
    assert worker.wait() == 9


def test_sigterm_ends_a_worker(start):
    worker = start()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended() and worker.wait() == -signal.SIGTERM


def test_a_thread_left_running_does_not_keep_a_finished_worker():
    program = """if True:
        import threading, jitney.worker.__main__ as main
        main.EXIT_GRACE_SECONDS = 0
        threading.Thread(target=threading.Event().wait).start()
        main.exit_after_grace(3)
    """
    environment = {**os.environ, "PYTHONPATH": wire.PYTHON_DIR}
    assert (
        subprocess.run([sys.executable, "-c", program], env=environment, timeout=wire.PATIENCE_SECONDS).returncode == 3
    )


def test_a_failed_load_exits_with_status_1_and_its_traceback(dial_in, model):
    worker = dial_in()
    worker.load(model("def handle(data, context)\n"), "handler.py")
    failure = worker.read_control(wire.LOAD_FAILED)
    assert failure["cause"] == "error" and "SyntaxError" in failure["traceback"]
    assert worker.wait() == 1


def test_started_by_hand_it_says_what_is_missing():
    environment = {**os.environ, "PYTHONPATH": wire.PYTHON_DIR}
    done = subprocess.run(
        [sys.executable, "-m", "jitney.worker"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=wire.PATIENCE_SECONDS,
    )
    assert done.returncode == 64 and "JITNEY_WORKER_SOCKET" in done.stderr


def test_a_worker_ends_at_once_if_its_server_ended_before_it():
    env = {**os.environ, "PYTHONPATH": wire.PYTHON_DIR, "JITNEY_WORKER_SOCKET": "/nowhere"}
    env["JITNEY_WORKER_PARENT"] = str(os.getpid() + 1)
    ended = subprocess.run([sys.executable, "-m", "jitney.worker"], env=env, timeout=wire.PATIENCE_SECONDS)
    assert ended.returncode == 1


def test_a_worker_ends_with_its_server_whatever_its_handler_does():
    """The kernel sees to it, so nothing in the worker has to run."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the parent-death signal is Linux's")
    hang = "from jitney.worker.__main__ import end_with_parent as end; end(); print('up', flush=True)\nwhile True: pass"
    start = f"import os, subprocess, sys; env = dict(os.environ, JITNEY_WORKER_PARENT=str(os.getpid()))\n\
subprocess.Popen([sys.executable, '-c', {hang!r}], env=env)\nsys.stdin.read()"
    env = {**os.environ, "PYTHONPATH": wire.PYTHON_DIR}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen([sys.executable, "-c", start], env=env, **pipes) as server:
        assert server.stdout.readline() == "up\n"
        server.kill()
        assert server.stdout.read() == "", "the worker, which held the pipe too, has ended"
