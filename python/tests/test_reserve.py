"""What a caller keeps back of its deadline for itself: learned, in virtual time."""

from __future__ import annotations

import pytest

from jitney.call.context import KEYS_MAX, SHARE, WINDOW, Reserve, Reserves, timeout_of


def learned(*seconds: float) -> Reserve:
    reserve = Reserve()
    for one in seconds:
        reserve.observe(one)
    return reserve


def test_there_is_no_reserve_before_enough_calls_were_seen() -> None:
    assert learned(*[0.05] * (WINDOW - 1)).seconds == 0.0
    assert learned(*[0.05] * WINDOW).seconds == pytest.approx(0.05 * SHARE)


def test_the_fastest_recent_caller_counts() -> None:
    assert learned(*[0.05] * 20, 0.01, *[0.05] * 60).seconds == pytest.approx(0.01 * SHARE)
    assert learned(*[0.05] * WINDOW, 0.0).seconds == 0.0
    assert learned(*[0.05] * WINDOW, -1.0).seconds == 0.0


def test_what_was_long_ago_is_forgotten() -> None:
    reserve = learned(0.0, *[0.05] * (WINDOW - 1), *[0.05] * (WINDOW - 1))
    assert reserve.seconds == 0.0
    reserve.observe(0.05)
    assert reserve.seconds == pytest.approx(0.05 * SHARE)


def test_the_timeout_is_what_is_left_less_the_reserve_and_never_nothing() -> None:
    assert timeout_of(expires=10.0, now=9.0, reserve=0.0) == pytest.approx(1.0)
    assert timeout_of(expires=10.0, now=9.0, reserve=0.25) == pytest.approx(0.75)
    assert timeout_of(expires=10.0, now=9.9, reserve=0.25) == pytest.approx(0.001)
    assert timeout_of(expires=10.0, now=11.0, reserve=0.0) == pytest.approx(0.001)


def test_a_chain_leaves_each_part_what_those_after_it_need() -> None:
    """First calls Second, which needs 30 ms, and then works for 10 ms itself; both have 100 ms in all."""
    clock, reserves = 0.0, Reserves()
    timeouts: list[tuple[float, float]] = []
    for _ in range(2 * WINDOW):
        expires = clock + 0.1
        second, last = reserves.of("call", "Second/"), reserves.of("call", "Third/")
        assert second is not None and last is not None
        timeouts.append((timeout_of(expires, clock, second.seconds), timeout_of(expires, clock, last.seconds)))
        clock += 0.03
        answered_by_second = clock
        clock += 0.02
        answered_by_third = clock
        clock += 0.01
        second.observe(clock - answered_by_second)
        last.observe(clock - answered_by_third)
    assert timeouts[0] == (pytest.approx(0.1), pytest.approx(0.1))
    assert timeouts[-1] == (pytest.approx(0.1 - 0.03 * SHARE), pytest.approx(0.1 - 0.01 * SHARE))


def test_there_are_only_so_many() -> None:
    reserves = Reserves()
    assert all(reserves.of("call", f"model{number}") for number in range(KEYS_MAX))
    assert reserves.of("call", "one more") is None
    assert reserves.of("call", "model0") is reserves.of("call", "model0") is not None
