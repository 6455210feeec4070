"""The way of a good request: archives in every form, inputs of every shape, versions, the management API by curl."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.client import curl, curl_all, raw, request
from harness.server import Server
from harness.shape import assert_problem

FORMS = ("mar", "tgz", "directory")


def test_archives_of_every_form_are_served_side_by_side(start, store: Store) -> None:
    server = start("serve", store.mar("zipped", "echo"), store.tgz("tarred", "echo"), store.directory("plain", "echo"))
    for model in ("zipped", "tarred", "plain"):
        assert server.predict(model, b"hello " + model.encode()).content == b"hello " + model.encode()


@pytest.mark.parametrize("form", FORMS)
def test_archives_of_every_form_are_registered_from_the_store(shared: Server, form: str) -> None:
    name = f"stored_{form}"
    shared.register(getattr(shared.store, form)(name, "echo"))
    assert shared.predict(name, b"x").content == b"x"
    assert shared.describe(name)["modelUrl"].startswith(name)


def test_a_model_can_be_given_another_name(start, store: Store) -> None:
    server = start("serve", f"parrot={store.mar('echo')}")
    assert server.predict("parrot", b"x").content == b"x"
    assert_problem(server.predict("echo", b"x"), 404, "ModelNotFoundException")


def test_module_level_functions_are_handlers(shared: Server) -> None:
    model = shared.need("plain_function", "function")
    assert shared.predict(model, b"hi").json() == {"call": 1, "body": "hi"}
    assert shared.predict(model, b"ho").json() == {"call": 2, "body": "ho"}


TWO_FUNCTIONS = """
def first(data, context):
    return data and ["first"] * len(data)

def second(data, context):
    return data and ["second"] * len(data)
"""

WITH_NEIGHBOUR = """
import neighbour

def handle(data, context):
    return data and [neighbour.WORD] * len(data)
"""


def test_the_manifest_may_name_the_function(shared: Server) -> None:
    shared.register(shared.store.mar("named_function", source=TWO_FUNCTIONS, entry="handler:second"))
    assert shared.predict("named_function", b"").content == b"second"


def test_handlers_may_import_the_files_beside_them(shared: Server) -> None:
    shared.register(
        shared.store.mar("with_neighbour", source=WITH_NEIGHBOUR, files={"neighbour.py": "WORD = 'beside'"})
    )
    assert shared.predict("with_neighbour", b"").content == b"beside"


# -- inputs ------------------------------------------------------------------------------------


def test_curl_uploads_a_file(shared: Server, tmp_path: Path) -> None:
    file = tmp_path / "kitten.jpg"
    file.write_bytes(bytes(range(256)) * 400)
    reply = curl("-T", file, shared.url("/predictions/echo"))
    assert (reply.status_code, reply.content) == (200, file.read_bytes())


def test_curl_uploads_several_files_over_one_connection(shared: Server, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"first")
    (tmp_path / "b.jpg").write_bytes(b"second")
    replies = curl_all("-T", "{a.jpg,b.jpg}", shared.url("/predictions/echo"), cwd=tmp_path)
    assert [(reply.status_code, reply.content) for reply in replies] == [(200, b"first"), (200, b"second")]


def test_multipart_forms_become_parameters(shared: Server, tmp_path: Path) -> None:
    model = shared.need("form", "form")
    file = tmp_path / "kitten.jpg"
    file.write_bytes(b"\xff\xd8picture")
    fields = ("-F", f"data=@{file}", "-F", "threshold=0.5", "-F", "options={};type=application/json")
    parameters = curl(*fields, shared.url(f"/predictions/{model}")).json()["parameters"]
    assert parameters["data"] == ["bytearray", 9]
    assert parameters["threshold"] == ["bytearray", 3]
    assert set(parameters) == {"data", "threshold", "options"}


def test_bodies_are_decoded_by_their_content_type(shared: Server) -> None:
    model = shared.need("decoded", "form")
    for content_type, body, expected in (
        ("application/json", b"[1, 2]", ["list", 2]),
        ("application/json; charset=utf-8", b"[1, 2]", ["list", 2]),
        ("application/json", b"[1, 2", ["bytearray", 5]),
        ("text/plain", b"text", ["str", 4]),
        ("application/octet-stream", b"\0\1", ["bytearray", 2]),
    ):
        reply = shared.predict(model, body, headers={"Content-Type": content_type})
        assert reply.json()["parameters"] == {"body": expected}, content_type


def test_a_body_of_several_megabytes_stays_whole(shared: Server) -> None:
    body = b"".join(number.to_bytes(4, "big") for number in range(1_500_000))
    assert shared.predict("echo", body).content == body


def test_expect_100_continue_is_honoured(shared: Server, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"z" * 2_000_000)
    reply = curl("-H", "Expect: 100-continue", "-T", file, shared.url("/predictions/echo"))
    assert (reply.status_code, len(reply.content)) == (200, 2_000_000)


def test_the_usual_methods_predict(shared: Server) -> None:
    for method in ("POST", "PUT", "GET"):
        reply = requests.request(method, shared.url("/predictions/echo"), data=b"any", timeout=120)
        assert reply.content == b"any", method


def test_explanations_carry_the_explain_flag(shared: Server) -> None:
    model = shared.need("explained", "form")
    for route, explain in (("predictions", "False"), ("explanations", "True")):
        reply = requests.post(shared.url(f"/{route}/{model}/1.0/more/path"), data=b"", timeout=120)
        assert reply.json()["headers"] == {"explain": explain, "url_path": "more/path"}


def test_a_handler_chooses_status_and_phrase(shared: Server) -> None:
    model = shared.need("statuses", "orders")
    reply = shared.predict(model, {"id": 7, "status": 418})
    assert (reply.status_code, reply.reason, reply.json()["id"]) == (418, "As told", 7)


def test_a_handlers_headers_reach_the_client_and_cannot_forge_the_answer(shared: Server) -> None:
    model = shared.need("headers", "orders")
    assert shared.predict(model, {"header": ["X-Mine", "mine"]}).headers["x-mine"] == "mine"
    for name, value in (
        ("X-A", "a\r\nX-Evil: 1"),
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("no name", "x"),
    ):
        reply = shared.predict(model, {"id": 1, "header": [name, value]})
        assert reply.json()["id"] == 1 and "x-evil" not in reply.headers, name


def test_a_status_that_ends_no_request_is_the_handlers_error(shared: Server) -> None:
    model = shared.need("odd_status", "orders")
    for status in (100, 42, 1000):
        assert shared.predict(model, {"status": status}).status_code in (500, 503), status
    assert shared.predict(model, {"id": 1}).json()["id"] == 1


def test_request_ids_are_unique_unless_the_client_brings_its_own(shared: Server) -> None:
    ids = {shared.predict("echo", b"").headers["x-request-id"] for _ in range(20)}
    assert len(ids) == 20 and {len(one) for one in ids} == {36}
    assert shared.predict("echo", b"", headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"


def test_names_beyond_ascii_are_found(shared: Server) -> None:
    shared.register(shared.store.mar("accented", "echo"), model_name="modèle")
    assert shared.predict("modèle", b"x").content == b"x"
    assert shared.predict("mod%C3%A8le", b"x").content == b"x"


def test_headers_that_are_no_text_reach_the_handler(shared: Server) -> None:
    answer = raw(shared.address, request("/predictions/echo", b"fine", "X-Bytes: \u00ff\u00fe", "Connection: close"))
    assert answer.endswith(b"fine")


# -- management --------------------------------------------------------------------------------


def test_versions_live_side_by_side_and_the_default_can_move(shared: Server) -> None:
    for version in ("1.0", "2.0"):
        shared.register(shared.store.mar("versioned", "form", version=version))

    def served(path: str) -> str:
        return curl("-d", "@/dev/null", shared.url(f"/predictions/{path}")).json()["batch"]

    assert (served("versioned"), served("versioned/1.0"), served("versioned/2.0")) == ("1.0", "1.0", "2.0")
    reply = curl("-X", "PUT", shared.url("/models/versioned/2.0/set-default", "management"))
    assert reply.json() == {"status": 'Default version successfully updated for model "versioned" to "2.0"'}
    assert served("versioned") == "2.0"
    kept = curl("-X", "DELETE", shared.url("/models/versioned/2.0", "management"))
    assert_problem(kept, 403, "InvalidModelVersionException", "Cannot remove default version for model versioned")
    assert curl("-X", "DELETE", shared.url("/models/versioned/1.0", "management")).status_code == 200
    assert_problem(curl(shared.url("/predictions/versioned/1.0")), 404, "ModelVersionNotFoundException")
    assert served("versioned") == "2.0"


def test_a_models_life_by_curl(shared: Server) -> None:
    archive = shared.store.mar("curled", "echo")
    models, model = shared.url("/models", "management"), shared.url("/models/curled", "management")
    registered = curl("-X", "POST", f"{models}?url={archive.name}&initial_workers=1&synchronous=true&batch_size=4")
    assert registered.json() == {"status": 'Model "curled" Version: 1.0 registered with 1 initial workers'}
    assert_problem(
        curl("-X", "POST", f"{models}?url={archive.name}"), 409, "ConflictStatusException", "already registered"
    )
    scaled = curl("-X", "PUT", f"{model}?min_worker=2&synchronous=true")
    assert scaled.json() == {"status": "Workers scaled to 2 for model: curled"}
    described = curl(model).json()[0]
    assert (described["batchSize"], described["minWorkers"], len(described["workers"])) == (4, 2, 2)
    assert {worker["status"] for worker in described["workers"]} == {"READY"}
    assert curl("-X", "DELETE", model).json() == {"status": 'Model "curled" unregistered'}
    assert_problem(curl(shared.url("/predictions/curled")), 404, "ModelNotFoundException", "Model not found: curled")


def test_a_model_without_workers_is_registered_and_rejects(shared: Server) -> None:
    archive = shared.store.mar("unstaffed", "echo")
    reply = shared.manage("POST", "/models", url=archive.name, initial_workers=0)
    assert "registered with 0 initial workers. Use scale workers API" in reply.json()["status"]
    words = 'Model "unstaffed" has no worker to serve inference request. Please use scale workers API'
    assert_problem(shared.predict("unstaffed", b""), 503, "ServiceUnavailableException", words)


def test_an_empty_name_counts_as_none(shared: Server) -> None:
    shared.register(shared.store.mar("unnamed", "echo"), model_name="")
    assert shared.predict("unnamed", b"x").content == b"x"


def test_batching_of_a_live_model_can_be_changed(shared: Server) -> None:
    model = shared.need("tunable", "orders")
    assert shared.predict(model, {}).headers["server-timing"].endswith('"1 of 1, full"')
    assert shared.manage("PUT", f"/models/{model}", batch_size=8, max_batch_delay=20).status_code == 200
    assert (shared.describe(model)["batchSize"], shared.describe(model)["maxBatchDelay"]) == (8, 20)
    assert shared.predict(model, {}).headers["server-timing"].endswith('"1 of 8, window"')


def test_models_are_listed_in_pages(shared: Server) -> None:
    names = [model["modelName"] for model in shared.manage("GET", "/models", limit=100).json()["models"]]
    assert names == sorted(names) and "echo" in names
    page = shared.manage("GET", "/models", limit=1).json()
    assert (len(page["models"]), page["nextPageToken"]) == (1, "1")


def test_ping_is_healthy_and_metrics_count(shared: Server) -> None:
    assert json.loads(curl(shared.url("/ping")).content) == {"status": "Healthy"}
    before = shared.metric("ts_inference_requests_total", "echo")
    shared.predict("echo", b"")
    assert shared.metric("ts_inference_requests_total", "echo") == before + 1
