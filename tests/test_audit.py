"""The audit log: who changed the server, who was refused, and that nothing secret is in it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
import requests

from harness.archives import Store
from harness.certificates import Authority
from harness.client import curl
from harness.collector import Collector, facts
from harness.gate import Gate
from harness.server import ASK_SECONDS, Server
from harness.wait import until
from test_grpc import MANAGEMENT, Stub, address
from test_named_keys import bearer, code, row, write
from test_security import keys

LIMIT_BYTES = 100 << 20
OPS, APP = "o" * 40, "a" * 40


def lines(file: Path) -> list[dict[str, Any]]:
    """The lines so far."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def one(file: Path, operation: str, outcome: str = "done") -> dict[str, Any]:
    """The only line of this kind, once it is there."""
    kind = {"operation": operation, "outcome": outcome}
    [found] = until(lambda: [line for line in lines(file) if kind.items() <= line.items()], f"a line {kind}")
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the server writes."""
    return tmp_path / "logs" / "audit.log"


@pytest.fixture
def server(start, store: Store, file: Path) -> Server:
    """A server that anybody may manage."""
    store.mar("echo")
    return start("serve", store.mar("first", "echo"), "--model-store", store.path, "--audit-log", file)


def test_every_change_over_rest_is_a_line_with_before_and_after(server: Server, store: Store, file: Path) -> None:
    server.register(store.mar("second", "echo"))
    registered = one(file, "register")
    assert (registered["model"], registered["version"], registered["status"]) == ("second", "1.0", 200)
    assert registered["before"] == {"second/1.0": None}
    assert registered["after"]["second/1.0"]["minWorkers"] == 1
    assert registered["address"].startswith("127.0.0.1:")
    assert (registered["who"], registered["certificate"]) == (None, None)

    headers = {"x-request-id": "change-17"}
    url = server.url("/models/second", "management")
    assert requests.put(url, params={"min_worker": 2}, headers=headers, timeout=ASK_SECONDS).status_code == 202
    scaled = one(file, "scale")
    assert scaled["before"] == {"second/1.0": {"minWorkers": 1, "maxWorkers": 1}}
    assert scaled["after"] == {"second/1.0": {"minWorkers": 2, "maxWorkers": 2}}
    assert (scaled["model"], scaled["request_id"]) == ("second", "change-17")

    assert server.manage("PUT", "/models/second/1.0/set-default").status_code == 200
    assert (one(file, "set_default")["model"], one(file, "set_default")["after"]) == ("second", {})
    level = server.url("/log-level", "management")
    assert requests.put(level, json={"level": "warn"}, timeout=ASK_SECONDS).status_code == 200
    assert one(file, "set_log_level")["before"] == {"log": {"level": "info"}}
    assert one(file, "set_log_level")["after"] == {"log": {"level": "warn"}}

    assert server.manage("DELETE", "/models/nobody").status_code == 404
    failed = one(file, "unregister", "failed")
    assert (failed["model"], failed["status"], failed["after"]) == ("nobody", 404, {})
    assert server.manage("DELETE", "/models/second").status_code == 200
    assert one(file, "unregister")["after"] == {"second/1.0": None}
    server.predict("first", b"x")
    server.describe("first")
    assert len(lines(file)) == 6, "reading and predicting change nothing"


def test_a_caller_who_goes_away_is_noted_too(server: Server, store: Store, tmp_path: Path, file: Path) -> None:
    gate = Gate(tmp_path)
    source = f"""
import pathlib, time
pathlib.Path({str(gate.arrived)!r}).touch()
while not pathlib.Path({str(gate.opened)!r}).exists():
    time.sleep(0.01)

def handle(data, context):
    return ["here"] * len(data or [])
"""
    store.mar("late", source=source)
    url = urlsplit(server.url("/models?url=late.mar&initial_workers=1", "management"))
    with socket.create_connection((url.hostname, url.port)) as caller:
        caller.sendall(f"POST {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
        gate.wait()
    line = one(file, "register", "abandoned")
    assert (line["model"], line["status"]) == ("late", 0)
    gate.open()
    until(lambda: server.ready("late"), "it is carried out all the same")


def test_every_change_over_grpc_is_a_line(server: Server, file: Path) -> None:
    with grpc.insecure_channel(address(server, "management"), options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = Stub(channel, MANAGEMENT)
        stub("RegisterModel", url="echo.mar", initial_workers=1, synchronous=True, timeout=120)
        stub("ScaleWorker", model_name="echo", min_worker=2)
        with pytest.raises(grpc.RpcError):
            stub("SetDefault", model_name="echo", model_version="9")
        stub("UnregisterModel", model_name="echo")
        stub("ListModels")
    assert one(file, "register")["after"]["echo/1.0"]["minWorkers"] == 1
    assert one(file, "scale")["after"]["echo/1.0"]["minWorkers"] == 2
    missing = one(file, "set_default", "failed")
    assert (missing["model"], missing["version"], missing["status"]) == (
        "echo",
        "9",
        grpc.StatusCode.NOT_FOUND.value[0],
    )
    assert one(file, "unregister")["after"] == {"echo/1.0": None}
    assert len(lines(file)) == 4


def test_refused_attempts_are_lines_and_keys_are_in_none(start, store: Store, file: Path) -> None:
    server = start("serve", store.mar("echo"), "--token-auth", "--audit-log", file, wait_for_workers=False)
    found = keys(server)
    wrong = ["-H", "Authorization: Bearer stolen-key-17"]
    assert curl(*wrong, "-X", "DELETE", server.url("/models/echo?secret=value-18", "management")).status_code == 400
    refused = one(file, "unregister", "denied")
    assert (refused["model"], refused["who"], refused["before"]) == ("echo", None, {})
    assert curl(server.url("/models", "management")).status_code == 400
    assert one(file, "list", "denied")["status"] == 400
    with grpc.insecure_channel(address(server, "management")) as channel, pytest.raises(grpc.RpcError):
        Stub(channel, MANAGEMENT)("ScaleWorker", model_name="echo", min_worker=2)
    one(file, "scale", "denied")

    for _ in range(20):
        assert curl("-d", "x", server.url("/predictions/echo")).status_code == 400
    assert len([line for line in lines(file) if line["operation"] == "predict"]) < 20, "a flood is counted"

    right = ["-H", f"Authorization: Bearer {found['management']}"]
    assert curl(*right, "-X", "PUT", server.url("/models/echo?min_worker=1", "management")).status_code < 300
    assert one(file, "scale")["who"] == "management"
    assert curl("-H", f"Authorization: Bearer {found['API']}", server.url("/token?type=inference", "management"))
    assert one(file, "renew_token")["who"] == "API"
    text = file.read_text()
    secrets = ["stolen-key-17", "value-18", *found.values(), *keys(server).values()]
    assert not any(secret in text for secret in secrets)


def test_a_certificate_says_who_it_was(start, tmp_path: Path, store: Store, file: Path) -> None:
    authority = Authority(tmp_path / "authority")
    own, client = authority.issue("server"), authority.issue("ops")
    flags = ["--tls-cert", own.cert, "--tls-key", own.key, "--client-ca", authority.cert, "--audit-log", file]
    server = start("serve", store.mar("echo"), *flags, wait_for_workers=False)
    trust = ["--cacert", authority.cert, *client.curl]
    assert curl(*trust, "-X", "PUT", server.url("/models/echo?min_worker=1", "management")).status_code < 300
    assert one(file, "scale")["certificate"] == "CN=ops,O=Example"


def test_a_named_key_says_who_it_was_and_who_was_denied(start, tmp_path: Path, store: Store, file: Path) -> None:
    names = write(tmp_path / "keys.yaml", row("ops", OPS, "manage"), row("app", APP, "predict"))
    server = start("serve", store.mar("echo"), "--keys", names, "--audit-log", file, wait_for_workers=False)
    url = server.url("/models/echo", "management")
    assert requests.delete(url, headers=bearer(APP), timeout=ASK_SECONDS).status_code == 403
    assert one(file, "unregister", "denied")["who"] == "app"
    scaled = requests.put(url, params={"min_worker": 1}, headers=bearer(OPS), timeout=ASK_SECONDS)
    assert scaled.status_code < 300 and one(file, "scale")["who"] == "ops"
    with grpc.insecure_channel(address(server, "management"), options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = Stub(channel, MANAGEMENT)
        assert code(stub, "ScaleWorker", APP, model_name="echo", min_worker=2) == "PERMISSION_DENIED"
        assert one(file, "scale", "denied")["who"] == "app"
        assert code(stub, "UnregisterModel", OPS, model_name="echo") == "OK"
        assert one(file, "unregister")["who"] == "ops"


def test_the_file_is_bounded(server: Server, file: Path) -> None:
    server.manage("PUT", "/models/first", min_worker=1)
    one(file, "scale")
    server.end()
    with file.open("r+b") as full:
        full.truncate(LIMIT_BYTES)
    server.started()
    server.manage("PUT", "/models/first", min_worker=1)
    full = file.with_name("audit.log.1")
    until(full.exists, "a new file begins")  # For a moment there is the old one alone.
    one(file, "scale")
    assert full.stat().st_size == LIMIT_BYTES and file.stat().st_size < LIMIT_BYTES


def test_a_server_that_cannot_write_it_does_not_start(start, tmp_path: Path, store: Store) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(AssertionError, match="cannot write"):
        start("serve", store.mar("echo"), "--audit-log", blocked / "audit.log", wait_for_workers=False)


def test_a_collector_gets_the_same_lines(start, store: Store, file: Path) -> None:
    collector = Collector()
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "20"}
    server = start("serve", store.mar("echo"), "--audit-log", file, "--service-name", "till", env=env)
    server.manage("PUT", "/models/echo", min_worker=1)
    [record] = until(collector.records, "a log record")
    assert json.loads(record.body.string_value) == one(file, "scale")
    assert (record.severity_text, facts(record)) == ("INFO", {"event.name": "jitney.audit"})
    resource = collector.logs[0].resource_logs[0].resource
    assert facts(resource)["service.name"] == "till"
    server.end()
    collector.close()


def test_what_followed_files_change_is_a_line_too(start, tmp_path: Path, store: Store, file: Path) -> None:
    names = write(tmp_path / "keys.yaml", row("ops", OPS, "manage"))
    models = tmp_path / "models.yaml"
    listed = {"name": "echo", "path": str(store.mar("echo")), "workers": 1}
    models.write_text(json.dumps({"models": [listed]}))
    flags = ["--keys", names, "--registrations", models, "--registrations-every", "0.1s", "--audit-log", file]
    start("serve", *flags, wait_for_workers=False)
    loaded = one(file, "registrations")
    assert (loaded["address"], loaded["who"], loaded["before"]) == (str(models), None, {"echo/1.0": None})

    models.write_text(json.dumps({"models": []}))
    [gone] = until(lambda: found(file, "registrations")[1:], "the model goes")
    assert gone["after"] == {"echo/1.0": None}

    write(names, row("ops", OPS, "manage", tenant="gold"), row("app", APP, "predict:e*", rate=5))
    keys = one(file, "keys")
    assert (keys["address"], keys["before"]) == (str(names), {"key app": None, "key ops": {}})
    assert keys["after"]["key ops"] == {"tenant": "gold"}
    assert keys["after"]["key app"] == {
        "sha256": row("app", APP)["sha256"][:12],
        "scopes": ["predict:e*"],
        "rate": 5.0,
        "burst": 5,
        "subjects": [],
    }
    names.write_text("- name: a\n")
    assert one(file, "keys", "failed")["after"] == {}
    assert not any(key in file.read_text() for key in (OPS, APP))


def test_what_a_followed_folder_and_changed_code_do_are_lines_too(start, tmp_path: Path, file: Path) -> None:
    served = Store(tmp_path / "models")
    code = tmp_path / "app.py"
    code.write_text("import jitney\n\n\n@jitney.model\ndef live(text: str) -> str:\n    return text\n")
    flags = [served.path, "--poll", "100ms", "--watch", "--audit-log", file]
    start("serve", "app.py:live", *flags, cwd=tmp_path, wait_for_workers=False)
    served.mar("echo")
    polled = one(file, "poll")
    assert (polled["address"], polled["before"]) == (str(served.path), {"echo/1.0": None})
    code.write_text(code.read_text() + "\n# changed\n")
    watched = one(file, "watch")
    assert sorted(value is None for value in watched["before"].values()) == [False, True], "one came, one went"
    assert watched["address"] == "app.py:live"


def found(file: Path, operation: str) -> list[dict[str, Any]]:
    """The lines of this kind."""
    return [line for line in lines(file) if line["operation"] == operation]
