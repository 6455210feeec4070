"""Loads the code of BentoML's documentation with BentoML and with Jitney, and calls twelve of its services:
`python tests/examples/bentoml.py CHECKOUT`.

CHECKOUT is a clone of bentoml/BentoML. A block of code counts if it can be imported with BentoML itself, in the Python
that runs this; many are fragments. Nothing but import lines is changed. With Jitney it has to give services that can be
served, not only to be imported. The services are called by BentoML's own client.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from gallery import ROOT, RUNS, STAND_INS, checkout, conclude, tell

FOLDER = "docs/source"
SECONDS, START_SECONDS = 15, 120
BLOCK = re.compile(r"^( *)\.\. code-block:: python\n((?:\1 +.*\n|\s*\n)+)", re.MULTILINE)
OPTIONS = re.compile(r"\A(?:\s*:[\w-]+:.*\n|\s*\n)+")
NEEDS_SERVER = re.compile(r"HTTPClient\(|bentoml\.(deployment|api_token|sandbox|BentoCloudClient)")
"""Code that calls a server or BentoML's cloud while it is imported."""
FUTURE = re.compile(r"\A((?:from __future__.*\n)?)")
"""Where a fragment gets the import line that its page left out."""
IMPORTS = (
    (re.compile(r"^(\s*)import bentoml\b", re.MULTILINE), r"\1from jitney.compat import bentoml"),
    (re.compile(r"^(\s*)from bentoml\b", re.MULTILINE), r"\1from jitney.compat.bentoml"),
)
LOADED = (
    "bentoml", "_bentoml_sdk", "_bentoml_sdk.images", "_bentoml_sdk.models", "_bentoml_impl.client", "bentoml.models",
    "bentoml.validators", "bentoml.exceptions", "numpy", "pandas", "PIL.Image", "fastapi", "jitney.compat.bentoml",
    "jitney.packing.pack",
)  # fmt: skip
KNOWN = {
    "model-loading-and-management 12": "it removes a model that another page has saved; the store here is another one",
}
"""Blocks that are not loaded, and why."""


CLIENT = """
import sys, urllib.request, json, bentoml, pathlib
url, metrics = sys.argv[1:]
file = pathlib.Path("words.txt").resolve()

def get(address, data=None, **headers):
    body = None if data is None else json.dumps(data).encode()
    asked = urllib.request.Request(address, body, {"content-type": "application/json", **headers})
    try:
        return urllib.request.urlopen(asked).read().decode()
    except urllib.error.HTTPError as error:
        return error.code

"""
"""What every client begins with."""
SUMMARY = 'assert client.summarize(text="a").endswith("a summary")'
SERVICES = {
    ("hello-world", "class Summarization", "Summarization"): SUMMARY,
    ("adaptive-batching", "batchable=True", "Summarization"): 'assert client.summarize(texts=["a"]) == ["a summary"]',
    ("adaptive-batching", "BatchInput", "MyService"): (
        'assert client.generate(image=file, threshold=0.5).read_text() == "words"'
    ),
    ("asgi", 'path="/v1"', "MyService"): (
        "assert [get(f'{url}/v1/{one}') for one in ('hello', 'hello1')] == ['\"Hello MyService\"'] * 2"
    ),
    ("asgi", "add_asgi_middleware", "Summarization"): (
        "assert get(url + '/summarize', {'text': 'a'}, Host='example.com') == 'a summary'\n"
        "assert get(url + '/summarize', {'text': 'a'}) == 400"
    ),
    ("error-handling", "class MyCustomException", "MyService"): (
        "for one, code in (('test1', 405), ('test2', 400)):\n assert get(f'{url}/{one}', {'text': 'a'}) == code"
    ),
    ("iotypes", "class AppendStringToFile", "AppendStringToFile"): (
        'assert client.append_string_to_eof(txt_file=file, input_string=" and more").read_text() == "words and more"'
    ),
    ("iotypes", "class ImageResize", "ImageResize"): (
        "from PIL import Image\nImage.new('RGB', (9, 9)).save('image.png')\n"
        "said = client.generate(image=pathlib.Path('image.png'), height=5, width=4)\n"
        "assert (said if hasattr(said, 'size') else Image.open(said)).size == (5, 4)"
    ),
    ("metrics", "inference_time_histogram", "Summarization"): (
        f"{SUMMARY}\nimport time\nend = time.monotonic() + 30\n"
        "while 'summary_requests_total{' not in get(metrics + '/metrics'):\n assert time.monotonic() < end"
    ),
    ("model-composition", "class MultiModelService", "MultiModelService"): (
        'assert client.combined_process(input_data="a")["sentiment"]["label"] == "POSITIVE"'
    ),
    ("model-composition", "class InferenceService", "InferenceService"): (
        'assert client.predict(input_data="a").keys() == {"preprocessing_result", "final_result"}'
    ),
    ("model-composition", "class EnsembleService", "EnsembleService"): (
        'assert client.ensemble_predict(input_data="a")["sentiment_analysis"]["label"] == "POSITIVE"'
    ),
}
"""Services of the pages: the page, what the block has in it, the class; and what its client does."""


def blocks(source: Path) -> Iterator[tuple[str, str]]:
    """The blocks of Python code on all pages that use BentoML, by page and number."""
    for page in sorted(source.rglob("*.rst")):
        found = BLOCK.findall(page.read_text(encoding="utf-8") + "\n")
        for number, (_, text) in enumerate(found, 1):
            code = textwrap.dedent(OPTIONS.sub("", text))
            if "bentoml" in code and not NEEDS_SERVER.search(code):
                has_import = re.search(r"^import bentoml\b", code, re.MULTILINE)
                yield f"{page.stem} {number}", code if has_import else FUTURE.sub(r"\1import bentoml\n", code, count=1)


def imported(path: Path, services: bool) -> str:
    """Imports a file in a process of its own; what goes wrong in one line. All processes share what is imported."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        os.chdir(path.parent)
        error = ""
        try:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            if services:
                serve_all(module)
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}".splitlines()[0]
        os.write(writing, error.encode()[:1000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        error = said.read()
    _, status = os.waitpid(child, 0)
    return error or ("" if status == 0 else f"it ended with {status}")


def serve_all(module: object) -> None:
    """Reads the services of a module as `jitney serve` does."""
    from jitney.compat.bentoml.service import ClassService
    from jitney.definition.application import graph

    for value in list(vars(module).values()):
        if isinstance(value, ClassService):
            graph(value)


def changed(text: str) -> str:
    """Code with other import lines."""
    for pattern, new in IMPORTS:
        text = pattern.sub(new, text)
    return text


def load_all(source: Path, folder: Path) -> dict[str, str]:
    """What became of every block that BentoML itself imports."""
    sys.path[:0] = [str(STAND_INS), str(ROOT / "python")]
    os.environ.update(
        BENTOML_DO_NOT_TRACK="True", BENTOML_HOME=str(folder / "b"), JITNEY_BENTOML_HOME=str(folder / "j")
    )
    for name in LOADED:  # Once, and not in the process of every block.
        importlib.import_module(name)
    outcomes = {}
    for name, code in blocks(source):
        path = folder / f"{name.replace(' ', '_').replace('-', '_')}.py"
        path.write_text(code, encoding="utf-8")
        if imported(path, services=False):
            continue
        path.write_text(changed(code), encoding="utf-8")
        outcomes[name] = imported(path, services=True)
        tell(name, outcomes[name])
    return outcomes


@contextlib.contextmanager
def served(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """Serves a service; gives its address and that of its metrics."""
    program = os.environ.get("JITNEY_BIN") or "jitney"
    ports = [str(free_port()) for _ in range(2)]
    command = [program, "serve", f"{path.name}:{name}", "--python", sys.executable, "--port", ports[0]]
    command += ["--metrics-port", ports[1], "--management-port", "0", "--grpc-port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(STAND_INS)}
    with (path.parent / "log").open("w+b") as log:
        server = subprocess.Popen(command, cwd=path.parent, env=environment, stdout=log, stderr=log)
        try:
            url, metrics = (f"http://127.0.0.1:{port}" for port in ports)
            until(lambda: server.poll() is not None or is_ready(url))
            if server.poll() is not None:
                raise RuntimeError((path.parent / "log").read_text(encoding="utf-8").splitlines()[-1])
            yield url, metrics
        finally:
            server.terminate()
            server.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def is_ready(url: str) -> bool:
    """Whether a server answers that it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/readyz") as answer:
            return answer.status == 200
    except OSError:
        return False


def until(holds: Callable[[], bool]) -> None:
    """Waits until it holds."""
    end, pause = time.monotonic() + START_SECONDS, threading.Event()
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {START_SECONDS} s")
        pause.wait(0.2)


def call_all(source: Path, folder: Path) -> dict[str, str]:
    """What became of the services: served, and called by BentoML's own client."""
    found = list(blocks(source))
    outcomes = {}
    for (page, has, name), calls in SERVICES.items():
        code = next(code for block, code in found if block.startswith(f"{page} ") and has in code)
        path = folder / f"{page.replace('-', '_')}_{name}" / "service.py"
        path.parent.mkdir()
        for model in re.findall(r"HuggingFaceModel\(\"([^\"]+)", code):
            (path.parent / model).mkdir(parents=True)
        path.write_text(changed(code), encoding="utf-8")
        outcomes[f"{page}: {name}"] = called(path, name, calls)
        tell(f"{page}: {name}", outcomes[f"{page}: {name}"])
    return outcomes


def called(path: Path, name: str, calls: str) -> str:
    """Serves and calls one service; what went wrong in one line."""
    (path.parent / "words.txt").write_text("words", encoding="utf-8")
    connect = "client = bentoml.SyncHTTPClient(url)\n" if "client." in calls else ""
    try:
        with served(path, name) as urls:
            command = [sys.executable, "-P", "-c", CLIENT + connect + calls, *urls]
            done = subprocess.run(
                command, cwd=path.parent, timeout=SECONDS * 4, capture_output=True, text=True, check=False
            )
    except (RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
        return str(error)
    return RUNS if done.returncode == 0 else ([*done.stderr.splitlines(), "it said nothing"])[-2 if done.stderr else 0]


def main() -> int:
    """Runs all of it."""
    source = checkout(sys.argv[1:], FOLDER)
    if source is None:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        services = call_all(source, Path(folder))
        outcomes = load_all(source, Path(folder))
    named = sum(1 for _ in blocks(source))
    runs = [name for name, outcome in services.items() if outcome == RUNS]
    text = (
        "`make test-examples` loads {runs} of {all} blocks of its documentation with only their import lines changed "
        f"({named} blocks name BentoML; the others cannot be imported with BentoML {version('bentoml')} itself), and "
        f"its own client gets the right answers from {len(runs)} of {len(services)} of its services."
    )
    failed = conclude("bentoml.md", "count of tests/examples/bentoml.py", text, outcomes, KNOWN)
    print(f"services: {len(runs)} of {len(services)}")
    return failed or int(len(runs) < len(services))


if __name__ == "__main__":
    sys.exit(main())
