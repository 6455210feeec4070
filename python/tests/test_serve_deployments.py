"""Ray Serve's deployments as definitions: options, methods, HTTP, configuration; no server."""

import asyncio
import dataclasses
import datetime
import logging
import os
import pathlib
import pickle
import threading

import pytest

from jitney.call.request import Request
from jitney.compat import ray, serve
from jitney.compat.serve import objects
from jitney.compat.serve.build import Routed, remarks, replica_class
from jitney.compat.serve.config import AutoscalingConfig
from jitney.compat.serve.context import ServeRequestContext, enter_request
from jitney.compat.serve.exceptions import RayServeException
from jitney.compat.serve.replica import FAILURES_MAX, RANKS, HealthCheck, take_rank
from jitney.compat.serve.web_request import WebRequest
from jitney.definition.application import graph
from jitney.definition.construction import make
from jitney.definition.multiplexed import models_kept
from jitney.execution.grouping import Item
from jitney.http.request import HttpRequest
from jitney.wire.values import decode, encode


@serve.deployment
class Down:
    def __call__(self, x):
        return x + 1


@dataclasses.dataclass
class Point:
    x: int
    y: int


@serve.deployment(num_replicas=3, max_ongoing_requests=7, max_queued_requests=9, ray_actor_options={"num_gpus": 1})
class Top:
    """The top."""

    def __init__(self, down, factor=1):
        self.down, self.factor = down, factor

    async def __call__(self, request):
        return {"factor": self.factor, "x": request.query_params["x"]}

    def join(self, first, /, *rest, mark="-", **others):
        return mark.join([first, *rest, *others])

    def move(self, point: Point):
        return point.x + point.y

    async def count(self, n: int):
        for at in range(n):
            yield at

    def _hidden(self):
        return None


def test_a_deployment_is_a_part_with_its_options_and_methods():
    application = graph(Top.bind(Down.bind(), factor=2))
    assert [part.name for part in application.parts] == ["Down", "Top"]
    definition = application.root.definition
    assert {one.name for one in definition.endpoints} == {"call", "join", "move", "count", "http"}
    options = definition.options
    assert (options.workers, options.queue, options.device, options.mount) == (3, 9, "gpu", "/")
    assert definition.concurrency == 7 and definition.doc == "The top."
    assert options.health_routes == {"/-/healthz": "ready"}
    down = application.parts[0].definition
    assert [one.name for one in down.endpoints] == ["call"] and down.options.mount is None


def test_equal_names_get_numbers_and_applications_their_prefix():
    routed = Routed(Top.bind([Down.bind(), Down.bind()]), "shop", "/shop")
    application = graph(routed)
    assert {part.name for part in application.parts} == {"shop.Down", "shop.Down_1", "shop.Top"}
    assert application.root.definition.options.mount == "/shop"
    shared = Down.bind()
    assert len(graph(Top.bind([shared, shared])).parts) == 2


def served(application):
    """The root's object with nothing behind its handles, and its endpoints by name."""
    definition = graph(application).root.definition
    return make(definition, lambda slot: f"handle of {slot}"), {one.name: one for one in definition.endpoints}


def call(replica, endpoint, headers=None, **arguments):
    function = getattr(replica, endpoint.attribute)
    return function(**arguments, jitney_request=Request("7", headers or {}))


def test_methods_get_their_arguments_as_python_has_them():
    replica, endpoints = served(Top.bind(Down.bind(), factor=2))
    asyncio.run(replica.setup())
    from jitney.execution.execution import Execution

    async def run(name, **arguments):
        execution = Execution(endpoints[name], [Item(arguments, Request("7", {}))])
        await execution.run_async(getattr(replica, endpoints[name].attribute))
        return execution.outcomes()[0]

    assert asyncio.run(run("join", first="a", rest_0="b", rest_1="c", mark="+", d=1)) == "a+b+c+d"
    assert asyncio.run(run("join", first="a")) == "a"
    assert asyncio.run(run("move", point=Point(1, 2))) == 3
    assert endpoints["move"].params[0].hint is Point and endpoints["count"].streams

    async def listed():
        return [piece async for piece in call(replica, endpoints["count"], n=3)]

    assert asyncio.run(listed()) == [0, 1, 2]


def answer_of(application, request):
    async def run():
        replica, _ = served(application)
        await replica.setup()
        try:
            response = await replica.answer(request)
            body = response.body
            if response.is_stream:
                body = b"".join([piece async for piece in body])
            return response.status, dict(response.headers), body
        finally:
            await replica.teardown()

    return asyncio.run(run())


def test_call_answers_http_and_a_failure_is_500_without_its_text():
    app = Top.bind(Down.bind())
    status, headers, body = answer_of(app, HttpRequest("GET", "/", query_string="x=5"))
    assert (status, headers["content-type"], body) == (200, "application/json", b'{"factor":1,"x":"5"}')
    assert answer_of(app, HttpRequest("GET", "/"))[::2] == (500, "Internal Server Error")


@pytest.mark.parametrize(
    ("value", "kind", "body"),
    [
        ("héllo", "text/plain; charset=utf-8", "héllo".encode()),
        (b"abc", "text/plain", b"abc"),
        (None, "text/plain", b""),
        ((1, 2), "application/json", b"[1,2]"),
        ({1}, "application/json", b"[1]"),
    ],
)
def test_plain_answers_have_ray_s_types(value, kind, body):
    @serve.deployment
    def fixed():
        return value

    status, headers, got = answer_of(fixed.bind(), HttpRequest("GET", "/"))
    assert (status, headers["content-type"], got) == (200, kind, body)


def test_generators_stream_over_http():
    @serve.deployment
    class Stream:
        async def __call__(self, request):
            for word in ("a", "b"):
                yield word

    assert answer_of(Stream.bind(), HttpRequest("GET", "/"))[2] == b"ab"


def test_a_batched_call_gets_requests_over_http():
    @serve.deployment
    class Whole:
        @serve.batch(max_batch_size=1)
        async def __call__(self, requests):
            return [request.query_params["x"] for request in requests]

    @serve.deployment
    class Pieces:
        @serve.batch(max_batch_size=1)
        async def __call__(self, requests):
            for at in range(2):
                yield [f"{request.query_params['x']}{at} " for request in requests]

    request = HttpRequest("GET", "/", query_string="x=a")
    assert answer_of(Whole.bind(), request)[2] == b"a"
    assert answer_of(Pieces.bind(), request)[2] == b"a0 a1 "


def test_the_small_request_reads_like_starlette_s():
    async def receive():
        return {"type": "http.request", "body": b'{"a": 1}', "more_body": False}

    scope = {
        "method": "POST",
        "path": "/x",
        "query_string": b"a=1&a=2&b=",
        "headers": [(b"Cookie", b"k=v; l=w"), (b"host", b"here")],
    }
    request = WebRequest(scope, receive)
    assert request.query_params["a"] == "2" and request.query_params.getlist("a") == ["1", "2"]
    assert request.cookies == {"k": "v", "l": "w"} and str(request.url) == "http://here/x?a=1&a=2&b="
    assert asyncio.run(request.json()) == {"a": 1}


def test_a_user_config_reaches_reconfigure_and_a_missing_one_is_told():
    @serve.deployment(user_config={"level": 3})
    class Configured:
        async def reconfigure(self, config):
            self.level = config["level"]

        def __call__(self):
            return self.level

    assert answer_of(Configured.bind(), HttpRequest("GET", "/"))[2] == b"3"
    assert answer_of(Configured.options(user_config={"level": 4}).bind(), HttpRequest("GET", "/"))[2] == b"4"
    with pytest.raises(RayServeException, match="reconfigure"):
        answer_of(Down.options(user_config={"a": 1}).bind(), HttpRequest("GET", "/"))


def test_the_number_of_replicas_follows_the_load_between_its_bounds():
    def bounds(deployment):
        options = graph(deployment.bind()).root.definition.options
        return options.workers, options.max_workers

    scaled = Down.options(autoscaling_config=AutoscalingConfig(min_replicas=2, max_replicas=9))
    assert bounds(scaled) == (2, 9) and not remarks(scaled)
    assert bounds(Down.options(num_replicas=3)) == (3, None)
    assert bounds(Down.options(autoscaling_config={"min_replicas": 2, "max_replicas": 2})) == (2, None)
    none = Down.options(autoscaling_config={"min_replicas": 0, "max_replicas": 4})
    assert bounds(none) == (0, 4) and not remarks(none)
    assert any("placement_group" in one for one in remarks(Down.options(placement_group_strategy="PACK")))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_replicas": 0}, ValueError),
        ({"num_replicas": 2, "autoscaling_config": {}}, ValueError),
        ({"max_queued_requests": 0}, ValueError),
        ({"replicas": 2}, TypeError),
        ({"autoscaling_config": {"min": 2}}, TypeError),
        ({"route_prefix": "x"}, ValueError),
    ],
)
def test_options_that_cannot_be_meant_are_errors(options, error):
    with pytest.raises(error):
        serve.deployment(**options)


def test_batches_that_can_never_be_full_are_told_and_by_themselves_they_can():
    @serve.deployment
    class Batched:
        @serve.batch(max_batch_size=20)
        async def __call__(self, items):
            return items

    assert graph(Batched.bind()).root.definition.concurrency == 20
    assert any("never be full" in one for one in remarks(Batched.options(max_ongoing_requests=5)))


def test_mistakes_are_sentences():
    with pytest.raises(TypeError, match=r"\.bind"):
        serve.run(Down)
    with pytest.raises(RuntimeError, match="bind"):
        Down(1)
    with pytest.raises(AttributeError, match="not there"):
        serve.no_such_name  # noqa: B018
    with pytest.raises(AttributeError, match="not there"):
        ray.no_such_name  # noqa: B018
    for absent in (serve.llm, serve.shadow_traffic, ray.data):
        with pytest.raises(NotImplementedError, match="not there in Jitney's layer: "):
            absent.something  # noqa: B018
        with pytest.raises(NotImplementedError, match="not there"):
            absent()
    with pytest.raises(TypeError, match="cannot be made"):
        Top.bind()
    with pytest.raises(RayServeException):
        serve.get_app_handle("absent")


class Graph:
    def __init__(self, nodes):
        self.nodes = nodes


def test_objects_travel_as_their_attributes_to_parameters_that_name_their_class():
    def method(self, graph: Graph, others: list[Graph], anything=None): ...

    classes = objects.plain_classes(method)
    assert classes == {"graph": Graph, "others": Graph}
    sent = decode(encode(objects.packed({"graph": Graph([1, 2]), "others": [Graph(3)], "number": 4})))
    graph = objects.unpacked("graph", sent["graph"], Graph)
    assert type(graph) is Graph and graph.nodes == [1, 2]
    assert [one.nodes for one in objects.unpacked("others", sent["others"], Graph)] == [3]
    assert objects.unpacked("number", sent["number"], None) == 4
    with pytest.raises(TypeError, match="say so in its type hint"):
        objects.unpacked("anything", sent["graph"], None)
    for other in (threading.Lock(), datetime.datetime.now(), pathlib.Path("/"), Point(1, 2)):
        assert objects.packed(other) is other


def test_ranks_are_the_least_free_numbers():
    deployment = f"ranks of {os.getpid()}"
    assert [take_rank(deployment), take_rank(deployment), take_rank(f"{deployment}, another")] == [0, 1, 0]
    RANKS.pop().close()
    RANKS.pop(0).close()
    assert take_rank(deployment) == 0


def test_what_has_no_effect_is_warned_about():
    class Many:
        @serve.multiplexed(max_num_models_per_replica=2)
        async def get(self, model_id: str):
            return model_id

    router = serve.config.RequestRouterConfig(request_router_class="routers:Mine")
    many = serve.deployment(num_replicas=2, request_router_config=router)(Many)
    told = "\n".join(remarks(many))
    assert told == "Many: request_router_config has no effect in Jitney"
    assert models_kept(replica_class(many, Routed(many.bind()), True)) == 2, "the server is told"


def test_multiplexed_keeps_the_latest_used_and_loads_each_once():
    ended = []

    class Model:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            if self.name not in ended:
                ended.append(self.name)

    class Host:
        loads = ()

        @serve.multiplexed(max_num_models_per_replica=2)
        async def get(self, model_id: str):
            self.loads += (model_id,)
            await asyncio.sleep(0)
            return Model(model_id)

    async def main():
        host = Host()
        await asyncio.gather(*(host.get("a") for _ in range(3)))
        await host.get("b")
        await host.get("a")
        await host.get("c")
        assert host.loads == ("a", "b", "c") and ended[:1] == ["b"]
        enter_request(ServeRequestContext(multiplexed_model_id="a"))
        assert (await host.get()).name == "a"
        with pytest.raises(ValueError, match="names no model"):
            await host.get("")

    asyncio.run(main())
    with pytest.raises(TypeError, match="async def"):
        serve.multiplexed(lambda model_id: None)


def test_metrics_are_jitney_s_with_ray_s_tags():
    from jitney.compat.serve.metrics import Counter, Gauge, Histogram

    words = Counter("test_words", "Words seen", tag_keys=("lang",)).set_default_tags({"lang": "en"})
    words.inc()
    words.inc(2, tags={"lang": "fr"})
    labels = words._labels(None)
    assert words._metric().value(**labels) == 1 and words._metric().value(**{**labels, "lang": "fr"}) == 2
    with pytest.raises(ValueError, match="no tag"):
        words.inc(1, {"colour": "red"})
    level, sizes = Gauge("test_level"), Histogram("test_sizes", boundaries=[1, 10])
    level.set(3)
    sizes.observe(5)
    assert level._metric().value(**level._labels(None)) == 3
    assert pickle.loads(pickle.dumps(words)).name == "test_words"


def test_a_replica_that_is_unwell_three_times_in_a_row_ends(caplog):
    ends, health = [], iter([1, 1, 0, 1, 1, 1])

    def check():
        if next(health):
            raise RuntimeError("unwell")

    checking = HealthCheck(check, 1e6, 1, ends.append)
    with caplog.at_level(logging.CRITICAL):
        for _ in range(2 * FAILURES_MAX):
            assert not ends
            checking.once()
    checking.stop()
    assert len(ends) == 1


def test_remote_functions_run_in_threads_and_references_are_arguments():
    @ray.remote
    def add(a, b=0):
        return a + b

    @ray.remote(num_cpus=1)
    def fail():
        raise ValueError("no")

    ray.init(num_cpus=2)
    refs = [add.remote(at, b=add.remote(1)) for at in range(3)]
    assert ray.get(refs) == [1, 2, 3] and ray.get(ray.put(5)) == 5
    ready, rest = ray.wait(refs, num_returns=2)
    assert len(ready) == 2 and len(rest) == 1
    with pytest.raises(ValueError, match="no"):
        ray.get(fail.remote())
    with pytest.raises(TypeError, match="remote"):
        add(1)
    with pytest.raises(NotImplementedError, match="deployment"):
        ray.remote(type("Actor", (), {}))
    ray.shutdown()
    assert not ray.is_initialized()


@serve.deployment
class Chain:
    def __init__(self, downs):
        self.first, self.second = downs["first"], downs["second"]

    async def twice(self, x):
        return await self.second.remote(self.first.remote(x))  # A response is an argument before it is there.

    async def together(self, count):
        return await asyncio.gather(*(self.first.remote(x) for x in range(count)))

    def plain(self, x):
        return self.first.remote(x).result(timeout_s=60)

    async def failing(self):
        try:
            await self.first.remote("text")
        except TypeError as error:
            return "str" in str(error)


def test_deployments_call_each_other():
    import jitney.testing

    chain = Chain.bind({"first": Down.bind(), "second": Down.options(name="Second").bind()})
    with jitney.testing.load(chain) as model:
        assert model.call(endpoint="twice", x=1) == 3
        assert model.call(endpoint="together", count=3) == [1, 2, 3]
        assert model.call(endpoint="plain", x=5) == 6
        assert model.call(endpoint="failing") is True
