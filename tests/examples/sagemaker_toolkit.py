"""AWS's toolkit for PyTorch, unchanged from PyPI, with this program's `torchserve` on PATH in the place of TorchServe.

    JITNEY_BIN=… python tests/examples/sagemaker_toolkit.py FOLDER

FOLDER keeps the packages of the toolkit, which are fetched into it once. The Python needs torch, numpy and requests.
The toolkit writes to /etc, asks port 8080 and searches all processes for TorchServe's, so all runs in namespaces of its
own, as root. Packages of this project's wheel have the names of the toolkit's: three ways to lay them out are run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from gallery import ROOT, RUNS, conclude, leave_path, tell

sys.path.insert(0, str(ROOT / "tests"))
from harness.wait import until

PACKAGES = (
    "sagemaker-inference==1.10.1",
    "sagemaker-pytorch-inference==2.0.25",
    "retrying",
    "six",
    "setuptools<80",
)
"""Without what they name beside these: torch is in the Python that runs this."""
WITH_MORE = ("psutil", "boto3")
NAMES = ("jitney", "sagemaker_inference", "sagemaker_pytorch_serving_container")
START = "from sagemaker_pytorch_serving_container import serving; serving.main()"
FUNCTIONS = """
import json
def model_fn(model_dir):
    return 10
def input_fn(body, content_type):
    return json.loads(body)
def predict_fn(data, model):
    return [x + model for x in data]
def output_fn(prediction, accept):
    return json.dumps(prediction)
"""
ALONE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
PREPARE = 'ip link set lo up && mount --bind "$ETC" /etc && "$@"; exit $?'
"""The shell stays, as the first process, which takes leave of processes that nobody waits for."""
LAYOUTS = ("the toolkit alone", "this project's wheel installed after it", "this project's wheel installed before it")
TEXT = (
    "AWS's toolkit, unchanged from PyPI (sagemaker-pytorch-inference 2.0.25, sagemaker-inference 1.10.1), over this "
    "program's `torchserve`: {runs} of {all} steps (start and `/ping`, `/invocations`, SIGTERM; with the toolkit alone "
    "in its environment, and with this project's wheel installed after and before it) work "
    "(tests/examples/sagemaker_toolkit.py)."
)
SECONDS = 300
START_SECONDS = 180


def fetch(folder: Path) -> Path:
    """The toolkit, fetched once for each Python."""
    packages = folder.resolve() / f"sagemaker-{sys.version_info.major}.{sys.version_info.minor}"
    note = packages / "fetched.json"
    wanted = [*PACKAGES, *WITH_MORE]
    if not (note.exists() and json.loads(note.read_text()) == wanted):
        shutil.rmtree(packages, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages)]
        subprocess.run([*pip, *WITH_MORE], check=True)
        subprocess.run([*pip, "--upgrade", "--no-deps", *PACKAGES], check=True)
        note.write_text(json.dumps(wanted))
    return packages


def lay_out(layout: str, toolkit: Path, home: Path) -> Path:
    """A folder of packages in which the two were installed in this order."""
    packages = home / "packages"
    ours = [ROOT / "python" / name for name in NAMES]
    if layout == LAYOUTS[2]:
        for one in ours:
            shutil.copytree(one, packages / one.name)
    shutil.copytree(toolkit, packages, dirs_exist_ok=True)
    if layout == LAYOUTS[1]:
        for one in ours:
            shutil.copytree(one, packages / one.name, dirs_exist_ok=True)
    return packages


def run(layout: str, toolkit: Path) -> dict[str, str]:
    """The steps with one layout, each with what went wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        packages = lay_out(layout, toolkit, home)
        code = home / "ml" / "model" / "code"
        code.mkdir(parents=True)
        (code / "inference.py").write_text(FUNCTIONS)
        command = home / "bin" / "torchserve"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{Path(os.environ["JITNEY_BIN"]).resolve()}" torchserve "$@"\n')
        command.chmod(0o755)
        shutil.copytree("/etc", home / "etc", symlinks=True)
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "TS_", "JITNEY_"))
        }
        env |= {"PYTHONPATH": str(packages), "SAGEMAKER_BASE_DIR": str(home / "ml"), "ETC": str(home / "etc")}
        env |= {"SAGEMAKER_MODEL_SERVER_WORKERS": "1", "JITNEY_PYTHON": sys.executable, "TMPDIR": str(home)}
        env |= {"PATH": f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
        inside = [*ALONE, "sh", "-c", PREPARE, "sh", sys.executable, str(Path(__file__).resolve()), "--inside"]
        done = subprocess.run(inside, cwd=home, env=env, capture_output=True, text=True, timeout=SECONDS)
        print(done.stderr[-6000:])
        try:
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except (IndexError, ValueError):
            return {"start": f"it ended with {done.returncode}"}


def inside() -> None:
    """The steps themselves, one after the other; what went wrong is printed as JSON."""
    import requests

    toolkit = subprocess.Popen([sys.executable, "-c", START], stdout=sys.stderr)
    found: dict[str, str] = {}
    try:
        found["start and `/ping`"] = healthy(toolkit)
        reply = requests.post("http://127.0.0.1:8080/invocations", json=[1, 2], timeout=60)
        right = (reply.status_code, reply.json()) == (200, [11, 12])
        found["`/invocations`"] = RUNS if right else f"{reply.status_code} {reply.text}"
        servers = named()
        toolkit.send_signal(signal.SIGTERM)
        code = toolkit.wait(60)
        left = [pid for pid in servers if pid in named()]
        found["SIGTERM"] = RUNS if len(servers) == 1 and not left else f"exit {code}, servers {servers}, left {left}"
    except Exception as error:
        found["error"] = repr(error)
    print(json.dumps(found))


def healthy(toolkit: subprocess.Popen[bytes]) -> str:
    """Waits for /ping to say so."""
    import requests

    def pinged() -> bool:
        try:
            return requests.get("http://127.0.0.1:8080/ping", timeout=10).status_code == 200
        except requests.ConnectionError:
            return False

    until(lambda: toolkit.poll() is not None or pinged(), "the toolkit is healthy or has ended", START_SECONDS)
    return RUNS if toolkit.poll() is None else f"the toolkit ended with {toolkit.returncode}"


def named() -> list[int]:
    """The processes that the toolkit takes for TorchServe."""
    word = b"org.pytorch.serve.ModelServer"
    lines = {path.parent.name: path.read_bytes().split(b"\0") for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [int(pid) for pid, words in lines.items() if word in words]


def main() -> int:
    """Runs the toolkit with every layout."""
    if sys.argv[1:] == ["--inside"]:
        inside()
        return 0
    leave_path()
    if not sys.argv[1:2] or not sys.argv[1]:
        print(f"!!! NOT RUN: {Path(sys.argv[0]).name} needs a folder for AWS's packages")
        return 0
    toolkit = fetch(Path(sys.argv[1]))
    outcomes = {}
    for layout in LAYOUTS:
        for step, outcome in run(layout, toolkit).items():
            outcomes[f"{layout}: {step}"] = outcome
            tell(f"{layout}: {step}", outcome)
    return conclude("sagemaker.md", "the toolkit over torchserve", TEXT, outcomes, {})


if __name__ == "__main__":
    sys.exit(main())
