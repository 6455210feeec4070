"""Keys with names against the real binary: scopes on every listener, revocation, quotas, tenants, secrecy."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import requests

from harness.archives import Store
from harness.client import SOCKET_SECONDS, Reply, curl, later
from harness.gate import Gate
from harness.package import jitney
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until
from test_grpc import FREE_PORTS, INFERENCE, MANAGEMENT, OPEN_INFERENCE, Stub, address

TELLS = """
import json

def handle(data, context):
    return [json.dumps(told(context, index)) for index, _ in enumerate(data or [])]

def told(context, index):
    names = ["x-jitney-tenant", "authorization", "x-other"]
    return {name: context.get_request_header(index, name) for name in names}
"""

APP = """
import time
from collections.abc import Iterator

import jitney


@jitney.model
def count() -> Iterator[str]:
    while True:
        yield "more"
        time.sleep(0.01)
"""

SCOPES = {
    "all": ["predict", "explain", "manage", "metrics"],
    "predicts": ["predict"],
    "some": ["predict:te*", "manage:te*"],
    "explains": ["explain"],
    "manages": ["manage"],
    "watches": ["metrics"],
}


def row(name: str, key: str, *scopes: str, **more: object) -> dict:
    """A row of the file."""
    return {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), "scopes": list(scopes), **more}


def write(file: Path, *rows: dict) -> Path:
    """Writes the file; JSON is YAML."""
    file.write_text(json.dumps(rows, indent=1))
    return file


def bearer(key: str, **more: str) -> dict[str, str]:
    """The headers of a request with a key."""
    return {"Authorization": f"Bearer {key}", **more}


def post(server: Server, path: str, key: str, body: object = b"x", **headers: str) -> requests.Response:
    """A request to the inference port."""
    json_body, data = (None, body) if isinstance(body, bytes) else (body, None)
    return requests.post(server.url(path), data=data, json=json_body, headers=bearer(key, **headers), timeout=120)


def code(stub: Stub, method: str, key: str | None, **fields: object) -> str:
    """How a gRPC call with a key ended."""
    try:
        stub(method, metadata=metadata(key), **fields)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def channel(server: Server, api: str) -> grpc.Channel:
    """A channel to a port of the server."""
    return grpc.insecure_channel(address(server, api), options=[("grpc.enable_http_proxy", 0)])


def metadata(key: str | None) -> list[tuple[str, str]]:
    """The metadata of a call with a key."""
    return [("authorization", f"Bearer {key}")] if key else []


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """A key for each set of scopes."""
    return {name: secrets.token_urlsafe(24) for name in SCOPES}


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str]) -> Iterator[Server]:
    """A server whose file has these keys."""
    home = tmp_path_factory.mktemp("named-keys")
    store = Store(home / "store")
    file = write(home / "keys.yaml", *(row(name, key, *SCOPES[name]) for name, key in keys.items()))
    models = [store.mar("echo"), store.mar("tells", source=TELLS)]
    flags = ["--keys", file, "--model-store", store.path, "--access-log", "--log-level", "trace"]
    server = Server(binary, home / "server", ["serve", *models, *flags], wait_for_workers=False, env=FREE_PORTS)
    server.started()
    ready(server, keys["all"])
    yield server
    server.end()


def ready(server: Server, key: str, *models: str) -> None:
    """Waits until the models have workers."""
    for model in models or ("echo", "tells"):
        url = server.url(f"/models/{model}", "management")
        until(lambda url=url: "READY" in requests.get(url, headers=bearer(key), timeout=120).text, f"{model} is ready")


# -- scopes -----------------------------------------------------------------------------------------------------------

REST = [
    ("POST", "inference", "/predictions/echo", ["all", "predicts"]),
    ("POST", "inference", "/predictions/tells", ["all", "predicts", "some"]),
    ("POST", "inference", "/tells", ["all", "predicts", "some"]),
    ("POST", "inference", "/models/tells/invoke", ["all", "predicts", "some"]),
    ("POST", "inference", "/invocations?model_name=echo", ["all", "predicts"]),
    ("POST", "inference", "/invocations?model_name=tells", ["all", "predicts", "some"]),
    ("POST", "inference", "/explanations/tells", ["all", "explains"]),
    ("GET", "inference", "/v2/models/tells", ["all", "predicts", "some", "explains"]),
    ("GET", "inference", "/v2/models/echo", ["all", "predicts", "explains"]),
    ("GET", "inference", "/v2/models/stats", ["all", "predicts", "explains", "manages"]),
    ("GET", "management", "/models", ["all", "manages"]),
    ("GET", "management", "/models/tells", ["all", "manages", "some"]),
    ("GET", "management", "/models/echo", ["all", "manages"]),
    ("PUT", "management", "/models/tells?min_worker=1", ["all", "manages", "some"]),
    ("PUT", "management", "/models/echo?min_worker=1", ["all", "manages"]),
    ("GET", "management", "/overview", ["all", "manages"]),
    ("GET", "management", "/overview/history", ["all", "manages"]),
    ("GET", "management", "/logs", ["all", "manages"]),
    ("GET", "metrics", "/metrics", ["all", "watches"]),
]


@pytest.mark.parametrize(("method", "api", "path", "opened_by"), REST, ids=lambda it: it if isinstance(it, str) else "")
def test_each_scope_opens_its_own_paths(
    server: Server, keys: dict[str, str], method: str, api: str, path: str, opened_by: list[str]
) -> None:
    for name, key in keys.items():
        reply = requests.request(method, server.url(path, api), headers=bearer(key), data=b"{}", timeout=120)
        denied = reply.status_code == 403 and reply.json()["type"] == "AccessDeniedException"
        assert denied == (name not in opened_by), (name, reply.status_code, reply.text)
        assert denied or reply.status_code < 300, (name, reply.status_code, reply.text)
    for wrong in [None, "wrong", keys["all"][:-1], keys["all"] + "x"]:
        headers = bearer(wrong) if wrong else {}
        reply = requests.request(method, server.url(path, api), headers=headers, timeout=120)
        assert (reply.status_code, reply.headers["WWW-Authenticate"]) == (401, "Bearer"), reply.text
        assert reply.json()["type"] == "InvalidKeyException"


def test_health_and_descriptions_stay_open_and_tell_no_names(server: Server, keys: dict[str, str]) -> None:
    for path in ["/ping", "/v2/health/ready", "/openapi.json"]:
        assert requests.get(server.url(path), timeout=120).status_code == 200
    assert "models" not in requests.get(server.url("/ping?verbose"), timeout=120).json()
    told = requests.get(server.url("/ping?verbose"), headers=bearer(keys["all"]), timeout=120)
    assert "models" in told.json()
    for headers, described in [
        ({}, set()),
        (bearer(keys["some"]), {"tells"}),
        (bearer(keys["all"]), {"tells", "echo"}),
    ]:
        paths = requests.get(server.url("/openapi.json"), headers=headers, timeout=120).json()["paths"]
        assert {path.rpartition("/")[2] for path in paths if path.startswith("/predictions/")} == described


@pytest.mark.parametrize(
    ("key", "asked", "named"), [("some", "tell", "tells"), ("some", "ech", None), ("all", "ech", "echo")]
)
def test_only_a_model_that_the_key_may_use_is_named_as_the_nearest(
    server: Server, keys: dict[str, str], key: str, asked: str, named: str | None
) -> None:
    message = post(server, f"/predictions/{asked}", keys[key]).json()["message"]
    assert ("did you mean" in message) == (named is not None), message
    assert named is None or f"`{named}`" in message


def test_each_scope_opens_its_own_methods_of_grpc(server: Server, keys: dict[str, str]) -> None:
    tells = {"model_name": "tells", "input": {"data": b"x"}}
    oip = {"name": "tells"}
    calls = [
        ("inference", INFERENCE, "Predictions", tells, ["all", "predicts", "some"]),
        ("inference", INFERENCE, "Predictions", {**tells, "model_name": "echo"}, ["all", "predicts"]),
        ("inference", OPEN_INFERENCE[1], "ModelMetadata", oip, ["all", "predicts", "some", "explains"]),
        ("inference", OPEN_INFERENCE[1], "RepositoryIndex", {}, ["all", "manages"]),
        ("management", MANAGEMENT, "ListModels", {}, ["all", "manages"]),
        ("management", MANAGEMENT, "DescribeModel", {"model_name": "tells"}, ["all", "manages", "some"]),
        ("management", MANAGEMENT, "DescribeModel", {"model_name": "echo"}, ["all", "manages"]),
    ]
    for api, service, method, fields, opened_by in calls:
        with channel(server, api) as opened:
            stub = Stub(opened, service)
            for name, key in keys.items():
                ended = code(stub, method, key, **fields)
                assert ended == ("OK" if name in opened_by else "PERMISSION_DENIED"), (method, name)
            for wrong in [None, "wrong"]:
                ended = code(stub, method, wrong, **fields)
                assert ended == "UNAUTHENTICATED", method


def test_http2_and_handles_know_the_keys_too(server: Server, keys: dict[str, str]) -> None:
    def over_http2(key: str) -> Reply:
        flags = ["--http2-prior-knowledge", "-H", f"Authorization: Bearer {key}", "-d", "x"]
        return curl(*flags, server.url("/predictions/echo"))

    assert [over_http2(keys[name]).status_code for name in ("predicts", "some")] == [200, 403]
    assert over_http2("wrong").status_code == 401
    with jitney.connect(server.url("/").rstrip("/"), token=keys["some"]) as session:
        assert "x-other" in session.model("tells", encoding="bytes").remote(b"x").result(timeout=120).decode()
        with pytest.raises(Exception, match="its scopes in keys"):
            session.model("echo", encoding="bytes").remote(b"x").result(timeout=120)


def test_no_key_is_ever_logged(server: Server, keys: dict[str, str]) -> None:
    for key in [*keys.values(), "NOT-A-KEY-OF-THIS-SERVER"]:
        post(server, "/predictions/echo", key)
        requests.get(server.url("/models", "management"), headers=bearer(key), timeout=120)
    server.logged("/predictions/echo")
    lines = requests.get(server.url("/logs", "management"), headers=bearer(keys["all"]), timeout=120).text
    for key in [*keys.values(), "NOT-A-KEY-OF-THIS-SERVER"]:
        assert key not in server.log + lines
        assert hashlib.sha256(key.encode()).hexdigest() not in server.log + lines


# -- tenants ----------------------------------------------------------------------------------------------------------


def seen(reply: requests.Response) -> list[str | None]:
    """What the model saw of the headers."""
    told = reply.json()
    return [told[name] for name in ("x-jitney-tenant", "authorization", "x-other")]


def test_a_tenant_comes_from_the_key_and_cannot_be_forged(start, tmp_path: Path, store: Store) -> None:
    gold, plain = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    file = write(
        tmp_path / "keys.yaml", row("gold", gold, "predict", "manage", tenant="gold"), row("plain", plain, "predict")
    )
    model = store.mar("tells", source=TELLS)
    forged = {"x-jitney-tenant": "other", "x-other": "1"}
    server = start("serve", model, "--keys", file, wait_for_workers=False, env=FREE_PORTS)
    ready(server, gold, "tells")
    assert seen(post(server, "/predictions/tells", gold, **forged)) == ["gold", None, "1"]
    assert seen(post(server, "/predictions/tells", plain, **forged)) == [None, None, "1"]
    with channel(server, "inference") as opened:
        fields = {"model_name": "tells", "input": {"data": b"x"}}
        answer, _ = Stub(opened, INFERENCE)("Predictions", metadata=[*metadata(gold), *forged.items()], **fields)
        assert list(json.loads(answer.prediction).values()) == ["gold", None, "1"]
    with jitney.connect(server.url("/").rstrip("/"), token=gold) as session:
        handle = session.model("tells", encoding="bytes").options(tenant="other")
        assert json.loads(handle.remote(b"x").result(timeout=120))["x-jitney-tenant"] == "gold"
    behind = start("serve", model, "--keys", file, "--trusted-proxies", "127.0.0.0/8", wait_for_workers=False)
    ready(behind, gold, "tells")
    assert seen(post(behind, "/predictions/tells", gold, **forged)) == ["other", None, "1"]
    assert seen(post(behind, "/predictions/tells", gold)) == ["gold", None, None]


# -- changes ----------------------------------------------------------------------------------------------------------


def test_a_revoked_key_opens_nothing_more_on_open_connections_too(
    binary: Path, start, tmp_path: Path, store: Store
) -> None:
    file = tmp_path / "keys.yaml"

    def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, "keys", *arguments, "--file", file], capture_output=True, text=True, timeout=120, check=False
        )

    made = [command("new", name, "--scope", "predict", "--scope", "manage") for name in ("first", "second")]
    first, second = (one.stdout.strip() for one in made)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert first not in file.read_text() and hashlib.sha256(first.encode()).hexdigest() in file.read_text()
    assert re.search(r"first +predict manage", command("list").stdout)
    assert command("new", "first").returncode == 64
    server = start("serve", store.mar("echo"), "--keys", file, wait_for_workers=False, env=FREE_PORTS)
    ready(server, first, "echo")
    fields = {"model_name": "echo", "input": {"data": b"x"}}
    with (
        requests.Session() as session,
        channel(server, "inference") as opened,
        jitney.connect(server.url("/").rstrip("/"), token=first) as connected,
    ):
        handle, stub = connected.model("echo", encoding="bytes"), Stub(opened, INFERENCE)

        def ask() -> int:
            return session.post(
                server.url("/predictions/echo"), data=b"x", headers=bearer(first), timeout=120
            ).status_code

        assert (ask(), code(stub, "Predictions", first, **fields)) == (200, "OK")
        assert handle.remote(b"x").result(timeout=120) == b"x"
        good = file.read_text()
        file.write_text(good + "- name: third\n")
        server.logged("what was read before stays in force: ")
        assert ask() == 200
        file.write_text(good)
        assert command("revoke", "first").returncode == 0
        until(lambda: ask() == 401, "the key is refused")
        assert code(stub, "Predictions", first, **fields) == "UNAUTHENTICATED"
        with pytest.raises(Exception, match="revoked"):
            handle.remote(b"x").result(timeout=120)
    assert post(server, "/predictions/echo", second).status_code == 200
    assert server.log.count("what was read before stays in force") == 1
    assert command("revoke", "first").returncode == 64


def test_a_mounted_secret_is_followed_and_an_expired_key_is_none(start, tmp_path: Path, store: Store) -> None:
    old, new, late = (secrets.token_urlsafe(24) for _ in range(3))
    for name, key in [("one", old), ("two", new)]:
        (tmp_path / name).mkdir()
        rows = [row("late", late, "predict", expires="2020-01-01"), row("key", key, "predict", "manage")]
        write(tmp_path / name / "keys.yaml", *rows)
    mounted = tmp_path / "mounted"
    mounted.symlink_to(tmp_path / "one")
    server = start("serve", store.mar("echo"), "--keys", mounted / "keys.yaml", wait_for_workers=False)
    ready(server, old, "echo")
    assert post(server, "/predictions/echo", late).status_code == 401
    (tmp_path / "next").symlink_to(tmp_path / "two")
    (tmp_path / "next").rename(mounted)
    until(lambda: post(server, "/predictions/echo", new).status_code == 200, "the new key is in force")
    assert post(server, "/predictions/echo", old).status_code == 401


def test_a_wrong_file_is_said_with_its_line_and_without_what_stands_there(
    binary: Path, tmp_path: Path, store: Store
) -> None:
    file, key = tmp_path / "keys.yaml", secrets.token_urlsafe(24)
    file.write_text(f"- name: a\n  sha256: {key}\n  scopes: [predict]\n")
    command = [binary, "serve", store.mar("echo"), "--keys", file]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 64 and "line 2" in ended.stderr and "jitney keys new" in ended.stderr, ended.stderr
    assert str(file) in ended.stderr and key not in ended.stderr + ended.stdout


# -- quotas -----------------------------------------------------------------------------------------------------------


def test_a_quota_is_exact_over_every_protocol(start, tmp_path: Path, store: Store) -> None:
    rate = {"rate": 0.001, "burst": 6}
    all_keys = {name: secrets.token_urlsafe(24) for name in ("boss", "rest", "grpc", "list", "handle")}
    rows = [row(name, key, "predict", "manage", **({} if name == "boss" else rate)) for name, key in all_keys.items()]
    file = write(tmp_path / "keys.yaml", *rows)
    server = start("serve", store.mar("echo"), "--keys", file, wait_for_workers=False, env=FREE_PORTS)
    ready(server, all_keys["boss"], "echo")
    replies = [post(server, "/predictions/echo", all_keys["rest"]) for _ in range(8)]
    assert [reply.status_code for reply in replies] == [200] * 6 + [429] * 2
    assert 100 < int(replies[-1].headers["Retry-After"]) <= 1000
    assert replies[-1].json()["type"] == "TooManyRequestsException"
    assert post(server, "/predictions/echo", all_keys["boss"]).status_code == 200
    with channel(server, "inference") as opened:
        stub, fields = Stub(opened, INFERENCE), {"model_name": "echo", "input": {"data": b"x"}}
        assert [code(stub, "Predictions", all_keys["grpc"], **fields) for _ in range(7)] == ["OK"] * 6 + [
            "RESOURCE_EXHAUSTED"
        ]
        with pytest.raises(grpc.RpcError) as failed:
            stub("Predictions", metadata=metadata(all_keys["grpc"]), **fields)
        assert 100_000 < int(dict(failed.value.trailing_metadata())["grpc-retry-pushback-ms"]) <= 1_000_000
    values = {"instances": ["a", "b", "c"]}
    statuses = [post(server, "/v1/models/echo:predict", all_keys["list"], values).status_code for _ in range(3)]
    assert statuses == [200, 200, 429], "each instance is an item"
    too_many = post(server, "/v1/models/echo:predict", all_keys["list"], {"instances": ["a"] * 7})
    assert too_many.status_code == 400 and "at most 6" in too_many.text
    with jitney.connect(server.url("/").rstrip("/"), token=all_keys["handle"]) as session:
        handle = session.model("echo", encoding="bytes")
        assert [handle.remote(b"x").result(timeout=120) for _ in range(6)] == [b"x"] * 6
        with pytest.raises(Exception, match="limit for this client"):
            handle.remote(b"x").result(timeout=120)


def test_a_key_has_so_many_requests_under_way_and_no_more(start, tmp_path: Path, store: Store) -> None:
    narrow, wide = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    rows = [row("narrow", narrow, "predict", concurrency=1), row("wide", wide, "predict", "manage")]
    file = write(tmp_path / "keys.yaml", *rows)
    server = start("serve", store.mar("orders"), "--keys", file, wait_for_workers=False)
    ready(server, wide, "orders")
    gate = Gate(tmp_path)
    held = later(lambda: post(server, "/predictions/orders", narrow, gate.order))
    gate.wait()
    rejected = post(server, "/predictions/orders", narrow, {})
    assert (rejected.status_code, rejected.headers["Retry-After"]) == (429, "1")
    gate.open()
    assert held.result().status_code == 200
    assert post(server, "/predictions/orders", narrow, {}).status_code == 200


@pytest.mark.parametrize(("flags", "status"), [([], 503), (["--full-status", "429"], 429)])
def test_a_full_queue_has_the_status_that_the_operator_chose(
    start, tmp_path: Path, store: Store, flags: list[str], status: int
) -> None:
    server = start("serve", store.mar("orders", config="jobQueueSize: 1\n"), *flags)
    gate = Gate(tmp_path)
    held = [later(lambda: server.predict("orders", gate.order))]
    gate.wait()
    held.append(later(lambda: server.predict("orders", {})))
    until(lambda: server.metric("jitney_waiting", "orders") == 1, "one waits")
    rejected = server.predict("orders", {})
    assert rejected.status_code == status and "Retry-After" in rejected.headers, rejected.text
    gate.open()
    assert [answer.result().status_code for answer in held] == [200, 200]


# -- beside TorchServe's tokens ---------------------------------------------------------------------------------------


def test_torchserves_tokens_go_on_working_beside_keys(start, tmp_path: Path, store: Store) -> None:
    key = secrets.token_urlsafe(24)
    file = write(tmp_path / "keys.yaml", row("a", key, "predict"))
    config = tmp_path / "config.properties"
    store.mar("echo")
    config.write_text(f"{FREE_ADDRESSES}keys={file}\nload_models=echo.mar\n")
    arguments = ["torchserve", "--start", "--foreground", "--ncs", "--model-store", store.path, "--ts-config", config]
    server = start(*arguments, wait_for_workers=False)
    tokens = {role: entry["key"] for role, entry in json.loads((server.cwd / "key_file.json").read_text()).items()}
    ready(server, tokens["management"], "echo")
    assert [post(server, "/predictions/echo", one).status_code for one in (key, tokens["inference"])] == [200, 200]
    assert post(server, "/predictions/echo", "wrong").status_code == 400, "in TorchServe's words"
    models = server.url("/models", "management")
    assert requests.get(models, headers=bearer(key), timeout=120).status_code == 403
    renewed = requests.get(server.url("/token?type=inference", "management"), headers=bearer(key), timeout=120)
    assert renewed.status_code == 403


def test_an_unknown_path_names_no_model_that_the_key_may_not_use(server: Server, keys: dict[str, str]) -> None:
    """The other port is named to who may call the model there."""
    for name, told in (("all", True), ("manages", False)):
        reply = requests.get(server.url("/echo", "management"), headers=bearer(keys[name]), timeout=120)
        assert reply.status_code == 404 and ("It is on the inference port" in reply.json()["message"]) == told, name


def test_the_bodies_of_a_key_take_its_share_and_no_more(start, tmp_path: Path, store: Store) -> None:
    mine, other = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    file = write(
        tmp_path / "keys.yaml", row("mine", mine, "predict", "manage", "metrics"), row("other", other, "predict")
    )
    flags = ["--keys", file, "--max-request-memory", "16MiB"]
    server = start("serve", store.mar("echo"), *flags, wait_for_workers=False)
    ready(server, mine, "echo")

    def begun(key: str) -> socket.socket:
        """A request whose body has come but for its end."""
        connection = socket.create_connection(server.address, timeout=SOCKET_SECONDS)
        head = f"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n"
        connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + b"x" * 999_999)
        return connection

    def held() -> int:
        page = requests.get(server.url("/metrics", "metrics"), headers=bearer(mine), timeout=120).text
        return int(float(re.search(r"^jitney_request_memory_bytes{.*} (.*)$", page, re.MULTILINE)[1]))

    bodies = [begun(mine) for _ in range(3)]
    until(lambda: held() >= 3_000_000, "three bodies wait")
    more = post(server, "/predictions/echo", mine, b"y" * 2_000_000)
    assert (more.status_code, "The key has its share" in more.text) == (429, True), more.text
    assert post(server, "/predictions/echo", other, b"y" * 2_000_000).status_code == 200
    assert requests.get(server.url("/models", "management"), headers=bearer(mine), timeout=120).status_code == 200
    for body in bodies:
        body.sendall(b"x")
        assert body.recv(100).startswith(b"HTTP/1.1 200")
        body.close()
    until(lambda: post(server, "/predictions/echo", mine, b"y" * 2_000_000).status_code == 200, "there is room again")


def test_the_event_streams_of_a_revoked_key_end(start, tmp_path: Path, home: Path) -> None:
    key, other = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    file = write(tmp_path / "keys.yaml", row("key", key, "predict", "manage"), row("other", other, "manage"))
    server = start("serve", "app.py:count", "--keys", file, cwd=home, wait_for_workers=False)
    ready(server, key, "count")
    events = bearer(key, Accept="text/event-stream")
    paths = [("/overview/stream", "management"), ("/logs/stream?lines=1", "management")]
    with requests.Session() as session:
        streams = [session.get(server.url(path, api), headers=events, stream=True, timeout=120) for path, api in paths]
        streams.append(session.post(server.url("/count"), json={}, headers=events, stream=True, timeout=120))
        pieces = [stream.iter_content(None) for stream in streams]
        assert [stream.status_code for stream in streams] == [200, 200, 200]
        assert all(next(piece) for piece in pieces)
        write(file, row("other", other, "manage"))
        server.logged("the file has changed, and is in force as it is now")
        # A line, for the stream that waits for one.
        level = requests.put(
            server.url("/log-level", "management"), json={"level": "debug"}, headers=bearer(other), timeout=120
        )
        assert level.status_code == 200
        for piece in pieces:
            assert b"event: end" not in b"".join(piece), "it ends early"
