"""`@serve.batch`: the behaviours that Ray Serve's own tests assert, in virtual time, and those that it lacks."""

import asyncio

import pytest
from virtual_time import run, settle

from jitney.compat import serve
from jitney.compat.serve.exceptions import ItemTooLarge, RayServeException

FOREVER = 1e9


def collector(**options):
    """A batched function that notes its batches; an item "raise" raises."""
    sizes = []

    @serve.batch(**options)
    async def double(items):
        sizes.append(list(items))
        if "raise" in items:
            raise ZeroDivisionError("of my own")
        return [item * 2 for item in items]

    return double, sizes


def gated(**options):
    """A batched function that ends when the gate of its batch is opened."""
    gates, batches = [], []

    @serve.batch(**options)
    async def double(items):
        gate = asyncio.get_running_loop().create_future()
        gates.append(gate)
        batches.append(list(items))
        await gate
        return [item * 2 for item in items]

    return double, batches, gates


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_batch_size": 0}, ValueError),
        ({"max_batch_size": -1}, ValueError),
        ({"max_batch_size": 1.1}, TypeError),
        ({"max_batch_size": "10"}, TypeError),
        ({"batch_wait_timeout_s": -0.1}, ValueError),
        ({"batch_wait_timeout_s": "a"}, TypeError),
        ({"max_concurrent_batches": 0}, ValueError),
        ({"max_concurrent_batches": 0.5}, TypeError),
        ({"batch_size_fn": 3}, TypeError),
    ],
)
def test_options_that_cannot_be_meant_are_errors(options, error):
    with pytest.raises(error):
        serve.batch(**options)


def test_functions_that_are_not_async_are_refused_and_whole_floats_are_not():
    with pytest.raises(TypeError, match="async def"):

        @serve.batch
        def plain(items):
            return items

    for options in ({"max_batch_size": 1.0}, {"batch_wait_timeout_s": 0}, {"batch_wait_timeout_s": 0.0}):
        double, _ = collector(**options)
        assert run(double(3)) == 6


def test_a_batch_of_one_runs_at_once_and_an_exception_keeps_its_type():
    async def main():
        double, _ = collector(max_batch_size=1, batch_wait_timeout_s=FOREVER)
        assert await double(2) == 4
        with pytest.raises(ZeroDivisionError):
            await double("raise")
        assert asyncio.get_running_loop().time() == 0

    run(main())


def test_without_a_timeout_the_first_runs_alone_and_those_behind_it_together():
    async def main():
        double, batches, gates = gated(max_batch_size=10, batch_wait_timeout_s=0)
        first = asyncio.ensure_future(double(1))
        await settle()
        others = [asyncio.ensure_future(double(item)) for item in (2, 3)]
        await settle()
        assert batches == [[1]]
        gates[0].set_result(None)
        await settle()
        assert batches == [[1], [2, 3]]
        gates[1].set_result(None)
        assert await asyncio.gather(first, *others) == [2, 4, 6]

    run(main())


def test_nine_of_ten_wait_and_the_tenth_starts_them_again_and_again():
    async def main():
        double, sizes = collector(max_batch_size=10, batch_wait_timeout_s=60)
        for turn in range(2):
            calls = [asyncio.ensure_future(double(item)) for item in range(9)]
            await settle()
            assert len(sizes) == turn
            assert await double(9) == 18
            assert await asyncio.gather(*calls) == [0, 2, 4, 6, 8, 10, 12, 14, 16]
            await asyncio.sleep(100)  # The queue is empty for longer than the timeout.

    run(main())


def test_the_timeout_is_counted_from_the_first_call():
    async def main():
        loop = asyncio.get_running_loop()
        double, sizes = collector(max_batch_size=10, batch_wait_timeout_s=5)
        first = asyncio.ensure_future(double(1))
        await asyncio.sleep(4)
        second = asyncio.ensure_future(double(2))
        assert await asyncio.gather(first, second) == [2, 4]
        assert (sizes, round(loop.time(), 6)) == ([[1, 2]], 5)

    run(main())


def test_no_wake_up_is_lost_and_an_error_is_everybody_s_of_its_batch():
    async def main():
        double, sizes = collector(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        assert await asyncio.gather(*map(double, range(10))) == [2 * item for item in range(10)]
        assert [len(items) for items in sizes] == [2] * 5
        triple, _ = collector(max_batch_size=3, batch_wait_timeout_s=FOREVER)
        calls = [asyncio.ensure_future(triple(item)) for item in (1, "raise")]
        await settle()
        assert not any(call.done() for call in calls)
        results = await asyncio.gather(*calls, triple(3), return_exceptions=True)
        assert [type(one) for one in results] == [ZeroDivisionError] * 3
        for call in calls:
            assert not call.cancel()  # Harmless after the error.

    run(main())


def test_batches_grow_while_the_function_is_busy():
    """Ray seals what came within the timeout; two hundred calls became forty batches of five."""

    async def main():
        sizes = []

        @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.01)
        async def slow(items):
            sizes.append(len(items))
            await asyncio.sleep(0.1)
            return items

        calls = []
        for item in range(200):
            calls.append(asyncio.ensure_future(slow(item)))
            await asyncio.sleep(0.002)
        assert await asyncio.gather(*calls) == list(range(200))
        assert len(sizes) <= 7, sizes

    run(main())


def test_arguments_reach_their_parameters_in_any_order_of_names():
    async def main():
        @serve.batch(max_batch_size=4, batch_wait_timeout_s=FOREVER)
        async def show(a, b, *, c=None):
            return list(zip(a, b, c))

        calls = (show("A1", "B1", c=1), show("A2", b="B2", c=2), show(b="B3", c=3, a="A3"), show(c=4, b="B4", a="A4"))
        expected = [(f"A{at}", f"B{at}", at) for at in range(1, 5)]
        assert await asyncio.gather(*calls) == expected
        with pytest.raises(TypeError):
            await show(1, 2, 3, 4)

    run(main())


def test_a_parameter_that_only_some_give_has_its_default_for_the_others():
    async def main():
        @serve.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        async def scale(x, by=10):
            return [one * factor for one, factor in zip(x, by)] if isinstance(by, list) else [one * by for one in x]

        assert await asyncio.gather(scale(1), scale(2, by=3)) == [10, 6]
        assert await asyncio.gather(scale(1), scale(2)) == [10, 20]

    run(main())


def test_methods_have_a_queue_for_each_object():
    class Adder:
        def __init__(self, step):
            self.step = step
            self.sizes = []

        @serve.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        async def add(self, numbers):
            self.sizes.append(len(numbers))
            return [number + self.step for number in numbers]

    async def main():
        one, ten = Adder(1), Adder(10)
        assert await asyncio.gather(one.add(1), ten.add(1), one.add(2), ten.add(numbers=2)) == [2, 11, 3, 12]
        assert one.sizes == ten.sizes == [2]

    run(main())


def test_who_leaves_while_waiting_is_not_computed_and_another_takes_the_place():
    async def main():
        double, sizes = collector(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        calls = [asyncio.ensure_future(double(item)) for item in (1, 2)]
        calls[0].cancel()
        await settle()
        assert not calls[1].done() and not sizes
        assert await double(3) == 6
        assert (await calls[1], sizes) == (4, [[2, 3]])
        lonely = asyncio.ensure_future(double(4))
        await settle()
        lonely.cancel()
        await settle()
        assert await asyncio.gather(double(5), double(6)) == [10, 12]
        assert sizes == [[2, 3], [5, 6]]

    run(main())


def test_who_leaves_while_the_batch_runs_takes_nothing_from_the_others():
    async def main():
        double, _, gates = gated(max_batch_size=2, batch_wait_timeout_s=0)
        calls = [asyncio.ensure_future(double(item)) for item in (1, 2)]
        await settle()
        calls[0].cancel()
        await settle()
        gates[0].set_result(None)
        assert await calls[1] == 4

    run(main())


def test_setters_change_the_next_batch_and_getters_tell():
    async def main():
        double, sizes = collector(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        first = asyncio.ensure_future(double(1))
        await settle()
        double.set_max_batch_size(3)
        double.set_batch_wait_timeout_s(7)
        assert (double.get_max_batch_size(), double.get_batch_wait_timeout_s()) == (3, 7)
        assert await asyncio.gather(first, double(2)) == [2, 4]  # The batch being collected keeps its size.
        await asyncio.gather(*map(double, (3, 4, 5)))
        await double(6)
        assert sizes == [[1, 2], [3, 4, 5], [6]]
        assert round(asyncio.get_running_loop().time(), 6) == 7
        with pytest.raises(ValueError):
            double.set_max_batch_size(0)

    run(main())


def test_two_batches_at_a_time_and_never_three():
    async def main():
        double, batches, gates = gated(max_batch_size=5, batch_wait_timeout_s=0, max_concurrent_batches=2)
        calls = [asyncio.ensure_future(double(item)) for item in range(20)]
        await settle()
        for done in range(4):
            assert len(batches) == min(done + 2, 4)
            gates[done].set_result(None)
            await settle()
        assert await asyncio.gather(*calls) == [2 * item for item in range(20)]

    run(main())


@pytest.mark.parametrize(("answer", "error"), [([1], RayServeException), (3, TypeError), ({"a": 1, "b": 2}, TypeError)])
def test_an_answer_that_does_not_fit_fails_all(answer, error):
    async def main():
        @serve.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        async def wrong(items):
            return answer

        results = await asyncio.gather(wrong(1), wrong(2), return_exceptions=True)
        assert [type(one) for one in results] == [error, error]

    run(main())


def sized(cap, **options):
    sizes = []

    @serve.batch(max_batch_size=cap, batch_wait_timeout_s=1, batch_size_fn=sum, **options)
    async def echo(items):
        sizes.append(list(items))
        return items

    return echo, sizes


@pytest.mark.parametrize(
    ("cap", "items", "expected"),
    [(10, (6, 6), [[6], [6]]), (20, (5, 6, 7), [[5, 6, 7]]), (10, (6, 7, 3, 4, 4), [[6], [7, 3], [4, 4]])],
)
def test_batch_size_fn_limits_the_sum_and_nobody_loses_his_place(cap, items, expected):
    async def main():
        echo, sizes = sized(cap)
        assert await asyncio.gather(*map(echo, items)) == list(items)
        assert sizes == expected

    run(main())


def test_an_item_that_is_too_large_or_cannot_be_measured_fails_alone():
    """In Ray an exception of batch_size_fn stops the queue for ever."""

    async def main():
        echo, _ = sized(10)
        results = await asyncio.gather(echo(6), echo(12), echo("six"), echo(4), return_exceptions=True)
        assert [type(one) for one in results] == [int, ItemTooLarge, TypeError, int]
        assert await echo(3) == 3

    run(main())


def streamer(**options):
    @serve.batch(**options)
    async def count(limits):
        for step in range(max(limits, default=0) + 1):
            yield [step if step < limit else StopIteration for limit in limits]

    return count


async def listed(stream):
    return [piece async for piece in stream]


def test_every_caller_of_a_stream_gets_his_own_pieces_and_end():
    async def main():
        count = streamer(max_batch_size=3, batch_wait_timeout_s=FOREVER)
        got = await asyncio.gather(*(listed(count(limit)) for limit in (0, 2, 5)))
        assert got == [[], [0, 1], [0, 1, 2, 3, 4]]

    run(main())


def test_a_stream_that_breaks_gives_what_was_good_and_then_the_error():
    async def main():
        @serve.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        async def broken(items):
            yield items
            yield [{"unhashable": item} for item in items]
            if "short" in items:
                yield ["too few"]
            raise ZeroDivisionError

        async def until_error(stream):
            got = []
            try:
                while True:
                    got.append(await anext(stream))
            except StopAsyncIteration:
                pass
            except Exception as error:
                got.append(type(error))
            return got

        got = await asyncio.gather(until_error(broken(1)), until_error(broken(2)))
        assert got == [[item, {"unhashable": item}, ZeroDivisionError] for item in (1, 2)]
        got = await asyncio.gather(until_error(broken(1)), until_error(broken("short")))
        assert [one[-1] for one in got] == [RayServeException, RayServeException]

    run(main())


def test_a_stream_that_is_given_up_stops_when_nobody_reads():
    async def main():
        steps = []

        @serve.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        async def endless(items):
            while True:
                steps.append(1)
                yield items
                await asyncio.sleep(1)

        streams = [endless(1), endless(2)]
        pieces = await asyncio.gather(*(anext(stream) for stream in streams))
        assert pieces == [1, 2]
        for stream in streams:
            await stream.aclose()
        await asyncio.sleep(10)
        assert len(steps) == 2
        waiting = endless(3)
        started = asyncio.ensure_future(anext(waiting))
        await settle()
        started.cancel()
        await settle()
        assert len(steps) == 2

    run(main())


def test_a_batch_has_calls_of_one_model():
    from jitney.compat.serve.context import ServeRequestContext, enter_request

    async def main():
        seen = []

        @serve.batch(max_batch_size=3, batch_wait_timeout_s=1)
        async def predict(items):
            seen.append((serve.get_multiplexed_model_id(), list(items)))
            return items

        async def call(model_id, item):
            enter_request(ServeRequestContext(multiplexed_model_id=model_id))
            return await predict(item)

        calls = [asyncio.ensure_future(call(model, at)) for at, model in enumerate("abaabb")]
        assert await asyncio.gather(*calls) == list(range(6))
        assert seen == [("a", [0, 2, 3]), ("b", [1, 4, 5])]

    run(main())


def test_a_batch_belongs_to_all_of_its_calls():
    import jitney
    from jitney.call.context import CURRENT, CallContext

    class Source:
        model, reserves = "m", None

        def __init__(self, request):
            self.request = request

        def request_at(self, position):
            return self.request

    async def main():
        seen = []

        @serve.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER)
        async def predict(items):
            context = jitney.context()
            seen.append(([one.id for one in context.requests], context.inherited.tenant))
            return items

        async def call(number, tenant):
            CURRENT.set(CallContext(Source(jitney.Request(str(number), tenant=tenant)), "call", True, [0]))
            return await predict(number)

        await asyncio.gather(call(1, "gold"), call(2, "gold"), call(3, "gold"), call(4, "lead"))
        assert seen == [(["1", "2"], "gold"), (["3", "4"], None)]

    run(main())
