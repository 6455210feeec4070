"""Runs the programs of Ray Serve's documentation with Jitney: `python tests/examples/ray.py CHECKOUT [NAME ...]`.

CHECKOUT is a clone of ray-project/ray. Of a program nothing but import lines is changed. It runs if it exits with 0 and
logs no error. Programs that need other software or hardware are left out, by name; some packages have stand-ins.
The server listens on port 8000, as the programs want it, so nothing else may.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gallery import ROOT, RUNS, STAND_INS, checkout, conclude, tell

FOLDER = "doc/source/serve/doc_code"
SECONDS = 240
NEEDS = re.compile(
    r"^\s*(?:from|import) (torchvision|tensorflow|vllm|gradio|diffusers|deepspeed|optimum|habana_frameworks|mlflow"
    r"|faster_whisper|my_module|google|grpc|torch)\b",
    re.MULTILINE,
)
"""Packages whose programs are left out: they need their weights, their hardware, or a cluster."""
WITH_STAND_IN = ("multiplexed.py",)
"""Programs that import torch for a line that is not examined."""
KNOWN = {
    "async_inference_autoscaling.py": "tasks of Celery: `serve.task_consumer` is not here",
    "capacity_queue_request_router_app.py": "an experimental router, with an actor; here all replicas share one queue",
    "deployment_scoped_actors.py": "Ray actors: make it a deployment, and pass its handle by `.bind`",
    "http_guide/disconnects.py": "its checks use a Ray actor",
    "http_guide/websockets_example.py": "[WebSockets](../adr/0035-websockets-are-refused.md)",
    "image_classifier_example.py": "it downloads a picture, and sends it by handle as an object of Pillow's",
    "load_shedding.py": "Ray actors, and a status of one's own for a full queue: it is 503 with `Retry-After` here",
    "streaming_tutorial.py": "its second part is a [WebSocket](../adr/0035-websockets-are-refused.md)",
    "varying_deps.py": "`runtime_env.pip`: install packages where the workers' Python finds them",
}
"""Programs that do not run, and why."""
CATCHES = ("asyncio_best_practices.py", "logging_config.py")
"""Programs that log failures with Ray, too: one asks a server of the internet, one imports a module too late."""
IMPORTS = (
    (re.compile(r"^(\s*)import ray\b", re.MULTILINE), r"\1from jitney.compat import ray"),
    (re.compile(r"^(\s*)from ray import\b", re.MULTILINE), r"\1from jitney.compat import"),
    (re.compile(r"^(\s*)from ray\.serve\b", re.MULTILINE), r"\1from jitney.compat.serve"),
    (re.compile(r"^(\s*)from ray\.", re.MULTILINE), r"\1from jitney.compat.ray."),
)
TROUBLE = re.compile(r"Traceback \(most recent call last\)|^.*\bERROR\b.*$", re.MULTILINE)


def main() -> int:
    """Runs all, or those that are named."""
    source = checkout(sys.argv[1:], FOLDER)
    if source is None:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "doc_code")
        shutil.copytree(source, code)
        names = [str(one.relative_to(code)) for one in sorted(code.rglob("*.py")) if is_one(one)]
        for one in code.rglob("*.py"):
            one.write_text(changed(one.read_text(encoding="utf-8")), encoding="utf-8")
        wanted = sys.argv[2:]
        outcomes = {}
        for name in names:
            if not wanted or name in wanted:
                outcomes[name] = run(code / name)
                tell(name, outcomes[name])
    if wanted:
        return 0
    text = (
        "`make test-examples` runs {runs} of {all} programs of its documentation with only their import lines changed."
    )
    return conclude("ray-serve.md", "count of tests/examples/ray.py", text, outcomes, KNOWN)


def is_one(path: Path) -> bool:
    """Whether a file is a program with Ray Serve in it that can be run here."""
    text = path.read_text(encoding="utf-8")
    return "from ray" in text and (path.name in WITH_STAND_IN or NEEDS.search(text) is None)


def changed(text: str) -> str:
    """A program with other import lines."""
    for pattern, new in IMPORTS:
        text = pattern.sub(new, text)
    return text


def run(path: Path) -> str:
    """What went wrong, in one line."""
    paths = [str(ROOT / "python"), str(STAND_INS), str(path.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(
            [sys.executable, path.name], cwd=path.parent, env=environment, timeout=SECONDS, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it did not end within {SECONDS} s"
    if os.environ.get("EXAMPLES_LOG"):
        Path(os.environ["EXAMPLES_LOG"], path.name + ".log").write_text(done.stdout, encoding="utf-8")
    lines = [one for one in done.stdout.splitlines() if one.strip()]
    trouble = None if path.name in CATCHES else TROUBLE.search(done.stdout)
    if done.returncode == 0 and trouble is None:
        return RUNS
    errors = [one for one in lines if re.match(r"[\w.]*(Error|Exception|NotThere|NotSupported)\b", one)]
    return (errors or [trouble.group(0)] if trouble else errors or lines or [f"exit status {done.returncode}"])[-1][
        :300
    ]


if __name__ == "__main__":
    sys.exit(main())
