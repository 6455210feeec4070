"""Runs TorchServe's own regression suites against the server: `JITNEY_BIN=... python
tests/examples/torchserve_suites.py CHECKOUT [pytest | newman]`, with NEWMAN the path of the program newman.

CHECKOUT is a clone of pytorch/serve with its submodules. A copy of it is used, with two things changed: its key of
1024 bits is one of 2048, and weights are made up where it would fetch them or lacks them, so that tests which compare
scores are left out. Its tests want fixed ports and addresses of the internet: they get a network of their own, in
which a server here answers for these addresses. The interpreter needs what `torchserve.py` needs, and grpcio-tools,
googleapis-common-protos, onnx, onnxscript, onnxruntime, orjson, pytest-timeout, lru-dict and a pytest before 9.
PIP_NO_INDEX and PIP_FIND_LINKS name a folder with the wheel of lru-dict, which the server installs for some models.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

from gallery import ROOT, RUNS, checkout, conclude, tell
from torchserve import read
from torchserve_examples import Example, pack, text_example
from torchserve_models import LARGE, Parts, fill, stand_in_backbones, transformer, weights

NETWORK = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]
HOSTS = ("download.pytorch.org", "torchserve.pytorch.org", "torchserve.s3.amazonaws.com")
COMMANDS = {
    "torchserve": "torchserve",
    "torch-model-archiver": "archive",
    "torch-workflow-archiver": "archive-workflow",
}
SAME = {
    "mnist_v2": "mnist",
    "mnist_scripted_v2": "mnist_scripted",
    "deeplabv3_resnet_101_scripted": "deeplabv3_resnet_101_eager_scripted",
}
TEXTS = {
    "BERTSeqClassification": "sequence_classification",
    "bert_seqc_without_torchscript": "sequence_classification",
    "bert_token_classification_no_torchscript": "token_classification",
    "distill_bert_qa_eager": "question_answering",
}
"""Archives that TorchServe fetches beside those of its list."""
ECHO = """
from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return None
    for _ in range(4):
        told = (context.request_ids, "Intermediate Prediction success", 200, context)
        send_intermediate_predict_response(["hello"] * len(data), *told)
    return ["world "] * len(data)
"""
"""The handler of the archive `echo_stream`, by what TorchServe's test wants of it."""
TEST_SECONDS = 300
SUITES = {
    "pytest": "from ts_scripts.regression_utils import test_regression; test_regression()",
    "newman": "from ts_scripts.api_utils import test_api; test_api('all')",
}
"""How TorchServe begins each of its suites."""
TITLES = {"pytest": "regression tests", "newman": "assertions of Postman collections"}
SCORES = re.compile(r"Test expected (JSON|TEXT) response")
"""Assertions that compare an answer with the scores of real weights."""
APART = {
    "test_example_dcgan.py": "installs packages as root, and fetches code and weights of another project",
    "test_example_torch_compile.py": "compares labels with those of real weights",
    "test_torch_export.py": "compares labels with those of real weights",
    "test_gRPC_inference_api.py::test_inference_apis": "compares scores with those of real weights",
    "test_model_custom_dependencies.py": "wants matplotlib from an index, and not there before; captum brings it along",
}
"""Tests that cannot be run with made-up weights and without an index of packages; they are left out."""
NEWMAN = """#!{python}
import os, sys, tempfile
arguments = sys.argv[1:]
at = arguments.index("-r")
del arguments[at : at + 4]
number, path = tempfile.mkstemp(suffix=".json", dir={folder!r})
os.execv({program!r}, [{program!r}, *arguments, "-r", "json", "--reporter-json-export", path])
"""
"""Newman, with a report that a program can read."""
LATER = "lines of metrics are written up to 0.1 s after the answer, unless `async_logging=false` is written out"
KNOWN = {
    **{
        f"management_api_collection: management request: Successful  request #{number}": (
            "a negative `min_worker` is 400 here and changes nothing; TorchServe answers 500 after it has ended all "
            "workers"
        )
        for number in (68, 150)
    },
    "test_handler_traceback_logging.py::test_handler_traceback_logging": (
        "it wants the traceback at every try to load; here it is logged when the error is a new one"
    ),
    "test_snapshot.py::test_replace_mar_file_with_dummy": (
        "an archive of a snapshot that is corrupt at the next start is left out with an error; TorchServe lists it"
    ),
    "test_metrics.py::test_metrics_log_mode": LATER,
    "test_metrics.py::test_auto_detect_backend_metrics_log_mode": LATER,
    "test_metrics.py::test_metrics_legacy_mode": LATER,
}
"""Tests that fail, and why."""


def main() -> int:
    """Runs both suites, or those that are named, in a network of their own."""
    source = checkout(sys.argv[1:], "test/pytest")
    if source is None:
        return 0
    if "JITNEY_SUITES" in os.environ:
        return run(source.parents[1], sys.argv[2:] or list(SUITES))
    if subprocess.run([*NETWORK, "true"], check=False).returncode:
        print("!!! NOT RUN: torchserve_suites.py needs a network of its own, which this system does not give it")
        return 0
    environment = {**os.environ, "JITNEY_SUITES": "1"}
    return subprocess.run([*NETWORK, sys.executable, *sys.argv], env=environment, check=False).returncode


def run(source: Path, wanted: list[str]) -> int:
    """Runs suites in this network, and writes the counts."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        copy = prepare(source, home)
        serve_mirror(home)
        failed = 0
        for suite in wanted:
            reports = home / f"{suite}-reports"
            reports.mkdir()
            environment = surroundings(home, reports)
            subprocess.run([sys.executable, "-c", SUITES[suite]], cwd=copy, env=environment, check=False)
            told = read_newman(reports) if suite == "newman" else read(reports / "pytest.xml")
            outcomes = with_earlier(suite, {name.replace(f"{copy}/", ""): why for name, why in told.items()})
            for name, why in outcomes.items():
                tell(name, why)
            text = f"It runs {{runs}} of {{all}} of TorchServe's {TITLES[suite]}."
            failed |= conclude("torchserve.md", f"count of TorchServe's {suite}", text, outcomes, KNOWN)
    return failed


def with_earlier(suite: str, told: dict[str, str]) -> dict[str, str]:
    """Adds what earlier runs told, where TORCHSERVE_OUTCOMES names a folder that keeps it: a suite takes an hour on a
    small machine, and PYTEST_ADDOPTS may choose which of its tests are run again."""
    folder = os.environ.get("TORCHSERVE_OUTCOMES")
    if not folder:
        return told
    path = Path(folder, f"{suite}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    every = {**(json.loads(path.read_text()) if path.exists() else {}), **told}
    path.write_text(json.dumps(every, indent=1))
    return every


def prepare(source: Path, home: Path) -> Path:
    """A copy of the checkout with another key, TorchServe's commands, and what it would fetch."""
    copy = shutil.copytree(source, home / "serve", symlinks=True)
    key(copy / "test" / "resources", "key.pem", "certs.pem", "localhost")
    key(home, "mirror.key", "mirror.pem", *HOSTS)
    (home / "commands").mkdir()
    binary = os.environ["JITNEY_BIN"]
    for name, command in COMMANDS.items():
        script(home / "commands" / name, f'#!/bin/sh\nexec {binary} {command} "$@"\n')
    stand_in_backbones(home / "torch")
    fill(copy, LARGE)
    pack_digits(copy)
    mirror = kept(home)
    if not mirror.exists():
        make_mirror(copy, mirror.with_suffix(".part")).rename(mirror)
    return copy


def pack_digits(copy: Path) -> None:
    """Makes the archive that a copy of the checkout without large files lacks."""
    digits = Example("image_classifier/mnist/mnist.py", handler="image_classifier/mnist/mnist_handler.py", extra="")
    archive = copy / "test" / "resources" / "models" / "mnist.mar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        pack(Path(os.environ["JITNEY_BIN"]), copy / "examples", digits, archive.parent)


def kept(home: Path) -> Path:
    """What stands in for the internet. TORCHSERVE_MIRROR names a folder that keeps it for the next run."""
    return Path(os.environ.get("TORCHSERVE_MIRROR") or home / "mirror")


def key(folder: Path, name: str, certificate: str, *hosts: str) -> None:
    """A key and a certificate that signs itself."""
    names = ",".join(f"DNS:{host}" for host in hosts)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={hosts[0]}"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName={names}"]
    command += ["-keyout", str(folder / name), "-out", str(folder / certificate)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def script(path: Path, text: str) -> None:
    """A program of a few lines."""
    path.write_text(text)
    path.chmod(0o755)


def make_mirror(copy: Path, mirror: Path) -> Path:
    """Weights and archives of every model that TorchServe's list has, as they are and in TorchScript, and of texts."""
    (mirror / "models").mkdir(parents=True)
    (mirror / "mar_files").mkdir()
    for model in json.loads((copy / "ts_scripts" / "mar_config.json").read_text()):
        source = own(model["model_file"])
        path = copy / model.get("serialized_file_local", "")
        if "serialized_file_remote" in model:
            path = mirror / "models" / model["serialized_file_remote"]
            weights(copy / model["model_file"], path.parent, False).rename(path)
        handler, extra = own(model["handler"]), own(model.get("extra_files", ""))
        plain = Example(source, handler=handler, extra=extra, parts=partial(ready_weights, path=path))
        make_archive(copy, mirror, model["model_name"], plain)
        make_archive(copy, mirror, f"{model['model_name']}_scripted", replace(plain, parts=None, scripted=True))
    for name, other in SAME.items():
        shutil.copy(mirror / "mar_files" / f"{other}.mar", mirror / "mar_files" / f"{name}.mar")
    for name, mode in TEXTS.items():
        plain = replace(text_example(mode, "", bool), parts=partial(transformer, mode=mode, explains=False))
        make_archive(copy, mirror, name, plain)
    (mirror / "echo_stream.py").write_text(ECHO)
    echo = Example("", handler=str(mirror / "echo_stream.py"), extra="", parts=lambda *_: Parts(None))
    make_archive(copy, mirror, "echo_stream", echo)
    return mirror


def own(paths: str) -> str:
    """Paths of the checkout as those of its folder `examples`."""
    return paths.replace("examples/", "")


def ready_weights(_examples: Path, _folder: Path, path: Path) -> Parts:
    """Weights that are there already."""
    return Parts(path)


def make_archive(copy: Path, mirror: Path, name: str, example: Example) -> None:
    """One archive, as TorchServe's addresses have it."""
    with tempfile.TemporaryDirectory(dir=mirror) as folder:
        archive = pack(Path(os.environ["JITNEY_BIN"]), copy / "examples", example, Path(folder), name)
        archive.rename(mirror / "mar_files" / archive.name)


def serve_mirror(home: Path) -> None:
    """Answers for the addresses of the internet, on this network alone."""
    hosts = home / "hosts"
    hosts.write_text("127.0.0.1 localhost " + " ".join(HOSTS) + "\n")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=kept(home))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "mirror.pem", home / "mirror.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def surroundings(home: Path, reports: Path) -> dict[str, str]:
    """The environment in which TorchServe's suites find our commands, and nothing of the internet."""
    program = shutil.which(os.environ.get("NEWMAN", "newman")) or "newman"
    script(home / "commands" / "newman", NEWMAN.format(python=sys.executable, folder=str(reports), program=program))
    temporary = home / "tmp"
    (temporary / "workspace" / "model_store").mkdir(parents=True, exist_ok=True)
    trusted, wget = str(home / "mirror.pem"), home / "wgetrc"
    wget.write_text(f"ca_certificate = {trusted}\n")
    options = f"--continue-on-collection-errors --timeout={TEST_SECONDS} --junitxml={reports / 'pytest.xml'} "
    options += " ".join(f"--deselect=test/pytest/{name}" for name in APART)
    return {
        **os.environ,
        "PATH": f"{home / 'commands'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "PYTEST_ADDOPTS": f"{options} {os.environ.get('PYTEST_ADDOPTS', '')}",
        "TMPDIR": str(temporary),
        "SSL_CERT_FILE": trusted,
        "WGETRC": str(wget),
        "REQUESTS_CA_BUNDLE": trusted,
        "HF_HUB_OFFLINE": "1",
    }


def read_newman(reports: Path) -> dict[str, str]:
    """What went wrong in each assertion that needs no real weights."""
    outcomes: dict[str, str] = {}
    for report in sorted(reports.glob("*.json"), key=lambda path: path.stat().st_mtime):
        text = report.read_text()
        if not text:
            outcomes[f"the collection that {report.name} should be of"] = "it did not come to its end"
            continue
        told = json.loads(text)
        for asked in told["run"]["executions"]:
            for check in asked.get("assertions", ()):
                if SCORES.search(check["assertion"]):
                    continue
                name = f"{told['collection']['info']['name']}: {asked['item']['name']}: {check['assertion']}"
                number = sum(one.rpartition(" #")[0] == name for one in outcomes)
                outcomes[f"{name} #{number}"] = check.get("error", {}).get("message", RUNS)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
