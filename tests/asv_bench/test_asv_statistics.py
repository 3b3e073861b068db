"""The rule that calls a commit slower, on made-up timings."""

import random

import pytest
from compare import Timing, median_interval


def noisy(factor: float, spread: float, generator: random.Random, pairs: int = 21) -> Timing:
    """Blocks of 10 ms steps; the machine adds time, and now and then a lot of it."""

    def step(scale: float) -> float:
        return 0.01 * scale * (1 + abs(generator.gauss(0, spread)) + (generator.random() < 0.03) * 3)

    return Timing([step(1.0) for _ in range(pairs)], [step(factor) for _ in range(pairs)])


def test_interval_of_the_median_is_the_sign_tests():
    # P(at most 1 of 15 above the median) = 16 / 2^15 < 0.001 < P(at most 2): the second smallest and second largest.
    assert median_interval([float(n) for n in range(1, 16)]) == (2.0, 14.0)
    assert median_interval([float(n) for n in range(1, 11)]) == (1.0, 10.0)


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError, match="at least 10"):
        median_interval([1.0] * 9)


def test_interval_covers_the_median_as_often_as_it_says():
    generator = random.Random(0)
    missed = sum(
        not low <= 0 <= high
        for low, high in (median_interval([generator.gauss(0, 1) for _ in range(15)], 0.02) for _ in range(2000))
    )
    assert abs(missed / 2000 - 2 * 576 / 2**15) < 0.012  # P(at most 3 of 15) = 576 / 2^15, on either side


def test_equal_commits_are_hardly_ever_called_slower():
    generator = random.Random(1)
    first = sum(noisy(1.0, 0.2, generator).slower(0.1) for _ in range(2000))
    assert first / 2000 < 0.01  # and a second, independent finding is needed before it counts


def test_a_slow_commit_is_called_slower():
    generator = random.Random(2)
    found = sum(noisy(1.5, 0.1, generator).slower(0.1) for _ in range(500))
    assert found / 500 > 0.99


def test_a_slow_down_within_the_threshold_is_not():
    quiet = Timing([0.010] * 15, [0.0105] * 15)
    assert not quiet.slower(0.10)
    assert quiet.slower(0.04)


def test_one_slow_moment_is_not_a_slow_commit():
    assert not Timing([0.01] * 15, [0.01] * 10 + [0.05] * 5).slower(0.1)


def test_a_median_that_noise_can_explain_is_not_enough():
    assert not Timing([0.01] * 21, [0.012] * 11 + [0.008] * 10).slower(0.1)
    assert Timing([0.01] * 21, [0.012] * 18 + [0.008] * 3).slower(0.1)  # three odd pairs of 21 hide nothing
