"""BentoML's surface, without a server: what its decorators make of applications, and what it refuses."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from pydantic import BaseModel, Field

from jitney import testing
from jitney.call.errors import WrongLength, status_of
from jitney.call.request import Request
from jitney.compat import bentoml
from jitney.compat.bentoml import configuration
from jitney.definition.application import graph
from jitney.packing.pack import http_paths, pack

APPLICATIONS = Path(__file__).parents[2] / "tests" / "compat" / "bentoml"


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("JITNEY_BENTOML_HOME", str(tmp_path / "store"))
    for name in configuration.VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def application(tmp_path, monkeypatch):
    """An application of tests/compat/bentoml with its import line changed."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(name):
        text = (APPLICATIONS / f"{name}.py").read_text()
        (tmp_path / f"{name}.py").write_text(text.replace("import bentoml\n", "from jitney.compat import bentoml\n", 1))
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(__import__("sys").modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


class Query(BaseModel):
    words: list[str]
    limit: int = 2


class Petals:
    """Stands for a classifier of scikit-learn's, whose import takes longer than all of these tests."""

    def predict(self, rows):
        return (np.asarray(rows)[:, 2] > 2.5) * 2


def wire(module, endpoint, body, **query):
    with testing.load(module) as model:
        return model.post(body, endpoint=endpoint, **query)


# Services


def test_an_api_is_an_endpoint_with_its_path(application):
    service = application("summarization").Summarization
    definition = graph(service).root.definition
    routes = {one.name: one.options.route for one in definition.endpoints}
    assert routes.pop("bentoml_schema") == "GET /schema.json"  # For BentoML's own clients.
    assert routes == {"summarize": "POST /summarize", "keywords": "POST /v1/keywords", "status": "POST /status"}
    assert definition.name == "Summarization"
    assert definition.options.response_timeout_s == 30
    assert definition.options.health_routes["/livez"] == "live"
    answer = wire(service, "summarize", {"text": "One cat. A cat and a cat. Nothing."})
    assert (answer.status, answer.body) == (200, b"A cat and a cat.")
    assert b"old town" in wire(service, "summarize", {}).body


def test_objects_of_a_service_are_made_as_of_any_class(application):
    module = application("summarization")
    assert module.Summarization().summarize("One. Two cats, two. Three.") == "Two cats, two."


def test_rows_of_all_callers_are_joined_and_the_answer_is_cut(application):
    service = application("embeddings").SentenceEmbedding
    with testing.load(service) as model:
        one, two = model.batch([{"sentences": ["a", "b", "c"]}, {"sentences": ["c"]}], endpoint="encode")
        assert one.shape == (3, 16) and two.shape == (1, 16)
        assert (one[2] == two[0]).all()
        assert model.sizes == [4]
        assert model.call(endpoint="count") == 1
        lone = model.post({"entries": [{"text": "abc"}, {"text": "ab", "weight": 2}]}, endpoint="weigh")
        assert json.loads(lone.body) == [3.0, 4.0]
        left, right = model.batch([{"table": np.ones((2, 3))}, {"table": np.ones((2, 1))}], endpoint="column_sums")
        assert left.tolist() == [[2.0, 2.0, 2.0]] and right.tolist() == [[2.0]]


def test_more_rows_than_a_batch_holds_run_in_several_calls():
    @bentoml.service
    class Long:
        @bentoml.api(batchable=True, max_batch_size=4)
        def sizes(self, texts: list[str]) -> list[int]:
            return [len(texts)] * len(texts)

        @bentoml.api(batchable=True)
        def short(self, texts: list[str]) -> list[int]:
            return [1]

    with testing.load(Long) as model:
        assert model.call(endpoint="sizes", texts=["a"] * 6) == [4, 4, 4, 4, 2, 2]
        with pytest.raises(WrongLength):
            model.call(endpoint="short", texts=["a", "b"])


def test_parameters_are_read_as_bentoml_reads_them():
    @bentoml.service(threads=2)
    class Reader:
        @bentoml.api
        def root(self, query: Query, /) -> list[str]:
            return query.words[: query.limit]

        @bentoml.api
        def checked(self, number: int = Field(default=3, ge=1)) -> int:
            return number

        @bentoml.api
        def shaped(
            self,
            array: Annotated[np.ndarray, bentoml.validators.DType("float32"), bentoml.validators.Shape((-1, 2))],
        ) -> str:
            return f"{array.dtype}{array.shape}"

        @bentoml.api
        def file(self, document: Path, ctx: bentoml.Context) -> Path:
            assert document.read_text() == "hello"
            target = Path(ctx.temp_dir) / "answer.csv"
            target.write_text("a,b\n")
            return target

    assert json.loads(wire(Reader, "root", {"words": ["a", "b", "c"]}).body) == ["a", "b"]
    assert wire(Reader, "checked", {}).body == b"3"
    assert wire(Reader, "checked", {"number": 0}).status == 400
    assert wire(Reader, "shaped", {"array": [[1, 2]]}).body == b"float32(1, 2)"
    assert wire(Reader, "shaped", {"array": [1, 2]}).status == 400
    request = Request()
    with testing.load(Reader) as model:
        assert model.batch([{"document": b"hello"}], endpoint="file", requests=[request]) == [b"a,b\n"]
    assert request.response_headers["Content-Disposition"] == 'attachment; filename="answer.csv"'


def test_context_and_errors_reach_the_client(application):
    service = application("summarization").Summarization
    request = Request(headers={"x-name": "Ann"})
    with testing.load(service) as model:
        assert model.batch([{}], endpoint="status", requests=[request]) == [{"started": True}]
    assert (request.status, request.response_headers["X-Asked-By"]) == (202, "Ann")

    class Teapot(bentoml.exceptions.BentoMLException):
        error_code = HTTPStatus.IM_A_TEAPOT

    assert status_of(Teapot("short and stout")) == 418
    assert status_of(bentoml.exceptions.InvalidArgument("no")) == 400


def test_streams_are_streams(application):
    service = application("streaming").Writer
    with testing.load(service) as model:
        assert model.stream([{"limit": 2}], endpoint="count") == [["0\n", "1\n"]]
        assert model.stream([{"prompt": "a b", "max_tokens": 3}], endpoint="generate") == [["a ", "b ", "a "]]


def test_services_depend_on_services(application):
    module = application("pipeline")
    parts = graph(module.Pipeline)
    assert [part.name for part in parts.parts] == ["Tokenizer", "Scorer", "Judge", "Pipeline"]
    assert parts.part("Scorer").definition.options.workers == 2
    assert all(one.options.route is None for one in parts.part("Scorer").definition.endpoints)
    with testing.load(module.Pipeline) as model:
        assert json.loads(model.post({"texts": ["good", "bad"]}, endpoint="compare").body) == [1.0, 0.0]
        assert json.loads(model.post({"table": [[3, 4]]}, endpoint="norms").body) == [5.0]
        assert model.stream([{"text": "a b"}], endpoint="stream") == [["A;", "B;"]]
        assert json.loads(model.post({"text": "good"}, endpoint="classify").body) == {"label": "positive", "score": 1.0}
    verdict = asyncio.run(module.Pipeline().classify("a good day"))
    assert (verdict.label, verdict.score) == ("positive", 1 / 3)
    assert asyncio.run(module.Pipeline().compare(["good", "bad"])) == [1.0, 0.0]


def test_hooks_run_in_their_time(tmp_path, monkeypatch):
    seen = []

    @bentoml.service
    class Hooked:
        @bentoml.on_deployment
        @staticmethod
        def deploy():
            seen.append("deployment")

        @bentoml.on_startup
        async def start(self):
            seen.append("startup")

        @bentoml.on_shutdown
        def stop(self):
            seen.append("shutdown")

        @bentoml.api
        def hello(self) -> str:
            return "hello"

    pack(graph(Hooked), "hooked.py:Hooked", str(tmp_path), tmp_path / "out")
    assert seen == ["deployment"]
    with testing.load(Hooked) as model:
        assert model.call(endpoint="hello") == "hello"
    assert seen == ["deployment", "startup", "shutdown"]


def test_the_configuration_file_wins_over_the_code(tmp_path, monkeypatch):
    (tmp_path / "configuration.yml").write_text(
        """
services:
  traffic: {timeout: 7}
  Fast:
    workers: 3
    batching: {max_batch_size: 8, max_latency_ms: 50}
runners:
  batching: {max_latency_ms: 9}
  slow:
    batching: {enabled: false}
"""
    )
    monkeypatch.setenv("BENTOML_CONFIG", str(tmp_path / "configuration.yml"))

    @bentoml.service(name="Fast", workers=1)
    class Named:
        @bentoml.api(batchable=True, max_batch_size=99)
        def predict(self, xs: list[int]) -> list[int]:
            return xs

    definition = graph(Named).root.definition
    assert (definition.options.workers, definition.options.response_timeout_s) == (3, 7)
    assert (definition.endpoints[0].max_batch_size, definition.endpoints[0].options.max_latency_ms) == (8, 50)

    class Slow(bentoml.Runnable):
        @bentoml.Runnable.method(batchable=True)
        def predict(self, xs):
            return xs

    endpoint = bentoml.Runner(Slow).part().definition.endpoints[0]
    assert (endpoint.max_batch_size, endpoint.options.max_latency_ms) == (1, 9)
    with pytest.raises(bentoml.exceptions.BentoMLException, match="did you mean traffic"):
        bentoml.service(trafic={})(Named.inner)


def test_arguments_of_a_template_come_from_the_environment(monkeypatch):
    assert not vars(bentoml.use_arguments())
    monkeypatch.setenv("JITNEY_BENTOML_ARGS", '{"words": ["a"], "limit": 5}')
    assert bentoml.use_arguments(Query) == Query(words=["a"], limit=5)
    assert bentoml.use_arguments().limit == 5


def test_settings_of_a_service_reach_the_server():
    with pytest.warns(UserWarning, match="image"):

        @bentoml.service(
            name="Elsewhere",
            workers="cpu_count",
            threads=3,
            path_prefix="/v3",
            traffic={"max_concurrency": 7},
            image="python:3.11",
        )
        class Named:
            other = bentoml.depends(url="http://127.0.0.1:1")

            @bentoml.api(route="ask")
            def call_it(self, text: str) -> str:
                return self.other.call_it(text=text)

    application = graph(Named)
    (part,) = application.parts
    endpoint = part.definition.endpoint("call_it")
    assert (part.name, endpoint.options.route, endpoint.concurrency) == ("Elsewhere", "POST /v3/ask", 3)
    assert (part.definition.options.workers, part.definition.options.queue) == (os.cpu_count(), 7)
    with testing.load(Named) as model, pytest.raises(bentoml.exceptions.ServiceUnavailable, match="does not answer"):
        model.call(endpoint="call_it", text="hello")


def test_batch_sizes_have_bentomls_name(application):
    endpoint = graph(application("embeddings").SentenceEmbedding).root.definition.endpoint("encode")
    ((name, labels),) = endpoint.options.metric_names
    assert name == "bentoml_service_adaptive_batch_size"
    assert (labels["service_name"], labels["method_name"]) == ("SentenceEmbedding", "encode")

    class Old(bentoml.Runnable):
        @bentoml.Runnable.method(batchable=True)
        def predict(self, xs):
            return xs

    names = [name for name, _ in bentoml.Runner(Old, name="iris").part().definition.endpoints[0].options.metric_names]
    assert names == ["bentoml_runner_adaptive_batch_size", "BENTOML_iris_predict_adaptive_batch_size"]


def test_clients_of_bentoml_are_told_what_there_is(application):
    described = json.loads(wire(application("embeddings").SentenceEmbedding, "bentoml_schema", {}).body)
    routes = {one["name"]: one for one in described["routes"]}
    assert routes["encode"]["input"]["properties"]["sentences"]["items"] == {"type": "string"}
    assert routes["encode"]["output"] == {"type": "tensor", "format": "numpy-array"}
    assert routes["column_sums"]["batchable"] and routes["count"]["input"]["properties"] == {}


# Runners, and the services of BentoML 1.0


def test_a_runner_takes_rows_of_any_kind():
    class Doubler(bentoml.Runnable):
        @bentoml.Runnable.method(batchable=True)
        def double(self, values):
            return values * 2 if hasattr(values, "shape") else [value * 2 for value in values]

        @bentoml.Runnable.method(batchable=True)
        def keys(self, **batch):
            return sum(batch.values())

        @bentoml.Runnable.method
        def plain(self, value, times=3):
            return value * times

    runner = bentoml.Runner(Doubler, name="Doubler")
    assert runner.name == "doubler"
    with testing.load(runner.part()) as model:
        assert model.sizes == []
        one, two = model.batch([{"values": np.arange(2)}, {"values": np.arange(3)}], endpoint="double")
        assert one.tolist() == [0, 2] and two.tolist() == [0, 2, 4]
        assert model.call(endpoint="plain", value="a") == "aaa"
        joined = model.batch([{"a": np.array([1, 2]), "b": np.array([3, 4])}, {"a": np.array([5]), "b": np.array([6])}],
                             endpoint="keys")  # fmt: skip
        assert [one.tolist() for one in joined] == [[4, 6], [11]]
        assert model.sizes == [5, 1, 3]
    runner.init_local()
    assert runner.double.run([1, 2]) == [2, 4]
    assert asyncio.run(runner.plain.async_run("b", times=2)) == "bb"
    with pytest.raises(bentoml.exceptions.StateException, match="init_local"):
        bentoml.Runner(Doubler).double.run([1])


def test_a_saved_onnx_model_has_a_method_that_is_called_run():
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", [x], [y])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    rows = np.arange(12, dtype="float32").reshape(4, 3)
    bentoml.onnx.save_model("double", model, signatures={"run": {"batchable": True}})
    runner = bentoml.onnx.get("double").to_runner()
    runner.init_local()
    assert runner.run.run(rows).tolist() == runner.run(rows).tolist() == (rows * 2).tolist()
    with testing.load(runner.part()) as model:
        one, two = model.batch([{"x": rows[:1]}, {"x": rows[1:]}], endpoint="run")
        assert (one.shape, two.tolist()) == ((1, 3), (rows[1:] * 2).tolist())


def test_a_service_of_functions_has_its_runners_as_parts(application):
    bentoml.sklearn.save_model("iris_clf", Petals(), signatures={"predict": {"batchable": True, "batch_dim": 0}})
    module = application("iris_service")
    parts = graph(module.svc)
    assert [part.name for part in parts.parts] == ["iris_clf", "iris_classifier"]
    assert parts.part("iris_clf").definition.endpoints[0].batched
    routes = {one.name: one.options.route for one in parts.root.definition.endpoints}
    assert routes["classify_named"] == "POST /named/classify" and routes["classify"] == "POST /classify"
    with testing.load(parts.part("iris_clf").bound) as model:
        assert model.call(endpoint="predict", x=np.array([[5.1, 3.5, 1.4, 0.2]])).tolist() == [0]
    with testing.load(module.svc) as model:
        assert model.post([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]], endpoint="classify").body == b"[0,2]"
        one = {"sepal": [5.1, 3.5], "petal": [1.4, 0.2]}
        assert json.loads(model.post({"flowers": [one]}, endpoint="classify_named").body) == {"classes": [0]}
        assert json.loads(model.post(one, endpoint="classify_one").body) == {"class": 0}
        assert model.post({"sepal": []}, endpoint="classify_one").status == 400
        assert model.post(b"hello", endpoint="shout").body == b"HELLO!"


def test_input_and_output_are_described():
    from jitney.compat.bentoml.io import Posted

    form = bentoml.io.Multipart(note=bentoml.io.Text(), numbers=bentoml.io.JSON(), data=bentoml.io.File())
    posted = Posted({"note": b"hi", "numbers": b"[1, 2]", "data": b"xyz"}, Request())
    read = form.read(posted)
    assert (read["note"], read["numbers"], read["data"].read()) == ("hi", [1, 2], b"xyz")
    array = bentoml.io.NumpyNdarray(dtype="float32", shape=(-1, 2), enforce_shape=True)
    assert array.read(Posted({"body": [[1, 2]]}, Request())).dtype == np.float32
    with pytest.raises(bentoml.exceptions.BadInput, match="shape"):
        array.read(Posted({"body": [1]}, Request()))
    request = Request()
    assert array.write(np.array([1.5]), request) == b"[1.5]"
    assert request.response_headers["Content-Type"] == "application/json"
    frame = bentoml.io.PandasDataFrame()
    assert frame.read(Posted({"body": [{"a": 1}, {"a": 2}]}, Request())).a.tolist() == [1, 2]


# The store


def test_models_are_kept_under_tags():
    first = bentoml.picklable_model.save_model("Adder:v1", {"by": 1}, labels={"a": "b"})
    second = bentoml.picklable_model.save_model("adder", {"by": 2}, signatures={"get": {"batchable": True}})
    assert str(first.tag) == "adder:v1" and second.tag.version != "v1"
    assert bentoml.picklable_model.load_model("adder:latest") == {"by": 2}
    assert bentoml.picklable_model.load_model("adder:v1") == {"by": 1}
    assert bentoml.models.get("adder").tag == second.tag
    assert bentoml.models.get("adder:v1").info.labels == {"a": "b"}
    assert {str(one.tag) for one in bentoml.models.list()} == {"adder:v1", str(second.tag)}
    bentoml.models.delete(second.tag)
    assert str(bentoml.models.get("adder").tag) == "adder:v1"
    with pytest.raises(bentoml.exceptions.NotFound, match=r"models\.list"):
        bentoml.models.get("nothing")
    with pytest.raises(bentoml.exceptions.InvalidArgument, match="picklable_model"):
        bentoml.sklearn.load_model("adder")
    with pytest.raises(bentoml.exceptions.InvalidArgument, match="already"):
        bentoml.picklable_model.save_model("adder:v1", {})
    with pytest.raises(bentoml.exceptions.InvalidArgument, match="batch_dims"):
        bentoml.picklable_model.save_model("adder", {}, signatures={"get": {"batch_dims": 0}})


# What is not there


def test_models_are_attributes_of_a_service(tmp_path, monkeypatch):
    with bentoml.models.create("tea", labels={"kind": "leaf"}) as made:
        Path(made.path, "leaf.txt").write_text("green")
    folder = tmp_path / "org" / "model"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    @bentoml.service
    class Tea:
        stored = bentoml.models.BentoModel("tea:latest")
        folder = bentoml.models.HuggingFaceModel("org/model")

        @bentoml.api
        def where(self) -> list[str]:
            return [Path(self.stored.path_of("leaf.txt")).read_text(), self.folder]

    assert Tea.stored.tag == bentoml.Tag("tea", "latest") and Tea.stored.stored.labels == {"kind": "leaf"}
    with testing.load(Tea) as model:
        assert model.call(endpoint="where") == ["green", str(folder)]


def test_a_model_that_is_no_folder_comes_from_the_hub(monkeypatch):
    asked = []

    class Hub:
        @staticmethod
        def snapshot_download(name, **options):
            asked.append((name, options["revision"], options["allow_patterns"]))
            return "/cache/model"

    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub)
    assert bentoml.models.HuggingFaceModel("org/other", "v1", include=["*.json"]).resolve() == "/cache/model"
    assert asked == [("org/other", "v1", ["*.json"])]
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(bentoml.exceptions.MissingDependencyException, match="pip install huggingface_hub"):
        bentoml.models.HuggingFaceModel("org/other").resolve()


def test_what_has_no_effect_can_be_written_and_warns():
    image = bentoml.images.Image(python_version="3.11").python_packages("torch").run("true")
    with pytest.warns(UserWarning, match="image"):
        bentoml.service(image=image)(type("Empty", (), {}))


def test_a_task_has_paths_below_its_route_and_answers_calls_as_well():
    @bentoml.service
    class Tasks:
        @bentoml.task
        def long(self, x: int) -> int:
            return x + 1

    assert wire(Tasks, "long", {"x": 1}).body == b"2"
    routes = http_paths(graph(Tasks).root.definition)["routes"]
    found = {one["path"]: (one["methods"], one.get("answers")) for one in routes}
    assert found["/long"] == (["POST"], None)
    assert found["/long/submit"] == (["POST"], "submit")
    assert found["/long/cancel"] == (["PUT"], "cancel")


def test_a_service_is_an_asgi_application_for_tests(application):
    service = application("beside").Behind

    async def ask(headers, body):
        sent, received = [], [{"type": "http.request", "body": body}]
        scope = {"type": "http", "method": "POST", "path": "/shout", "headers": headers, "query_string": b""}

        async def receive():
            return received.pop()

        async def send(message):
            sent.append(message)

        await service.to_asgi()(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]

    assert asyncio.run(ask([(b"x-word", b"please")], b'{"text": "hey"}')) == (200, b"HEY")
    assert asyncio.run(ask([(b"x-word", b"please")], b'{"text": '))[0] == 400
    assert asyncio.run(ask([], b'{"text": "hey"}')) == (403, b"no")


def test_a_service_without_an_api_serves_what_is_mounted():
    async def web(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    @bentoml.service
    @bentoml.asgi_app(web, path="/v1")
    class Only:
        pass

    async def ask(path):
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request", "body": b""}

        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
        await Only.to_asgi()(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]

    status, path = asyncio.run(ask("/v1/hello"))
    assert status == 200 and path.endswith(b"/hello")
    assert asyncio.run(ask("/v2"))[0] == 404


@pytest.mark.parametrize(
    ("use", "instead"),
    [
        (lambda: bentoml.build("service:svc"), "image of your own"),
        (lambda: bentoml.xgboost.save_model("a", None), "picklable_model"),
        (lambda: bentoml.depends(deployment="other"), "url="),
    ],
)
def test_what_is_missing_says_what_to_do(use, instead):
    with pytest.raises(bentoml.exceptions.NotSupported, match=instead):
        use()


def test_what_bentoml_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = bentoml.nonsense
    with pytest.raises(bentoml.exceptions.BentoMLException, match="takes one parameter"):
        bentoml.service(type("Two", (), {"go": bentoml.api(batchable=True)(lambda self, a, b: a)})).apis  # noqa: B018
        graph(bentoml.service(type("Two", (), {"go": bentoml.api(batchable=True)(lambda self, a, b: a)})))
