"""Repetitions until they agree, with a clock that the tests turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import chain, repeat

import pytest

from models.kernels import timing
from models.kernels.timing import Times, repeated
from suite import quiet


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def step(self, seconds: Iterable[float]) -> Callable[[], None]:
        """A call that takes the next of ``seconds``."""
        coming = iter(seconds)

        def call() -> None:
            self.now += next(coming)

        return call


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "look", lambda: None)
    monkeypatch.setattr(timing, "IN_A_ROW", 1)


def test_calls_in_a_row_find_their_own_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call after another contender's is slow, those that follow it are not."""
    monkeypatch.setattr(timing, "IN_A_ROW", 3)
    clock = Clock()
    cold_and_warm = chain([9.0], chain.from_iterable(repeat([2.0, 1.0, 1.0])))
    times = repeated({"a": clock.step(cold_and_warm), "b": clock.step(repeat(3.0))}, clock=clock)
    assert times.seconds == {"a": [1.0] * 3, "b": [3.0] * 3}


def test_three_repetitions_that_agree_are_enough() -> None:
    clock = Clock()
    times = repeated({"a": clock.step(repeat(1.0)), "b": clock.step(repeat(3.0))}, clock=clock)
    assert times.settled
    assert times.seconds == {"a": [1.0] * 3, "b": [3.0] * 3}
    assert times.ratios() == [3.0] * 3
    assert clock.now == 4 * 4.0  # one round of warming up
    assert times.disturbances() == []


def test_a_disturbed_beginning_is_left_behind() -> None:
    clock = Clock()
    slow = chain([9.0], [1.0, 1.5, 1.0, 1.02], repeat(1.0))  # the first call warms up
    times = repeated({"a": clock.step(slow), "b": clock.step(repeat(3.0))}, limit=100, clock=clock)
    assert times.settled
    assert times.seconds["a"] == pytest.approx([1.0, 1.02, 1.0])


def test_what_never_agrees_ends_at_the_limit_and_says_so() -> None:
    clock = Clock()
    wavering = chain.from_iterable(repeat([2.0, 3.0]))
    times = repeated({"a": clock.step(repeat(1.0)), "b": clock.step(wavering)}, limit=30, clock=clock)
    assert not times.settled
    assert 30 <= clock.now < 45
    assert sorted(times.seconds["b"]) in ([2.0, 2.0, 3.0], [2.0, 3.0, 3.0])
    (said,) = times.disturbances()
    assert said in ("repetitions differ by 50%", "repetitions differ by 33%")


def test_a_steady_ratio_of_unsteady_times_is_not_settled() -> None:
    """A share of the peak is made of our time alone."""
    clock = Clock()
    pattern = [1.0, 1.0, 1.2]
    a, b = (clock.step(chain([1.0], (factor * s for _ in range(99) for s in pattern))) for factor in (1, 2))
    times = repeated({"a": a, "b": b}, limit=5, clock=clock)
    assert timing.spread(times.ratios()) == pytest.approx(0)
    assert not times.settled


def test_a_repetition_is_the_best_of_its_rounds_and_takes_turns() -> None:
    clock, calls = Clock(), []

    def contender(name: str, seconds: Iterable[float]) -> Callable[[], None]:
        step = clock.step(seconds)
        return lambda: (calls.append(name), step())[1]

    a, b = contender("a", chain([5.0], repeat(0.1))), contender("b", chain([5.0], [0.4, 0.2], repeat(0.3)))
    times = repeated({"a": a, "b": b}, repetition=0.8, limit=0, clock=clock)
    assert calls == ["a", "b"] * (len(calls) // 2)
    assert times.seconds["b"][0] == pytest.approx(0.2)


def test_preparation_comes_before_every_call_and_is_not_timed() -> None:
    clock, calls = Clock(), []
    timed = clock.step(repeat(1.0))

    def prepare() -> None:
        calls.append("prepare")
        clock.now += 50

    def step() -> None:
        calls.append("step")
        timed()

    times = repeated({"a": step, "b": step}, prepare=prepare, limit=0, clock=clock)
    assert calls == ["prepare", "step"] * (len(calls) // 2)
    assert times.seconds == {"a": [1.0] * 3, "b": [1.0] * 3}


def test_other_work_is_noticed_even_where_repetitions_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([quiet.Processors(2, 0.0, 0.0, 0.0, 0.0), quiet.Processors(2, 10.0, 15.0, 0.0, 10.0)])
    monkeypatch.setattr(quiet, "look", lambda: next(looks))
    clock = Clock()
    times = repeated({"a": clock.step(repeat(1.0)), "b": clock.step(repeat(3.0))}, clock=clock)
    assert times.settled
    assert times.disturbances() == ["others used 25% of the processors"]


def test_times_survive_being_saved() -> None:
    times = Times({"a": [1.0, 2.0, 3.0], "b": [1.0, 1.0, 1.0]}, False, 0.1, None)
    assert Times(**asdict(times)) == times
    assert times.of("a") == 2
    assert times.spread() == pytest.approx((1 - 1 / 3) / 0.5)  # of the ratios; that of the times is 1
