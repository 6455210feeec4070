"""Applications of Ray Serve run with their import lines changed and nothing else, and answer as they do with Ray."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "tests" / "compat" / "serve"
APPLICATIONS = (
    "batched_text",
    "composed",
    "multiplexed",
    "fastapi_shop",
    "streaming",
    "sized_batches",
    "configured",
    "asked",
    "scaled",
)
IMPORTS = {
    r"^import ray$": "from jitney.compat import ray",
    r"^from ray import serve$": "from jitney.compat import serve",
    r"^from ray\.serve\.": "from jitney.compat.serve.",
}
SECONDS = 300
OLD_RAY = os.environ.get("JITNEY_TEST_OLD_RAY", "")
"""A Python with Ray 0.8, whose tutorial it is."""
TUTORIAL = {
    "web": [1, 2, 3, 4, 5, 6, 7, 8, 9],
    "python": [1, 2, 3, 4, 5, 6, 7, 8, 9],
    "both": "42",
    "single": ["42", 8],
    "not allowed": 405,
}
"""What it prints with Ray 0.8.7."""

SCALED = """
import json
from jitney.compat import serve
from jitney.compat.serve import running

@serve.deployment(autoscaling_config={"min_replicas": 1, "max_replicas": 3})
class Scaled:
    def __call__(self, request):
        return "here"

serve.start(http_options={"port": 0})
serve.run(Scaled.bind())
print(json.dumps(running._server._client.describe("Scaled")[0]))
"""

needs_ray = pytest.mark.skipif(find_spec("ray") is None or find_spec("fastapi") is None, reason="needs ray[serve]")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same files with our imports."""
    directory = tmp_path_factory.mktemp("serve")
    for file in WRITTEN.glob("*.py"):
        text = file.read_text()
        for line, ours in IMPORTS.items():
            text = re.sub(line, ours, text, flags=re.MULTILINE)
        assert not re.search(r"^(from|import) ray\b", text, re.MULTILINE)
        (directory / file.name).write_text(text)
    return directory


def run(directory: Path, *command: str, **variables: str) -> Any:
    """The last line that a program prints, which is JSON, and all of its output."""
    done = subprocess.run(
        [*command],
        cwd=directory,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert answers, done.stdout[-6000:]
    return json.loads(answers[-1]), done.stdout


def run_ours(directory: Path, binary: Path, *command: str, **variables: str) -> Any:
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    return run(directory, sys.executable, *command, JITNEY_BIN=str(binary), PYTHONPATH=path, **variables)


@pytest.fixture(scope="module")
def originals() -> Any:
    """What the applications answer with Ray."""
    return run(WRITTEN, sys.executable, "run_all.py", str(free_port()), *APPLICATIONS)[0]


@pytest.fixture(scope="module")
def ours(moved: Path, binary: Path) -> Any:
    """What they answer here, all of them on one port."""
    return run_ours(moved, binary, "run_all.py", str(free_port()), *APPLICATIONS)[0]


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="needs cloudpickle")
def test_deployments_learn_what_they_ask_for(moved: Path, binary: Path) -> None:
    said, log = run_ours(moved, binary, "run_all.py", str(free_port()), "asked")
    assert said["asked"] == {
        "mark": "red",
        "query": {"what": "query"},
        "uuid": "00000000-0000-0000-0000-000000000007",
        "path": "/a/b",
        "decimal": [2, 2.5],
        "time": [90.0, "2026-01-02"],
        "same loop": True,
        "by name": "hello",
        "root": "hello from the root",
        "reference": "HELLO",
        "running": ["asked"],
        "object": ["Graph", 9, ["a"]],
        "ranked": ["ranks", True, True, 2],
    }
    assert "logging_config has no effect" in log


@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="needs cloudpickle")
def test_the_number_of_replicas_follows_the_load_under_serve_run_too(tmp_path: Path, binary: Path) -> None:
    said, _ = run_ours(tmp_path, binary, "-c", SCALED)
    assert (said["minWorkers"], said["maxWorkers"]) == (1, 3)


@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="needs cloudpickle")
def test_what_an_autoscaling_configuration_cannot_do_here_is_said(moved: Path, binary: Path) -> None:
    said, log = run_ours(moved, binary, "run_all.py", str(free_port()), "scaled")
    assert said["scaled"] == {"web": "TEA", "handle": [0, 2, 4], "refused": [True, True, True, False]}
    for field in ("initial_replicas", "target_ongoing_requests", "upscale_delay_s", "policy"):
        assert f"Scaled: autoscaling_config: {field} has no effect in Jitney" in log
    assert "min_replicas has no effect" not in log and "max_replicas has no effect" not in log


@needs_ray
@pytest.mark.heavy
@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_answers_as_it_does_with_ray(name: str, ours: Any, originals: Any) -> None:
    assert ours[name] == originals[name]


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="needs cloudpickle")
def test_the_tutorial_of_the_older_api_runs_as_it_is(moved: Path, binary: Path) -> None:
    ours, output = run_ours(moved, binary, "tutorial_batch.py", PORT=str(free_port()))
    assert ours == TUTORIAL
    shapes = [int(one) for one in re.findall(r"shape: \((\d+),\)", output)]
    assert max(shapes) <= 4 and sum(shapes) == 19 and len(shapes) < 19, shapes


SHARED = """
import collections, json, os, requests
from jitney.compat import ray, serve

PORT = int(os.environ["PORT"])
serve.start(http_options={"port": PORT})
serve.create_backend("a", lambda request: "a")
serve.create_backend("b", lambda request: "b")
serve.create_endpoint("letters", backend="a", route="/letters")
handle = serve.get_handle("letters")


def counted(web=40, calls=40):
    answers = [requests.get(f"http://127.0.0.1:{PORT}/letters").text for _ in range(web)]
    asked = [handle.remote() for _ in range(calls)]
    return [dict(collections.Counter(answers)), dict(collections.Counter(ray.get(one) for one in asked))]


said = {"first": counted()}
serve.set_traffic("letters", {"a": 0.5, "b": 0.5})
said["both"] = [sorted(one) for one in counted(200, 200)]
serve.set_traffic("letters", {"b": 1.0})
said["last"] = counted()
said["listed"] = serve.list_endpoints()["letters"]["traffic"]
serve.delete_endpoint("letters")
said["gone"] = requests.get(f"http://127.0.0.1:{PORT}/letters").status_code
print(json.dumps(said))
"""


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="needs cloudpickle")
def test_backends_of_the_older_api_share_an_endpoint(tmp_path: Path, binary: Path) -> None:
    said, _ = run_ours(tmp_path, binary, "-c", SHARED, PORT=str(free_port()))
    assert said == {
        "first": [{"a": 40}, {"a": 40}],
        "both": [["a", "b"], ["a", "b"]],
        "last": [{"b": 40}, {"b": 40}],
        "listed": {"b": 1.0},
        "gone": 404,
    }


@pytest.mark.heavy
@pytest.mark.skipif(not OLD_RAY or shutil.which(OLD_RAY) is None, reason="needs Ray 0.8 in JITNEY_TEST_OLD_RAY")
def test_the_tutorial_prints_the_same_with_the_ray_that_it_was_written_for() -> None:
    theirs, _ = run(WRITTEN, OLD_RAY, "tutorial_batch.py", PORT=str(free_port()))
    assert theirs == TUTORIAL
