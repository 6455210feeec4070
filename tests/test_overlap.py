"""Handlers whose stages overlap: the server hands such a worker its next batch before the answer to this one."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from harness.archives import Store
from harness.client import later
from harness.server import Server
from harness.wait import until

STAGED = """
import threading

class Staged:
    def initialize(self, context):
        self.begun = threading.Semaphore(0)

    def batches_at_a_time(self):
        return 2

    def begin(self, data, context):
        self.begun.release()
        return [bytes(row["body"]).decode() for row in data]

    def finish(self, texts, context):
        if "wait for the next" in texts:
            for _ in range(2):
                if not self.begun.acquire(timeout=120):
                    return ["nobody came"] * len(texts)
        return texts

    def handle(self, data, context):
        return self.finish(self.begin(data, context), context)
"""


def test_a_worker_gets_its_next_batch_while_it_works_on_this_one(start, store: Store) -> None:
    server: Server = start("serve", store.mar("staged", source=STAGED), "--batch-size", "1")
    first = later(lambda: server.predict("staged", b"wait for the next"))
    assert server.predict("staged", b"next").text == "next"
    assert first.result().text == "wait for the next"


def test_when_it_dies_both_batches_are_answered_by_the_next_one(start, store: Store, tmp_path: Path) -> None:
    waiting = STAGED.replace(
        'if "wait for the next" in texts', f'if not __import__("os").path.exists({str(tmp_path / "go")!r})'
    )
    server: Server = start("serve", store.mar("staged", source=waiting), "--batch-size", "1")
    replies = [later(partial(server.predict, "staged", body)) for body in (b"a", b"b")]
    (pid,) = until(lambda: server.ready("staged"), "its worker").values()
    (tmp_path / "go").touch()
    os.kill(pid, signal.SIGKILL)
    assert [reply.result().text for reply in replies] == ["a", "b"]
