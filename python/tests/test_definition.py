"""What the decorators accept, what they reject, and what a definition knows about itself."""

from __future__ import annotations

import pytest

import jitney
from jitney.definition.definition import HANDLE_NAMES, define
from jitney.definition.options import Options
from jitney.handle import RunningModel
from jitney.packing.pack import api, handler_name, queue_size, settings


def test_a_decorated_function_is_still_the_function():
    @jitney.batch(max_batch_size=4)
    def adder(number: list[int]) -> list[int]:
        return [one + 1 for one in number]

    assert adder([1, 2]) == [2, 3]
    definition = jitney.define(adder)
    assert (definition.name, definition.max_batch_size, definition.default.batched) == ("adder", 4, True)


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch_size": 0},
        {"max_batch_size": -1},
        {"max_batch_size": 1.1},
        {"max_batch_size": "4"},
        {"max_batch_size": True},
        {"max_latency_ms": -1},
        {"max_latency_ms": "soon"},
        {"max_latency_ms": float("nan")},
        {"max_batch_delay_ms": -0.1},
        {"policy": "sometimes"},
        {"batch_dim": "0"},
        {"batch_dim": (0, 1, 2)},
        {"workers": 0},
        {"cost": 3},
        {"padded": True},
        {"padded": "yes", "cost": len},
        {"bucket": "x"},
        {"name": "a b"},
        {"concurrency": 0},
        {"examples": [3]},
        {"warm_up": [3]},
        {"sizes": []},
        {"sizes": [1, 4, 2]},
        {"sizes": [0, 2]},
        {"sizes": "64"},
        {"lengths": [32, 64]},
        {"lengths": [32, 64], "cost": "len", "padded": False},
        {"overlap": 9},
        {"device": "tpu"},
        {"device_ids": [0, -1]},
        {"device_ids": []},
        {"device_ids": [0], "device": "cpu"},
        {"gpu_memory_fraction": 0},
        {"gpu_memory_fraction": 1.5},
        {"gpu_turns": "yes"},
    ],
)
def test_invalid_options_are_rejected_where_they_are_written(options):
    with pytest.raises(jitney.DefinitionError, match=next(iter(options))):
        jitney.batch(**options)


@pytest.mark.parametrize(
    ("decorator", "option", "message"),
    [
        (jitney.batch, "max_batchsize", "@jitney.batch has no option 'max_batchsize'; did you mean max_batch_size?"),
        (jitney.model, "colour", "@jitney.model has no option 'colour'; the options are max_batch_size, "),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_known_one(decorator, option, message):
    with pytest.raises(jitney.DefinitionError) as error:
        decorator(**{option: 3})
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "options",
    [{"max_batch_size": 1.0}, {"max_latency_ms": 0}, {"max_batch_delay_ms": 0.0}, {"batch_dim": (1, 0)}, {}],
)
def test_valid_options_are_accepted(options):
    @jitney.batch(**options)
    def function(x):
        return x

    assert jitney.define(function).default.batched


def test_a_queue_too_short_for_a_batch_is_warned_of_and_without_one_there_is_room(capsys):
    def function(x):
        return x

    short = jitney.define(jitney.batch(max_batch_size=64, queue=10)(function))
    assert queue_size(short) == 10
    assert "batches of 64 can never be full" in capsys.readouterr().err
    assert queue_size(jitney.define(jitney.batch(max_batch_size=200, workers=2)(function))) == 800
    assert queue_size(jitney.define(jitney.batch(max_batch_size=8)(function))) is None
    assert capsys.readouterr().err == ""


def test_a_window_of_nothing_is_a_window_and_no_objective_is_none():
    options = {"max_batch_delay_ms": 0, "max_latency_ms": 0}
    found = settings(jitney.define(jitney.batch(name="window", **options)(lambda x: x)), "a:b", "/")
    assert found["batching"] == {"max_batch_size": 32, "policy": "opportunistic"}


def test_an_endpoint_may_stand_behind_openais():
    @jitney.model
    class Both:
        @jitney.batch(openai="embeddings")
        def embed(self, text: list[str]) -> list[list[float]]: ...

        @jitney.batch
        def other(self, text: list[str]) -> list[str]: ...

    assert api(jitney.define(Both))["openai"] == {"embeddings": "embed"}
    with pytest.raises(jitney.DefinitionError, match="one of embeddings"):
        jitney.batch(openai="chat")

    @jitney.batch(openai="embeddings")
    def pixels(image: list[bytes]) -> list[list[float]]: ...

    with pytest.raises(jitney.DefinitionError, match="one parameter, a text"):
        api(jitney.define(pixels))

    @jitney.model(openai="embeddings")
    class Twice:
        @jitney.batch
        def one(self, text: list[str]) -> list[str]: ...

        @jitney.batch
        def two(self, text: list[str]) -> list[str]: ...

    with pytest.raises(jitney.DefinitionError, match="one and two: only one endpoint"):
        api(jitney.define(Twice))


def test_endpoints_keep_the_latencies_that_they_say_and_the_model_the_strictest():
    class Kit:
        @jitney.endpoint(max_latency_ms=500)
        def slow(self, x): ...

        @jitney.endpoint(max_latency_ms=20)
        def fast(self, x): ...

        @jitney.endpoint
        def patient(self, x): ...

    kit = jitney.define(Kit)
    assert settings(kit, "a:b", "/")["batching"]["max_latency_ms"] == 20
    assert api(kit)["latencies_ms"] == {"slow": 500, "fast": 20}
    whole = jitney.define(jitney.model(max_latency_ms=7)(Kit))
    assert api(whole)["latencies_ms"] == {"slow": 500, "fast": 20, "patient": 7}
    assert api(jitney.define(jitney.batch(name="one", max_latency_ms=7)(lambda x: x)))["latencies_ms"] == {}, (
        "the model's own says it"
    )


def test_an_endpoint_hidden_by_a_handles_own_name_is_warned_of():
    class Kit:
        @jitney.endpoint
        def stream(self, x): ...

        @jitney.endpoint
        def price(self, x): ...

    (remark,) = jitney.define(Kit).remarks()
    assert 'handle.options(method_name="stream").remote(...)' in remark
    public = {name for name in dir(RunningModel) if not name.startswith("_")}
    assert set(HANDLE_NAMES) == public | {"url", "management_url"}


def test_an_unknown_option_is_also_a_type_error():
    with pytest.raises(TypeError):
        jitney.batch(max_bach_size=3)


def test_sync_async_and_generators_are_recognised():
    async def coroutine(x: int) -> int:
        return x

    def pieces(x: int):
        yield x

    async def async_pieces(x: int):
        yield x

    def plain(x: int) -> int:
        return x

    kinds = [jitney.define(one).default for one in (plain, coroutine, pieces, async_pieces)]
    assert [(one.is_async, one.streams) for one in kinds] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
    ]
    assert [one.concurrency for one in kinds] == [1, 100, 1, 100]


def test_a_class_serves_its_marked_methods_in_their_order():
    @jitney.model(workers=2, name="m")
    class Model:
        @jitney.batch(max_batch_size=8)
        def second(self, x: list[int]) -> list[int]:
            return x

        @jitney.endpoint
        def first(self, x: int) -> int:
            return x

        def helper(self):
            """Not served."""

    definition = jitney.define(Model)
    assert [one.name for one in definition.endpoints] == ["second", "first"]
    assert [one.max_batch_size for one in definition.endpoints] == [8, 1]
    assert (definition.name, definition.options.workers, definition.default) == ("m", 2, None)


def test_a_batched_class_is_called():
    @jitney.batch(max_batch_size=3)
    class Model:
        def __call__(self, x: list[int]) -> list[int]:
            return x

    one = jitney.define(Model).default
    assert (one.name, one.batched, one.max_batch_size) == ("call", True, 3)


def test_what_a_class_says_holds_for_its_methods_unless_they_say_otherwise():
    @jitney.model(max_batch_size=16)
    class Model:
        @jitney.batch
        def usual(self, x):
            return x

        @jitney.batch(max_batch_size=2)
        def own(self, x):
            return x

    assert [one.max_batch_size for one in jitney.define(Model).endpoints] == [16, 2]


def test_gpus_and_fixed_shapes_are_the_servers_settings():
    options = {"device": "cuda", "device_ids": [0, 2], "gpu_memory_fraction": 0.5, "gpu_turns": True}
    shapes = {"cost": "len", "sizes": [1, 8, 64], "lengths": [32, 128], "max_batch_size": 8192}
    found = settings(jitney.define(jitney.batch(name="gpu", **options, **shapes)(lambda x: x)), "a:b", "/")
    assert (found["deviceType"], found["deviceIds"]) == ("gpu", [0, 2])
    assert (found["gpu_memory_fraction"], found["gpu_turns"]) == (0.5, True)
    batching = {"max_batch_size": 64, "cost": "length", "max_cost": 8192, "sizes": [1, 8, 64], "lengths": [32, 128]}
    assert found["batching"] == batching


@pytest.mark.parametrize(
    ("options", "sizes", "most"),
    [
        ({"sizes": [1, 8, 64]}, (1, 8, 64), 64),
        ({"sizes": [1, 8, 64], "max_batch_size": 32}, (1, 8, 32), 32),
        ({"sizes": [1, 8], "max_batch_size": 32}, (1, 8, 32), 32),
        ({"sizes": [1, 8], "max_batch_size": 512, "cost": "len"}, (1, 8), 512),
        ({}, (), 32),
    ],
)
def test_the_largest_batch_is_one_of_the_sizes(options, sizes, most):
    one = jitney.define(jitney.batch(name="sized", **options)(lambda x: x))
    assert (one.sizes, one.max_batch_size) == (sizes, most)


def test_workers_on_a_method_belong_to_the_class():
    class Model:
        @jitney.batch(workers=2)
        def method(self, x):
            return x

    with pytest.raises(jitney.DefinitionError, match=r"workers belongs to @jitney\.model"):
        jitney.define(Model)


def nothing():
    """Takes nothing."""


def only_positions(*values):
    """Has no names."""


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (jitney.batch(lambda: []), "needs a parameter"),
        (jitney.batch(only_positions), "no names"),
        (3, "neither a function nor a class"),
        (jitney.endpoint(max_batch_size=3)(lambda x: x), "needs @jitney.batch"),
        (jitney.batch(concurrency=2)(lambda x: x), "async"),
        (jitney.endpoint(sizes=[1, 2])(lambda x: x), "sizes needs @jitney.batch"),
    ],
)
def test_definitions_that_cannot_work_say_what_to_change(target, why):
    with pytest.raises(jitney.DefinitionError, match=why):
        jitney.define(target)


def test_a_function_without_decorator_takes_one_item():
    definition = jitney.define(nothing)
    assert (definition.name, definition.default.batched, definition.max_batch_size) == ("nothing", False, 1)


def test_cost_and_bucket_are_called_by_name_or_in_order_if_they_know_no_names():
    options = Options(cost=len, bucket=lambda count, text: (text, count))
    assert options.cost_of({"text": "abc"}) == 3
    assert options.bucket_of({"text": "abc", "count": 2}) == ("abc", 2)
    assert Options(cost=max).cost_of({"a": 3, "b": 7}) == 7
    assert Options(cost=lambda **item: len(item)).cost_of({"a": 3, "b": 7}) == 2
    assert (Options().cost_of, Options().bucket_of) == (None, None)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("app:shout", "app:shout"),
        ("dir/app.py:shout", "dir/app.py:shout"),
        ("../app.py:shout", "app.py:shout"),
        ("a/../../app.py", "app.py"),
        ("/srv/app.py:shout", "app.py:shout"),
    ],
)
def test_the_manifest_names_no_file_outside_of_the_model(spec, name):
    assert handler_name(spec) == name


def test_a_class_without_an_endpoint_is_refused_with_the_decorator_to_add():
    class Empty:
        def score(self, text: str) -> int:
            return len(text)

    with pytest.raises(jitney.DefinitionError, match=r"Empty has no endpoint.*@jitney\.batch.*before 'score'"):
        define(Empty)
