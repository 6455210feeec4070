"""The command line as users type it: help, mistakes, configuration files, TorchServe's own flags."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.processes import MARK, marked
from harness.server import FREE_ADDRESSES, FREE_PORTS
from harness.wait import until

ROOT = Path(__file__).parent.parent


@pytest.fixture
def run(binary: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command that ends by itself."""

    def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), **env}
        command = [str(binary), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["serve", "demo", "torchserve", "Examples:"]),
        (
            ["serve", "--help"],
            ["--batch-size", "--max-latency-ms", "--drain-timeout", "--config", "jitney serve resnet.mar"],
        ),
        (["demo", "--help"], ["--port", "curl -T"]),
        (
            ["torchserve", "--help"],
            ["--model-store", "--ts-config", "--foreground", "--disable-token-auth", "--enable-model-api"],
        ),
    ],
)
def test_help_goes_to_stdout_and_names_what_matters(run, arguments: list[str], words: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for word in words:
        assert word in done.stdout


def test_versions_are_told(run) -> None:
    assert re.fullmatch(r"jitney \d+\.\d+\.\d+\n", run("--version").stdout)
    assert run("torchserve", "--version").stdout == "TorchServe Version is 0.12.0\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["serve", "--batchsize", "4", "x.mar"], 64, ["--batchsize", "--batch-size"]),
        (["serve", "--worker", "4", "x.mar"], 64, ["--worker", "--workers"]),
        (["serve", "no/such.mar"], 64, ["no such file: no/such.mar", "hint:"]),
        (["serve"], 64, ["no model to serve", "jitney demo"]),
        (["serve", "--policy", "sometimes", "x.mar"], 64, ["adaptive, window, opportunistic"]),
        (["serve", "--port", "many", "x.mar"], 64, ["many"]),
        (["sevre"], 64, ["sevre", "serve"]),
        (["torchserve", "--model-stroe", "x"], 2, ["--model-stroe", "--model-store"]),
        (["torchserve", "--start", "--stop"], 2, ["--start", "--stop"]),
        (["torchserve", "--start"], 1, ["Missing mandatory parameter --model-store"]),
        (["torchserve", "--start", "--model-store", "nowhere"], 1, ["--model-store directory not found: nowhere"]),
        (["torchserve", "--start", "--ts-config", "nowhere"], 1, ["--ts-config file not found: nowhere"]),
    ],
)
def test_mistakes_are_rejected_with_a_hint(run, arguments: list[str], code: int, words: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == code, done
    for word in words:
        assert word in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot: 8080\n", ["line 1", "unknown key `prot`", "did you mean `port`?"]),
        ("port: 0\nbatching:\n  max_batchsize: 4\n", ["line 3", "did you mean `max_batch_size`?"]),
        ("models:\n  - path: a.mar\n    worker: 4\n", ["line 3", "did you mean `workers`?"]),
        ("port: [\n", ["jitney.yaml"]),
    ],
)
def test_unknown_keys_of_the_yaml_are_rejected_with_line_and_hint(
    run, tmp_path: Path, text: str, words: list[str]
) -> None:
    (tmp_path / "jitney.yaml").write_text(text)
    done = run("serve", "--config", "jitney.yaml")
    assert done.returncode == 64
    for word in words:
        assert word in done.stderr


def test_unknown_keys_of_config_properties_are_a_warning_with_line_and_hint(run, tmp_path: Path) -> None:
    """TorchServe starts with them, and so does Jitney."""
    (tmp_path / "config.properties").write_text("# a comment\njobqueue_size=4\n")
    done = run("config", "torchserve")
    assert done.returncode == 0
    assert "config.properties line 2: unknown key `jobqueue_size` has no effect" in done.stderr
    assert "did you mean `job_queue_size`?" in done.stderr


def test_wrong_values_name_file_line_and_what_is_expected(run, tmp_path: Path) -> None:
    (tmp_path / "config.properties").write_text("# a comment\njob_queue_size=ten\n")
    done = run("torchserve", "--start", "--foreground", "--model-store", tmp_path)
    assert done.returncode == 1
    assert 'config.properties line 2: job_queue_size must be a whole number, not "ten"' in done.stdout
    (tmp_path / "jitney.yaml").write_text("port: 99999\n")
    done = run("serve", "--config", "jitney.yaml")
    assert done.returncode == 64
    assert "jitney.yaml line 1: port must be a whole number from 0 to 65535, not 99999" in done.stderr


def test_a_mistyped_variable_is_a_warning_with_the_nearest_name(run) -> None:
    done = run("config", JITNEY_PROT="1", JITNEY_SERVICE_HOST="10.0.0.1", JITNEY_PORT_8080_TCP_ADDR="10.0.0.1")
    assert done.returncode == 0
    assert "JITNEY_PROT is unknown and has no effect; did you mean `JITNEY_PORT`?" in done.stderr
    assert done.stderr.count("unknown") == 1


def test_a_taken_port_is_told(start, run, store: Store) -> None:
    server = start("serve", store.mar("echo"))
    done = run("serve", *FREE_PORTS[2:], "--port", str(server.address[1]), store.path / "echo.mar")
    assert done.returncode == 1
    assert str(server.address[1]) in done.stderr


def test_a_bad_variable_is_named(run, store: Store) -> None:
    done = run("serve", store.mar("echo"), JITNEY_PORT="many")
    assert done.returncode == 64 and "JITNEY_PORT" in done.stderr


# -- what the server says when it is up --------------------------------------------------------


def try_line(text: str) -> str:
    """The line to paste."""
    found = re.search(r"^Try: (.*curl .+)$|try: (.*curl .+)$", text, re.MULTILINE)
    assert found, text
    return found[1] or found[2]


def pasted(line: str, cwd: Path) -> str:
    """What a shell makes of the line; it must work as it stands."""
    done = subprocess.run(["bash", "-c", line], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{line!r} exited with {done.returncode}: {done.stderr}"
    return done.stdout


def test_the_demos_curl_line_works_as_printed(start) -> None:
    """Where `make demo` runs, and the answer is a name that means something."""
    server = start("demo", cwd=ROOT)
    answer = json.loads(pasted(try_line(server.stdout), ROOT))
    assert max(answer, key=answer.__getitem__) == "toml"


def test_the_demos_curl_line_works_in_an_empty_directory(start, tmp_path: Path) -> None:
    server = start("demo")
    answer = json.loads(pasted(try_line(server.stdout), tmp_path))
    assert max(answer, key=answer.__getitem__) == "sql", "it brings a text of its own"


def test_the_servers_curl_line_works_as_printed(start, store: Store, tmp_path: Path) -> None:
    server = start("serve", store.mar("echo"))
    before = server.metric("jitney_requests_answered_total", "echo")
    answer = pasted(try_line(server.stdout), tmp_path)
    assert server.metric("jitney_requests_answered_total", "echo") == before + 1
    assert answer not in ("", "null"), "it brings a body, where handlers look for one, and not a form"


def test_addresses_are_on_stdout_and_the_log_is_on_stderr(start, store: Store) -> None:
    server = start("serve", store.mar("echo"))
    assert [line.split()[0] for line in server.stdout.splitlines() if line] == [
        "Inference",
        "Management",
        "Metrics",
        "gRPC",
        "gRPC",
        "API",
        "Dashboard",
        "Try:",
    ]
    server.logged("worker is ready")
    assert "worker is ready" not in server.stdout
    assert "\x1b[" not in server.log, "no colours without a terminal"


def test_the_access_log_has_a_line_per_request(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--access-log")
    server.predict("echo", b"x")
    server.predict("nobody", b"x")
    server.logged('"POST /predictions/echo HTTP/1.1" 200')
    server.logged('"POST /predictions/nobody HTTP/1.1" 404')


# -- configuration -----------------------------------------------------------------------------


def test_a_yaml_file_describes_a_server(start, store: Store, tmp_path: Path) -> None:
    store.mar("echo")
    store.directory("orders")
    (tmp_path / "jitney.yaml").write_text(
        "max_request_size: 1KiB\nbatching: {policy: window, max_batch_size: 4, max_batch_delay: 20ms}\n"
        "models:\n  - path: store/echo.mar\n    name: parrot\n    version: '7'\n"
        "  - path: store/orders\n    workers: 2\n    batching: {max_batch_size: 8}\n"
    )
    server = start("serve", "--config", tmp_path / "jitney.yaml")
    parrot, orders = server.describe("parrot"), server.describe("orders")
    assert (parrot["modelVersion"], parrot["batchSize"], parrot["maxBatchDelay"]) == ("7", 4, 20)
    assert (orders["batchSize"], len(orders["workers"])) == (8, 2)
    assert server.predict("parrot", b"x" * 1024).status_code == 200
    assert server.predict("parrot", b"x" * 1025).status_code == 413


def test_flags_win_over_variables_and_variables_over_the_file(start, store: Store, tmp_path: Path) -> None:
    store.mar("echo")
    text = "batching: {max_batch_size: 2}\nqueue: 7\nworkers: 1\nmodels: [{path: store/echo.mar}]\n"
    (tmp_path / "jitney.yaml").write_text(text)
    variables = {"JITNEY_BATCH_SIZE": "3", "JITNEY_WORKERS": "2"}
    server = start("serve", "--config", tmp_path / "jitney.yaml", "--batch-size", "4", env=variables)
    described = server.describe("echo")
    assert (described["batchSize"], described["minWorkers"]) == (4, 2)
    assert described["jobQueueStatus"]["remainingCapacity"] == 7


def test_what_config_prints_is_in_force(start, run, store: Store, tmp_path: Path) -> None:
    """Every value that a description repeats, of a model with several sources; typed workers win over packed ones."""
    store.mar("echo", config="minWorkers: 1\nmaxWorkers: 1\nbatchSize: 6\nresponseTimeout: 77\n")
    yaml = "queue: 9\nmodels: [{path: store/echo.mar, batching: {max_batch_delay: 30}}]\n"
    (tmp_path / "jitney.yaml").write_text(yaml)
    flags = ("--config", tmp_path / "jitney.yaml", "--workers", "3")
    printed = run("config", "--json", "serve", *flags)
    assert printed.returncode == 0, printed.stderr
    rows = {row["key"]: row for row in json.loads(printed.stdout) if row["model"] == "echo"}
    described = start("serve", *flags).describe("echo")
    for key, told in {
        "workers": "minWorkers",
        "max_workers": "maxWorkers",
        "max_batch_size": "batchSize",
        "max_batch_delay": "maxBatchDelay",
        "response_timeout": "responseTimeout",
        "startup_timeout": "startupTimeout",
    }.items():
        assert rows[key]["value"] == str(described[told]), key
    assert rows["queue"]["value"] == str(described["jobQueueStatus"]["remainingCapacity"]) == "9"
    assert (rows["workers"]["value"], rows["workers"]["origin"]) == ("3", "flag")
    assert rows["max_batch_size"]["origin"] == "archive"
    assert rows["max_batch_delay"]["from"].endswith("jitney.yaml:2")


def test_config_reads_a_definitions_decorator(run, tmp_path: Path) -> None:
    code = "import jitney\n@jitney.batch(max_batch_size=8)\ndef double(x: list[int]) -> list[int]:\n    return x\n"
    (tmp_path / "app.py").write_text(code)
    done = run("config", "--json", "serve", "app.py:double")
    assert done.returncode == 0, done.stderr
    rows = {row["key"]: row for row in json.loads(done.stdout) if row["model"] == "double"}
    assert (rows["max_batch_size"]["value"], rows["max_batch_size"]["origin"]) == ("8", "archive")
    done = run("config", "serve", "app.py:Nope")
    assert done.returncode == 1 and "Nope" in done.stderr


@pytest.fixture
def torchserve(start, store: Store, tmp_path: Path):
    """Starts `jitney torchserve --start --foreground` with a config.properties."""

    def torchserve(text: str, *flags: str):
        config = tmp_path / "config.properties"
        config.write_text(FREE_ADDRESSES + text)
        flags = ("--ncs", "--ts-config", str(config), "--model-store", str(store.path), *flags)
        return start("torchserve", "--start", "--foreground", *flags)

    return torchserve


def test_config_properties_loads_and_sets_up_models(torchserve, store: Store) -> None:
    store.mar("echo")
    store.tgz("orders")
    settings = {"minWorkers": 2, "maxWorkers": 2, "batchSize": "4", "maxBatchDelay": 30, "responseTimeout": 33}
    models = json.dumps({"echo": {"1.0": settings}}, indent=1).replace("\n", "\\\n")
    keys = "load_models=all\ndefault_workers_per_model=1\ndisable_token_authorization=true\n"
    server = torchserve(f"{keys}models={models}\n")
    echo = server.describe("echo")
    assert (echo["batchSize"], echo["maxBatchDelay"], echo["responseTimeout"], len(echo["workers"])) == (4, 30, 33, 2)
    assert len(server.describe("orders")["workers"]) == 1
    assert server.predict("echo", b"x").content == b"x"


def test_the_model_api_is_off_unless_it_is_switched_on(torchserve, store: Store) -> None:
    store.mar("echo")
    server = torchserve("", "--disable-token-auth")
    rejected = server.manage("POST", "/models", url="echo.mar")
    assert (rejected.status_code, rejected.json()["type"]) == (405, "MethodNotAllowedException")


def test_a_models_own_yaml_decides_its_times_even_if_it_is_silent(torchserve, store: Store) -> None:
    store.mar("silent", "echo", config="batchSize: 2\n")
    store.mar("spoken", "echo", config="responseTimeout: 7\n")
    store.mar("echo")
    server = torchserve("default_response_timeout=33\n", "--disable-token-auth", "--enable-model-api")
    for name, expected in {"silent": (120, 120), "spoken": (7, 120), "echo": (33, 44)}.items():
        assert server.manage("POST", "/models", url=f"{name}.mar", startup_timeout=44).status_code == 200
        described = server.describe(name)
        assert (described["responseTimeout"], described["startupTimeout"]) == expected


def test_settings_that_count_only_together_are_described_only_together(torchserve, store: Store) -> None:
    store.mar("half", "echo", config="parallelType: pp\nsequenceBatching: true\nmaxNumSequence: 4\n")
    store.mar("whole", "echo", config="parallelType: pp\nparallelLevel: 1\nsequenceMaxIdleMSec: 9\nmaxNumSequence: 4\n")
    server = torchserve("", "--disable-token-auth", "--enable-model-api")
    keys = ("parallelType", "parallelLevel", "sequenceMaxIdleMSec", "maxNumSequence", "maxSequenceJobQueueSize")
    for name, expected in {"half": ["", 0, 0, 0, 0], "whole": ["pp", 1, 9, 4, 1]}.items():
        assert server.manage("POST", "/models", url=f"{name}.mar").status_code == 200
        described = server.describe(name)
        assert [described[key] for key in keys] == expected


def test_models_are_named_on_the_command_line(torchserve, store: Store) -> None:
    store.mar("echo")
    flags = ("--disable-token-auth", "--enable-model-api", "--models", "parrot=echo.mar", "echo.mar")
    server = torchserve("default_workers_per_model=1\n", *flags)
    assert server.predict("parrot", b"x").content == server.predict("echo", b"x").content == b"x"
    assert server.manage("DELETE", "/models/parrot").status_code == 200


def test_torchserve_goes_on_without_a_model_it_cannot_load(torchserve, store: Store) -> None:
    store.mar("echo")
    store.raw("broken.mar", b"no archive")
    server = torchserve("default_workers_per_model=1\nload_models=broken.mar,echo.mar\n", "--disable-token-auth")
    assert server.predict("echo", b"x").content == b"x"
    server.logged("broken.mar")


def launched(binary: Path, home: Path, *arguments: str | Path) -> int:
    """Starts a server in the background and returns the launcher's exit code.

    The server keeps its launcher's output, which therefore goes to a file: a pipe would never end.
    """
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "TMPDIR": str(home), MARK: str(home)}
    with (home / "console.log").open("wb") as console:
        command = [str(binary), *map(str, arguments)]
        done = subprocess.run(command, cwd=home, env=env, stdout=console, stderr=console, timeout=120, check=False)
    return done.returncode


def test_a_background_server_is_started_and_stopped(binary: Path, run, store: Store, tmp_path: Path) -> None:
    """The launcher leaves at once; a second start is rejected; stop waits until the ports are free."""
    store.mar("echo")
    (tmp_path / "config.properties").write_text(FREE_ADDRESSES + "default_workers_per_model=1\n")
    flags = ("--ncs", "--model-store", store.path, "--models", "echo.mar", "--disable-token-auth")
    console = tmp_path / "console.log"
    try:
        assert launched(binary, tmp_path, "torchserve", "--start", *flags) == 0, console.read_text()
        until(lambda: "Model server started." in console.read_text(), "the server is up")
        inference = re.search(r"Inference API bind to: (http://\S+)", console.read_text())[1]
        until(
            lambda: requests.post(f"{inference}/predictions/echo", data=b"x", timeout=120).content == b"x", "it serves"
        )
        again = run("torchserve", "--start", *flags)
        assert again.returncode == 1 and "TorchServe is already running" in again.stdout
        (link := tmp_path / "called-otherwise").symlink_to(binary)
        assert launched(link, tmp_path, "torchserve", "--stop", "--foreground") == 0
        assert not marked(str(tmp_path)), "nothing is left"
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{inference}/ping", timeout=120)
        assert run("torchserve", "--stop").stdout == "TorchServe is not currently running.\n"
    finally:
        run("torchserve", "--stop", "--foreground")


def test_free_ports_are_free_ports(start, store: Store) -> None:
    """Port 0 gives every server its own, so that two can run side by side."""
    one, other = start("serve", store.mar("echo")), start("serve", store.path / "echo.mar")
    assert not set(one.urls.values()) & set(other.urls.values())
    assert len(FREE_PORTS) == 10
