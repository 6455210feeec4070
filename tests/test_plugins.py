"""Plugins: endpoints and authorization in processes of their own. Whatever goes wrong, no request slips in."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import pytest
import requests
from google.protobuf import message_factory

from harness.archives import Store
from harness.client import SOCKET_SECONDS, curl, read_all, together
from harness.package import jitney
from harness.processes import marked
from harness.server import FREE_ADDRESSES, FREE_PORTS, Server
from harness.wait import until
from test_grpc import INFERENCE, MANAGEMENT, OPEN_INFERENCE, POOL, Stub, address

ENDPOINTS = """
import os
from jitney.plugin import Request, Response, endpoint

@endpoint("/greeting", methods=["GET", "POST"])
def greeting(request: Request):
    "Greets whoever asks."
    return {"method": request.method, "name": request.query.get("name"), "body": request.body.decode(),
            "user": request.headers.get("X-User"), "listener": request.listener, "pid": os.getpid()}

@endpoint("/teapot/", listener="management")
async def teapot(request):
    return Response("short and stout", status=418, headers={"X-Kind": "pot"})

@endpoint("/broken")
def broken(request):
    raise ValueError("the reason")

@endpoint("/gone")
def gone(request):
    os._exit(3)
"""

GATE = """
import os, time
from jitney.plugin import Allow, Deny, authorize

@authorize
def check(request):
    word = request.headers.get("x-word")
    if word == "die":
        os._exit(3)
    if word == "hang":
        time.sleep(600)
    if word == "raise":
        raise ValueError("the reason")
    if word == "maybe":
        return "yes"
    if word == "path":
        return Deny(451, f"{request.protocol} {request.listener} {request.path} {request.method}")
    if word == "allow":
        return Allow()
    return word == "sesame"
"""

# Denies everything but connections, and says what it was told; or names the tenant.
TELLER = """
import json
from jitney.plugin import Allow, Deny, authorize

@authorize
def check(request):
    told = [request.operation, request.model, request.version, request.workflow, request.path]
    if request.headers.get("x-tenant-of-plugin"):
        return Allow(tenant=request.headers["x-tenant-of-plugin"])
    if request.operation == "connect" or request.headers.get("x-word") == "sesame":
        return True
    if request.headers.get("authorization") == "Bearer " + str(request.model):
        return Allow(tenant="of-" + request.model)
    return Deny(403, json.dumps(told))
"""

TENANTS = """
def handle(data, context):
    return [str(context.get_request_header(index, "x-jitney-tenant")) for index, _ in enumerate(data or [])]
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a plugin file."""

    def write(name: str, source: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        return path

    return write


def ask(
    server: Server, path: str, word: str | None = None, method: str = "GET", api: str = "inference", **more: Any
) -> requests.Response:
    """A request that says a word, or none."""
    headers = {} if word is None else {"x-word": word}
    return requests.request(
        method, server.url(path, api), headers=headers | more.pop("headers", {}), timeout=120, **more
    )


@pytest.fixture
def plain(start: Callable[..., Server], store: Store, write) -> Server:
    """A server with endpoints and no guard."""
    return start("serve", store.mar("echo"), "--plugin", write("extras", ENDPOINTS))


def test_an_endpoint_sees_the_request_and_answers(plain: Server) -> None:
    said = ask(plain, "/greeting?name=Ada", method="POST", data=b"hello", headers={"X-User": "me"})
    body = said.json()
    assert (said.status_code, said.headers["content-type"]) == (200, "application/json")
    assert body.pop("pid") not in (plain.pid, *plain.workers("echo").values())
    assert body == {"method": "POST", "name": "Ada", "body": "hello", "user": "me", "listener": "inference"}
    assert said.headers["x-request-id"]
    assert plain.predict("echo", b"as before").content == b"as before"


def test_an_endpoint_belongs_to_its_listener_and_its_methods(plain: Server) -> None:
    pot = ask(plain, "/teapot", api="management")
    assert (pot.status_code, pot.text, pot.headers["x-kind"]) == (418, "short and stout", "pot")
    assert ask(plain, "/teapot").status_code == 404
    assert ask(plain, "/greeting", api="management").status_code == 404
    assert ask(plain, "/greeting", method="DELETE").status_code == 405
    assert ask(plain, "/greeting/deeper").status_code == 404
    assert plain.manage("GET", "/models").json()["models"] == [
        {"modelName": "echo", "modelUrl": plain.describe("echo")["modelUrl"]}
    ]


def test_endpoints_are_in_the_description_of_their_listener(plain: Server) -> None:
    described = requests.options(plain.url("/"), timeout=120).json()["paths"]
    assert set(described["/greeting"]) == {"get", "post"} and "/teapot" not in described
    assert described["/greeting"]["get"]["description"] == "Greets whoever asks."
    assert described["/broken"]["get"]["description"] == "Answered by the plugin extras."
    managed = requests.options(plain.url("/", "management"), timeout=120).json()["paths"]
    assert set(managed["/teapot"]) == {"get"} and "/greeting" not in managed


def test_an_endpoint_that_fails_or_dies_harms_no_other_request(plain: Server) -> None:
    failed = ask(plain, "/broken")
    assert (failed.status_code, failed.json()["message"]) == (500, "Plugin extras failed; see the server's log.")
    plain.logged("ValueError: the reason")
    died = ask(plain, "/gone")
    assert (died.status_code, died.json()["message"]) == (503, "Plugin extras is not available.")
    assert plain.predict("echo", b"still").content == b"still"
    assert ask(plain, "/greeting").status_code == 200, "it was started again"


def test_many_requests_to_a_plugin_run_at_a_time(plain: Server) -> None:
    answers = together([lambda: ask(plain, "/greeting") for _ in range(20)])
    assert {answer.status_code for answer in answers} == {200}


@pytest.fixture
def guarded(start: Callable[..., Server], store: Store, tmp_path: Path, write) -> Server:
    """A server with a guard, which is asked even for the list of models, so this does not wait for workers."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    write("plugins/gate", GATE)
    write("plugins/extras", ENDPOINTS)
    (plugins / "old.jar").write_bytes(b"")
    store.mar("echo")
    config = tmp_path / "config.properties"
    config.write_text(
        f"{FREE_ADDRESSES}model_store={store.path}\nload_models=echo.mar\ndefault_workers_per_model=1\n"
        "disable_token_authorization=true\nenable_model_api=true\nplugin_timeout=2\n"
    )
    return start(
        "torchserve",
        "--start",
        "--foreground",
        "--ncs",
        "--ts-config",
        config,
        "--plugins-path",
        plugins,
        wait_for_workers=False,
    )


def test_only_a_clear_yes_passes(guarded: Server) -> None:
    guarded.logged("Java plugins cannot be loaded, write them in Python: old")
    for word, status in [("sesame", 200), ("allow", 200), (None, 403), ("wrong", 403), ("raise", 503), ("maybe", 503)]:
        assert ask(guarded, "/ping", word).status_code == status, word
    denied, unclear = ask(guarded, "/ping"), ask(guarded, "/ping", "maybe")
    assert denied.json() == {"code": 403, "type": "AccessDeniedException", "message": "Access denied."}
    assert unclear.json()["type"] == "ServiceUnavailableException"
    assert unclear.json()["message"].startswith("The request cannot be authorized: plugin gate failed")


def test_every_door_is_guarded(guarded: Server) -> None:
    for method, path, api in [
        ("POST", "/predictions/echo", "inference"),
        ("GET", "/models", "management"),
        ("POST", "/models?url=echo.mar", "management"),
        ("DELETE", "/models/echo", "management"),
        ("GET", "/greeting", "inference"),
        ("GET", "/no/such/path", "inference"),
    ]:
        assert ask(guarded, path, method=method, api=api).status_code == 403, path
    assert ask(guarded, "/predictions/echo", "sesame", "POST", data=b"in").content == b"in"
    assert ask(guarded, "/greeting", "sesame").status_code == 200
    assert ask(guarded, "/metrics", api="metrics").status_code == 200


def test_the_guard_judges_the_path_that_the_server_routes_by(guarded: Server) -> None:
    said = ask(guarded, "/predictions/%65cho", "path", "POST")
    assert (said.status_code, said.json()["message"]) == (451, "http inference /predictions/echo POST")


def test_grpc_is_guarded_too(start: Callable[..., Server], store: Store, write) -> None:
    server = start("serve", store.mar("echo"), "--plugin", write("gate", GATE), wait_for_workers=False)
    with grpc.insecure_channel(address(server, "inference")) as channel:
        stub = Stub(channel, INFERENCE)
        asked = {"model_name": "echo", "input": {"data": b"x"}}
        for word, code in [(None, "PERMISSION_DENIED"), ("raise", "UNAVAILABLE")]:
            with pytest.raises(grpc.RpcError) as rejected:
                stub("Predictions", metadata=[("x-word", word)] if word else None, **asked)
            assert rejected.value.code().name == code
        with pytest.raises(grpc.RpcError) as told:
            stub("Predictions", metadata=[("x-word", "path")], **asked)
        assert f"grpc inference /{INFERENCE}/Predictions POST" in told.value.details()
        answer, _ = stub("Predictions", metadata=[("x-word", "sesame")], **asked)
        assert answer.prediction == b"x"


@pytest.fixture
def told(start: Callable[..., Server], store: Store, write) -> Server:
    """A server whose guard denies whatever it is asked about, and says what that was."""
    models = [store.mar("tenants", source=TENANTS)]
    return start("serve", *models, "--plugin", write("teller", TELLER), wait_for_workers=False)


INFERENCE_WAYS = {
    "/predictions/tenants": "predict",
    "/predictions/tenants/": "predict",
    "/predictions/tenants//": "predict",
    "/predictions/tenants%2f": "predict",
    "/predictions/%74enants": "predict",
    "/predictions/tenants/1.0": "predict",
    "/predictions/tenants/1.0/deeper": "predict",
    "/explanations/tenants": "explain",
    "/models/tenants/invoke": "predict",
    "/tenants/predict": "predict",
    "/tenants/1.0/predict": "predict",
    "/tenants": "predict",
    "/tenants/endpoint": "predict",
    "/invocations?model_name=tenants": "predict",
    "/invocations": "predict",
    "/v1/models/tenants:predict": "predict",
    "/v1/models/tenants:explain": "explain",
    "/v2/models/tenants/infer": "predict",
    "/v2/models/tenants/explain": "explain",
}


def told_of(reply: requests.Response) -> list[Any]:
    """What the guard was told."""
    assert reply.status_code == 403, reply.text
    return json.loads(reply.json()["message"])


def test_the_guard_is_told_model_version_and_operation_whatever_the_path(told: Server) -> None:
    for path, operation in INFERENCE_WAYS.items():
        said = told_of(ask(told, path, method="POST", data=b"x"))
        assert said[:4] == [operation, "tenants", "1.0", None], path
        assert said[4] == unquote(path.partition("?")[0]).rstrip("/"), "the path that the server routes by"
    for path, expected in {
        "/predictions/tenants/9": ["predict", "tenants", "9", None],
        "/predictions/nobody": ["predict", "nobody", None, None],
        "/invocations?model_name=nobody": ["predict", "nobody", None, None],
        "/wfpredict/flow": ["run_workflow", None, None, "flow"],
        "/ping": ["health", None, None, None],
        "/": ["unknown", None, None, None],
        "/no/such/path/here": ["unknown", None, None, None],
    }.items():
        assert told_of(ask(told, path, method="POST"))[:4] == expected, path


def test_the_guard_is_told_what_management_is_asked_for(told: Server) -> None:
    model = ["tenants", "1.0", None]
    for method, path, expected in [
        ("GET", "/models", ["list", None, None, None]),
        ("POST", "/models?url=x.mar&model_name=tenants", ["register", None, None, None]),
        ("GET", "/models/tenants", ["describe", *model]),
        ("GET", "/models/tenants/batching", ["describe", *model]),
        ("PUT", "/models/tenants?min_worker=2", ["scale", *model]),
        ("PUT", "/models/tenants?min_worker=2&model_version=7", ["scale", "tenants", "7", None]),
        ("PUT", "/models/tenants/1.0/set-default", ["set_default", *model]),
        ("DELETE", "/models/tenants", ["unregister", *model]),
        ("GET", "/workflows", ["list_workflows", None, None, None]),
        ("POST", "/workflows?url=x.war", ["register_workflow", None, None, None]),
        ("GET", "/workflows/flow", ["describe_workflow", None, None, "flow"]),
        ("DELETE", "/workflows/flow", ["unregister_workflow", None, None, "flow"]),
    ]:
        assert told_of(ask(told, path, method=method, api="management"))[:4] == expected, (method, path)


def test_a_model_that_only_the_body_names_is_told_too(start: Callable[..., Server], store: Store, write) -> None:
    models = [store.mar("one", "echo"), store.mar("two", "echo")]
    server = start("serve", *models, "--plugin", write("teller", TELLER), wait_for_workers=False)
    for name in ["one", "two", "three"]:
        said = told_of(ask(server, "/invocations", method="POST", data={"model_name": name, "data": "x"}))
        assert said[:2] == ["predict", name]


TRITONS = ("Config", "Settings", "Setting", "Statistics", "Index", "Load", "Unload", "Status", "Register", "Unregister")
"""How the methods end that only Triton's service has."""


def test_the_guard_is_asked_about_every_message_of_grpc(told: Server) -> None:
    denied = 0
    for api, services in {"inference": [INFERENCE, *OPEN_INFERENCE], "management": [MANAGEMENT]}.items():
        with grpc.insecure_channel(address(told, api)) as channel:
            for service in services:
                for method in POOL.FindServiceByName(service).methods:
                    if method.name in ("StreamPredictions2", "ModelStreamInfer"):
                        continue
                    known = {field.name for field in method.input_type.fields}
                    named = {"model_name": "tenants", "name": "tenants"}
                    fields = {name: value for name, value in named.items() if name in known}
                    with pytest.raises(grpc.RpcError) as rejected:
                        Stub(channel, service)(method.name, **fields)
                    assert rejected.value.code().name == "PERMISSION_DENIED", (service, method.name)
                    denied += 1
                    if method.name.endswith(TRITONS):
                        continue
                    said = json.loads(rejected.value.details().splitlines()[0])
                    registers = method.name == "RegisterModel"
                    model = [None, None] if registers or not fields else ["tenants", "1.0"]
                    if method.name == "SetDefault":
                        model = ["tenants", ""]
                    assert said[1:3] == model and said[4] == f"/{service}/{method.name}", said
    assert denied == 34, "every method but those with a stream"


def test_the_guard_is_asked_about_every_message_of_a_stream_of_tensors(told: Server) -> None:
    message = POOL.FindServiceByName("inference.GRPCInferenceService").FindMethodByName("ModelStreamInfer")
    with grpc.insecure_channel(address(told, "inference")) as channel:
        call = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(message.output_type).FromString,
        )
        ask = message_factory.GetMessageClass(message.input_type)
        answers = call(iter([ask(model_name="tenants", id="1"), ask(model_name="tenants", id="2")]), timeout=120)
        told_why = [json.loads(answer.error_message.splitlines()[0]) for answer in answers]
    assert [said[1:3] for said in told_why] == [["tenants", "1.0"]] * 2, told_why


def test_the_guard_is_asked_about_every_message_of_a_stream(told: Server) -> None:
    found = POOL.FindServiceByName(INFERENCE).FindMethodByName("StreamPredictions2")
    message, answer = (message_factory.GetMessageClass(kind) for kind in (found.input_type, found.output_type))
    with grpc.insecure_channel(address(told, "inference")) as channel:
        stream = channel.stream_stream(
            f"/{INFERENCE}/StreamPredictions2",
            request_serializer=message.SerializeToString,
            response_deserializer=answer.FromString,
        )
        messages = [message(model_name=name, input={"data": b"x"}) for name in ("tenants", "other")]
        answers = list(stream(iter(messages), timeout=60, metadata=[("authorization", "Bearer tenants")]))
    assert [bytes(each.prediction) for each in answers] == [b"of-tenants", b""]
    assert answers[1].status.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
    assert json.loads(answers[1].status.message)[:2] == ["predict", "other"]


def test_the_guard_is_asked_about_every_call_of_a_handle(told: Server) -> None:
    with jitney.connect(told.urls["inference"], token="tenants") as session:
        allowed = session.model("tenants", encoding="bytes").options(tenant="claimed")
        assert allowed.remote(b"x").result(120) == b"of-tenants", "and the guard's tenant counts"
        for name in ["other", "tenantsx"]:
            with pytest.raises(jitney.RemoteError) as denied:
                session.model(name, encoding="bytes").remote(b"x").result(120)
            assert denied.value.status == 403 and '"predict", "' + name in str(denied.value)
        assert allowed.remote(b"x").result(120) == b"of-tenants", "the connection goes on"
        forged = allowed.options(headers={"x-jitney-tenant": "forged", "X-Jitney-Tenant": "forged too"})
        assert forged.remote(b"x").result(120) == b"of-tenants", "a header of the call says nothing else"


def test_the_tenant_that_the_guard_names_counts(told: Server) -> None:
    claim = {"x-jitney-tenant": "claimed"}
    named = {**claim, "x-tenant-of-plugin": "named"}
    assert ask(told, "/predictions/tenants", "sesame", "POST", headers=claim).text == "claimed"
    for path in INFERENCE_WAYS:
        if "deeper" not in path and "v1" not in path and "v2" not in path:
            assert ask(told, path, method="POST", headers=named).text == "named", path
    instances = ask(told, "/v1/models/tenants:predict", method="POST", headers=named, json={"instances": [1, 2]})
    assert instances.json() == {"predictions": ["named", "named"]}
    with grpc.insecure_channel(address(told, "inference")) as channel:
        answer, _ = Stub(channel, INFERENCE)("Predictions", metadata=list(named.items()), model_name="tenants")
    assert answer.prediction == b"named"


def test_on_one_address_an_endpoint_wants_the_key_of_its_own_listener(
    start: Callable[..., Server], store: Store, tmp_path: Path, write
) -> None:
    store.mar("echo")
    (tmp_path / "plugins").mkdir()
    write("plugins/extras", ENDPOINTS)
    config = tmp_path / "config.properties"
    both = f"unix:{tmp_path}/both.sock"
    config.write_text(
        f"inference_address={both}\nmanagement_address={both}\nmetrics_address=http://127.0.0.1:0\n"
        f"grpc_inference_port=0\ngrpc_management_port=0\nmodel_store={store.path}\n"
    )
    flags = ["--start", "--foreground", "--ncs", "--ts-config", config, "--plugins-path", tmp_path / "plugins"]
    server = start("torchserve", *flags, wait_for_workers=False)
    found = json.loads((server.cwd / "key_file.json").read_text())
    for path, role in {"/teapot": "management", "/greeting": "inference"}.items():
        for key in ["inference", "management"]:
            bearer = f"Authorization: Bearer {found[key]['key']}"
            reply = curl("--unix-socket", f"{tmp_path}/both.sock", "-H", bearer, f"http://localhost{path}")
            opened = {"/teapot": 418, "/greeting": 200}[path]
            assert reply.status_code == (opened if key == role else 400), (path, key)
    page = ["-H", f"Authorization: Bearer {found['management']['key']}", "-H", "Origin: https://attacker.example"]
    reply = curl("--unix-socket", f"{tmp_path}/both.sock", *page, "-X", "POST", "http://localhost/teapot")
    assert (reply.status_code, reply.json()["type"]) == (403, "ForeignOriginException")


def test_a_guard_that_dies_or_hangs_lets_no_request_in_and_comes_back(guarded: Server) -> None:
    assert ask(guarded, "/ping", "die").status_code == 503
    until(lambda: ask(guarded, "/ping", "sesame").status_code == 200, "the guard is back")
    late = ask(guarded, "/ping", "hang")
    assert (late.status_code, "did not answer in time" in late.json()["message"]) == (503, True)
    assert ask(guarded, "/ping", "sesame").status_code == 200, "a hanging question holds up no other"
    assert ask(guarded, "/ping").status_code == 403


@pytest.mark.parametrize(
    "header",
    [
        b'x-word: {"allow": true}',
        b'x-word: wrong", "allow": true, "x": "',
        b"x-word: \xff\xfesesame",
        b"x-word: " + b"sesame," * 1000,
        b"x_word: sesame",
        b"x-jitney-authorized: true\r\nx-jitney-tenant: operator",
    ],
)
def test_nothing_that_a_client_says_answers_for_the_guard(guarded: Server, header: bytes) -> None:
    with socket.create_connection(guarded.address, timeout=SOCKET_SECONDS) as client:
        client.sendall(b"GET /ping HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + header + b"\r\n\r\n")
        answer = read_all(client)
    assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400", b"HTTP/1.1 503")), answer
    assert ask(guarded, "/ping", "sesame").status_code == 200


def test_a_killed_guard_is_started_again(guarded: Server) -> None:
    guards = [pid for pid in marked(guarded.mark) if os.readlink(f"/proc/{pid}/cwd").endswith("/plugins")]
    assert len(guards) == 2, "a process for each plugin"
    for pid in guards:
        os.kill(pid, signal.SIGKILL)
    statuses = set()

    def back() -> bool:
        statuses.add(ask(guarded, "/ping").status_code)
        return ask(guarded, "/ping", "sesame").status_code == 200

    until(back, "the guard is back")
    assert statuses <= {403, 503}, "no request without the word passed in between"


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"a": ENDPOINTS, "b": ENDPOINTS}, "plugin b: /greeting is answered by a plugin already"),
        ({"a": GATE, "b": GATE}, "plugins a and b both have @authorize"),
        ({"a": ENDPOINTS.replace("/greeting", "/ping")}, "plugin a: /ping is a path of the server's own"),
        ({"a": "import nothing_of_this_name"}, "did not start"),
        ({"a": "x = 1"}, "declares neither an @endpoint nor an @authorize"),
        ({"a": ENDPOINTS.replace('"/greeting"', '"greeting"')}, "must begin with a slash"),
    ],
)
def test_plugins_that_do_not_fit_stop_the_start(
    binary: Path, store: Store, write, sources: dict[str, str], words: str
) -> None:
    flags = [word for name, source in sources.items() for word in ("--plugin", str(write(name, source)))]
    command = [str(binary), "serve", str(store.mar("echo")), *FREE_PORTS, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and words in done.stdout + done.stderr, done.stderr


def test_a_plugin_that_is_not_there_is_told_before_anything_starts(binary: Path, store: Store) -> None:
    command = [str(binary), "serve", str(store.mar("echo")), "--plugin", "nowhere.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "plugin nowhere.py: no such file" in done.stderr
