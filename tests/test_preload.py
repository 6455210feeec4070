"""Modules that one process imports, from which workers are forked: what workers share with it, and what they do not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from harness.archives import Store
from harness.processes import is_alive
from harness.server import Server
from harness.wait import until

HEAVY = "import os\nPID = os.getpid()\n"
"""A module that knows who imported it."""
HANDLER = """
import json, os, pathlib, random, sys
import heavy

def handle(data, context):
    if data is None:
        facts = {
            "imported_by": heavy.PID, "file": heavy.__file__, "folder": os.getcwd(), "group": os.getpgid(0),
            "path": sys.path, "random": random.random(), "left": [it for it in os.environ if "JITNEY_WORKER" in it],
        }
        path = pathlib.Path(os.environ["FACTS"], str(os.getpid()))
        path.with_suffix(".new").write_text(json.dumps(facts))
        path.with_suffix(".new").rename(path)
        return None
    if any(row.get("body") == b"exit" for row in data):
        os._exit(7)
    return ["fine"] * len(data)
"""
"""Writes down what it finds when it is loaded."""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A folder of the operator's modules."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "heavy.py").write_text(HEAVY)
    (folder / "above.py").write_text("import heavy\n")
    (folder / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    return folder


@pytest.fixture
def serve(start, store: Store, modules: Path):
    """Starts a server with two workers of the handler, which imports these modules once."""

    def serve(preload: str, workers: int = 2) -> Server:
        archive = store.mar("facts", source=HANDLER)
        env = {"PYTHONPATH": str(modules), "FACTS": str(modules)}
        flags = ("--workers", str(workers), "--preload", preload, "--model-store", store.path)
        return start("serve", archive, *flags, env=env, store=store)

    return serve


def facts(server: Server, model: str = "facts") -> dict[int, dict]:
    """What the workers of a model found, by their process."""
    assert server.predict(model, b"x").text == "fine"
    folder = Path(server.env["FACTS"])
    return {pid: json.loads((folder / str(pid)).read_text()) for pid in server.ready(model).values()}


def test_workers_share_an_import_and_nothing_else(serve) -> None:
    server = serve("heavy")
    found = facts(server)
    importers = {said["imported_by"] for said in found.values()}
    assert len(found) == 2
    assert len(importers) == 1 and not importers & set(found), "one process imported it, and that is no worker"
    for pid, said in found.items():
        assert said["group"] == pid
        assert said["folder"] == said["path"][0] and not said["left"]
    assert len({said["random"] for said in found.values()}) == 2
    assert len({said["folder"] for said in found.values()}) == 1


def test_the_end_of_a_forked_worker_is_seen_and_told(serve) -> None:
    server = serve("heavy", workers=1)
    (pid,) = facts(server)
    os.kill(pid, signal.SIGKILL)
    until(lambda: set(server.ready("facts").values()) - {pid}, "another one serves")
    server.logged("worker exit: killed by signal 9")
    assert server.predict("facts", b"exit").status_code >= 500
    server.logged("worker exit: exit status 7")
    assert facts(server)
    until(lambda: not is_alive(pid), "nothing is left of it")


@pytest.mark.parametrize("preload", ["heavy", "above"])
def test_a_model_with_a_module_of_its_own_gets_that_one(serve, preload: str) -> None:
    """Also where it was imported only because another one needs it."""
    server = serve(preload)
    server.register(server.store.mar("own", source=HANDLER, files={"heavy.py": HEAVY}))
    ((pid, said),) = facts(server, "own").items()
    assert said["imported_by"] == pid and Path(said["file"]).parent == Path(said["folder"])
    server.logged("its model has a module heavy of its own")


def test_without_the_process_that_forks_workers_serve_and_are_started(serve) -> None:
    server = serve("heavy", workers=1)
    ((worker, said),) = facts(server).items()
    os.kill(said["imported_by"], signal.SIGKILL)
    until(lambda: not is_alive(said["imported_by"]), "it has ended")
    assert list(facts(server)) == [worker]
    os.kill(worker, signal.SIGKILL)
    until(lambda: set(server.ready("facts").values()) - {worker}, "another one serves")
    ((another, said),) = facts(server).items()
    assert said["imported_by"] == another
    server.manage("PUT", "/models/facts", min_worker=2, max_worker=2, synchronous="true")
    importers = {pid: said["imported_by"] for pid, said in facts(server).items()}
    assert importers.pop(another) == another
    ((forked, importer),) = importers.items()
    assert forked != importer, "a new process imports once and forks"


@pytest.mark.parametrize(("preload", "words"), [
    ("heavy,no_such_module", "no_such_module cannot be imported: ModuleNotFoundError"),
    ("threaded", "an import has started threads"),
])  # fmt: skip
def test_a_module_that_cannot_be_preloaded_is_named_and_the_model_serves(serve, preload: str, words: str) -> None:
    server = serve(preload)
    assert len(facts(server)) == 2
    server.logged(words)


def test_everything_ends_with_a_server_that_is_killed(serve) -> None:
    server = serve("heavy")
    found = facts(server)
    everybody = [*found, *{said["imported_by"] for said in found.values()}]
    server.kill()
    until(lambda: not any(map(is_alive, everybody)), "all are gone")
