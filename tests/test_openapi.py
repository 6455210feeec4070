"""The API description: every model is in it with its real inputs, and servers keep what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from openapi_models import MODELS
from test_cli import pasted, try_line
from test_repository import adder

APP = '''
import jitney
import numpy as np


@jitney.batch(max_batch_size=8)
def shout(text: list[str]) -> list[str]:
    """Makes it loud."""
    return [one.upper() for one in text]


class Pairs:
    @jitney.batch(max_batch_size=8)
    def mean(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return (ids * mask).mean(axis=1)
'''


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("openapi")
    (home / "app.py").write_text(APP)
    store = Store(home / "store")
    adder(store.path / "add.onnx", 1)
    store.mar("echo")
    server = Server(binary, home / "server", ["serve", store.path, "app:shout"], store=store, cwd=home)
    yield server.started()
    server.end()


def document(server: Server) -> dict:
    return requests.get(server.url("/openapi.json"), timeout=ASK_SECONDS).json()


def test_every_model_is_listed_with_its_inputs(server: Server) -> None:
    paths = document(server)["paths"]
    assert {"/add", "/v2/models/add/infer", "/predictions/echo", "/shout"} <= paths.keys()
    body = paths["/add"]["post"]["requestBody"]["content"]["application/json"]
    assert body["example"] == {"x": [[0.5, 0.5]]}
    row = body["schema"]["properties"]["x"]["items"]
    assert (row["minItems"], row["maxItems"], row["items"]["type"]) == (2, 2, "number")
    for path, item in paths.items():
        for method, operation in item.items():
            example = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
            if example is not None:
                answer = requests.request(method, server.url(path), json=example, timeout=ASK_SECONDS)
                assert answer.status_code == 200, (path, answer.text)


def test_a_description_of_an_onnx_model_tells_its_tensors(server: Server) -> None:
    described = server.manage("GET", "/models/add", customized="true").json()[0]["customizedMetadata"]
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert described["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]


def test_what_a_definition_refuses_has_the_type_of_its_status(server: Server) -> None:
    answer = requests.post(server.url("/shout"), json={"txt": "a"}, timeout=ASK_SECONDS)
    assert (answer.status_code, answer.json()["type"]) == (400, "BadRequestException")
    with jitney.Client(server.urls["inference"]) as client, pytest.raises(jitney.BadInput):
        client.predict("add", {"x": "no number"})


@pytest.mark.parametrize("model", ["add.onnx", "large.onnx", "app:shout", "app:Pairs"])
def test_the_line_that_is_printed_works(start: Callable[..., Server], tmp_path: Path, model: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    adder(tmp_path / "add.onnx", 1)
    adder(tmp_path / "large.onnx", 1, 500)
    server = start("serve", model, cwd=tmp_path)
    name = model.partition(":")[2] or model.partition(".")[0]
    before = server.metric("jitney_requests_answered_total", name)
    assert '"code"' not in pasted(try_line(server.stdout).replace("curl ", "curl --fail-with-body -sS "), tmp_path)
    assert server.metric("jitney_requests_answered_total", name) == before + 1


HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ten(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one definition of each kind."""
    models = [f"openapi_models.py:{name}" for name in MODELS]
    server = Server(binary, tmp_path_factory.mktemp("ten") / "server", ["serve", *models], cwd=HERE)
    yield server.started()
    server.end()


def operations(server: Server) -> dict[str, dict]:
    """The operations by their ids."""
    items = document(server)["paths"].values()
    return {one["operationId"]: one for item in items for one in item.values()}


@pytest.mark.heavy
def test_the_document_of_ten_definitions_is_valid(ten: Server) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(document(ten), cls=validator.OpenAPIV31SpecValidator)


def test_every_operation_is_there_once_and_belongs_to_its_model(ten: Server) -> None:
    told = document(ten)
    ids = [one["operationId"] for item in told["paths"].values() for one in item.values()]
    assert len(ids) == len(set(ids))
    own = {one["tags"][0] for one in operations(ten).values()} - {
        f"{name} (Open Inference Protocol)" for name in MODELS
    }
    assert own == set(MODELS) and {tag["name"] for tag in told["tags"]} >= own
    assert {"/talk/answers", "/talk/names", "/Boxes/area", "/shout"} <= told["paths"].keys()
    assert [item.keys() for path, item in told["paths"].items() if path == "/talk/names"] == [{"get"}]


def test_classes_stand_among_the_components_under_names_of_their_own(ten: Server) -> None:
    schemas = document(ten)["components"]["schemas"]
    assert {"Box", "Size", "Tree", "Other_Box", "Error"} <= schemas.keys()
    assert schemas["Box"]["properties"]["inside"]["items"] == {"$ref": "#/components/schemas/Box"}
    assert "corners" in schemas["Other_Box"]["properties"]
    assert {"requestId", "errors"} <= schemas["Error"]["properties"].keys()


def test_streams_are_described_as_what_is_sent(ten: Server) -> None:
    told = operations(ten)
    assert set(told["Streams_words"]["responses"]["200"]["content"]) == {"text/plain", "text/event-stream"}
    for accept in ("*/*", "text/event-stream"):
        reply = requests.post(
            ten.url("/Streams/words"), json={"text": "a b"}, headers={"Accept": accept}, timeout=ASK_SECONDS
        )
        assert reply.headers["content-type"].partition(";")[0] in told["Streams_words"]["responses"]["200"]["content"]


@pytest.fixture
def openapi_file(ten: Server, tmp_path: Path) -> Path:
    (tmp_path / "openapi.json").write_text(json.dumps(document(ten)))
    return tmp_path / "openapi.json"


def tool(name: str) -> str:
    """A program of the environment `make .venv/openapi` makes; JITNEY_OPENAPI_TOOLS names its folders."""
    folders = os.environ.get("JITNEY_OPENAPI_TOOLS", os.environ["PATH"])
    return shutil.which(name, path=folders) or pytest.skip(f"{name} is not installed: make test-openapi installs it")


def ran(*command: object, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    return done.stdout


@pytest.mark.heavy
def test_openapi_typescript_makes_types_that_compile(openapi_file: Path) -> None:
    home = openapi_file.parent
    ran(tool("openapi-typescript"), openapi_file, "-o", home / "api.d.ts", cwd=home)
    (home / "use.ts").write_text(
        'import type { components, paths } from "./api";\n'
        'type Box = components["schemas"]["Box"];\n'
        'const box: Box = { name: "", size: { width: 1, height: 2 }, inside: [], colour: "red" };\n'
        'type Sent = paths["/Boxes/area"]["post"]["requestBody"]["content"]["application/json"];\n'
        'const fields: components["schemas"]["Error"]["errors"] = [{ field: "box", message: "" }];\n'
        "export const sent: Sent = { box }; export { fields };\n"
    )
    ran(tool("tsc"), "--strict", "--noEmit", "--skipLibCheck", "false", "use.ts", cwd=home)


@pytest.mark.heavy
@pytest.mark.parametrize("language", ["python", "java"])
def test_openapi_generator_makes_a_client(openapi_file: Path, language: str) -> None:
    if shutil.which("java") is None:
        pytest.skip("openapi-generator needs java")
    home = openapi_file.parent
    out = home / language
    ran(tool("openapi-generator-cli"), "generate", "-i", openapi_file, "-g", language, "-o", out, cwd=home)
    made = "".join(file.read_text() for file in out.rglob("*[bB]ox.*") if file.suffix in (".py", ".java"))
    assert "inside" in made and "corners" in made
    if language == "python":
        ran(sys.executable, "-m", "compileall", "-q", out, cwd=home)


@pytest.mark.heavy
@pytest.mark.parametrize("served", ["server", "ten"])
def test_schemathesis_finds_nothing(served: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: Server = request.getfixturevalue(served)
    (tmp_path / "openapi.json").write_text(json.dumps(document(server)))
    flags = [
        "--url",
        server.urls["inference"],
        "--max-examples",
        "20",
        "--seed",
        "1",
        "--phases",
        "examples,coverage,fuzzing",
    ]
    # Paths take PUT and GET too, as TorchServe's do: an operation is described once.
    checks = ["--checks", "all", "--exclude-checks", "unsupported_method,allow_header_conformance"]
    if served == "ten":
        # Pieces of a stream are documents one after the other; the shape of an array is not told, nor that a text in
        # a tensor is JSON.
        checks += ["--exclude-path-regex", "^/v2/|^/Streams/rows|^/Pairs"]
    ran(tool("schemathesis"), "run", "openapi.json", *flags, *checks, cwd=tmp_path)
