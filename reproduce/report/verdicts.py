"""Verdicts on plain numbers: a printed value, and a user's run beside the published ones.

Everything here is a rule on numbers; nothing reads a record or a file. Seeds are taken as independent draws from one
normal distribution, on a log scale where a rule says so. How often the rule for printed values errs, also for seeds
that are not normal, is simulated in ``error_rates.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Interval = tuple[float, float]
Array = NDArray[np.float64]

FEWEST_SEEDS = 5  # for a verdict on a printed value
FEWEST_FOR_ORDER = 3  # for an order, a threshold, and the open division
FEWEST_WHERE_CLOSE = 5  # for an order that three seeds leave open
MOST_SEEDS = 1000  # where the search for a deciding number of seeds ends
ALPHA = 0.05
EDGE = 1 + 1e-9  # the edge of a margin belongs to it; binary rounding must not decide


# Means and intervals


@dataclass(frozen=True)
class Summary:
    """Mean and 95 % interval of the mean, ± ``half``; ``half`` and ``deviation`` are None for a single seed."""

    n: int
    mean: float
    half: float | None
    deviation: float | None


def summarise(values: Sequence[float]) -> Summary | None:
    """Student's 95 % interval of the mean over seeds, t · s / √n; None without values."""
    if not values:
        return None
    if not all(math.isfinite(v) for v in values):
        raise ValueError("a test metric is not finite; a diverged run has none and is named as an obstacle")
    n = len(values)
    equal = min(values) == max(values)  # then exact: a rounded mean would leave a spread of its own
    mean = values[0] if equal else math.fsum(values) / n
    if n == 1:
        return Summary(1, mean, None, None)
    deviation = 0.0 if equal else math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    return Summary(n, mean, quantile(0.95, n - 1) * deviation / math.sqrt(n), deviation)


def prediction_interval(values: Sequence[float]) -> Interval | None:
    """Where one more run falls with probability 95 %: mean ± t · s · √(1 + 1/n); None for fewer than two values."""
    summary = summarise(values)
    if summary is None or summary.deviation is None:
        return None
    return around(summary.mean, float(_reach(np.float64(summary.n))) * summary.deviation)


def quantile(level: float, freedom: float) -> float:
    """Half-width of the central interval of Student's distribution."""
    return float(stdtrit(freedom, 0.5 + level / 2))


def _reach(n: Array | np.float64) -> Array:
    """Half-width of the 95 % prediction interval of one run, in deviations."""
    return np.asarray(stdtrit(n - 1, 0.975) * np.sqrt(1 + 1 / n))


def around(centre: float, half: float) -> Interval:
    return centre - half, centre + half


# A printed number

ObstacleWord = Literal[
    "not implemented", "not run", "not comparable", "diverged", "no printed value", "different protocol", "inconclusive"
]
NumberWord = ObstacleWord | Literal["reproduced", "not reproduced", "reached", "not reached"]
PRECEDENCE: tuple[ObstacleWord, ...] = get_args(ObstacleWord)


@dataclass(frozen=True)
class Obstacle:
    """What keeps runs from deciding about a printed value, and the word that the verdict is then.

    *not implemented*, *not run*; *not comparable*: a stand-in or a part of the data; *diverged*: every seed did;
    *different protocol*: the cited number comes from another task; *inconclusive*: a reduced budget, an unfinished
    schedule, some seeds diverged.
    """

    word: ObstacleWord
    reason: str = ""


@dataclass(frozen=True)
class Difference:
    """Mean of our seeds minus the printed value; intervals are None for a single seed.

    ``margin`` is the stated one, but at least half a unit of the last printed digit. ``prediction`` is where the value
    of one run of ours, minus the printed value, falls with probability 95 %.
    """

    n: int
    mean: float
    margin: float
    interval_90: Interval | None
    interval_95: Interval | None
    prediction: Interval | None


@dataclass(frozen=True)
class Verdict:
    """``difference`` is None where there is nothing to subtract or the two numbers measure different things.

    ``seeds_needed`` is the smallest number of seeds that would decide if mean and deviation stayed as they are; None if
    the verdict is decided, if an obstacle stands in the way, or if no number up to ``MOST_SEEDS`` would do.
    """

    word: NumberWord
    reason: str = ""
    difference: Difference | None = None
    seeds_needed: int | None = None

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


def half_unit(printed: str) -> float:
    """Half a unit of the last printed digit: 0.005 for "1.68", 0.5 for "18"."""
    try:
        exponent = Decimal(printed).as_tuple().exponent
    except InvalidOperation:
        exponent = "n"
    if not isinstance(exponent, int):
        raise ValueError(f"{printed!r} is not a printed number")
    return 0.5 * 10.0**exponent


def compare(printed: str, margin: float, values: Sequence[float]) -> Difference:
    """The difference to a printed value and its intervals."""
    summary = summarise(values)
    if summary is None:
        raise ValueError("without values there is no difference to the printed one")
    if not (math.isfinite(margin) and margin >= 0):
        raise ValueError(f"a margin is a number from 0 upwards, not {margin}")
    margin = max(margin, half_unit(printed))
    mean = summary.mean - float(printed)
    if summary.deviation is None:
        return Difference(summary.n, mean, margin, None, None, None)
    error = summary.deviation / math.sqrt(summary.n)
    narrow, wide = quantile(0.90, summary.n - 1) * error, quantile(0.95, summary.n - 1) * error
    reach = float(_reach(np.float64(summary.n))) * summary.deviation
    return Difference(summary.n, mean, margin, around(mean, narrow), around(mean, wide), around(mean, reach))


def judge(
    printed: str | None,
    margin: float,
    values: Sequence[float],
    higher_is_better: bool,
    obstacles: Sequence[Obstacle] = (),
) -> Verdict:
    """The verdict on one printed value from the test metrics of our seeds; ``margin`` was stated beforehand.

    1. An obstacle decides the word, the first in the order of ``PRECEDENCE``. Without values it is *not run*, unless an
       obstacle says why there are none; where the paper prints nothing (None or "-"), *no printed value*.
    2. Fewer than five seeds are *inconclusive*.
    3. *reproduced*: the 90 % interval of (our mean − printed) lies inside ± margin, that is, two one-sided t-tests at
       5 % reject a mean that is further away. The margin is at least half a unit of the last printed digit.
    4. *not reproduced*: the 95 % interval of (our mean − printed) lies outside ± margin, on one side, and the printed
       value, which is one run and is rounded, lies more than half a unit of its last digit outside our 95 % prediction
       interval of a single run, mean ± t · s · √(1 + 1/n).
    5. Else *inconclusive*, with the number of seeds that would decide if mean and deviation stayed as they are.
    """
    if obstacle := _obstacle(printed, values, obstacles):
        return _blocked(obstacle, printed, margin, values)
    assert printed is not None
    difference = compare(printed, margin, values)
    deviation = _deviation(values)
    if deviation is None:
        return Verdict("inconclusive", f"1 of at least {FEWEST_SEEDS} seeds", difference)
    rounding = half_unit(printed)
    inside, outside = decided(difference.mean, deviation, difference.n, difference.margin, rounding)
    if inside:
        return Verdict("reproduced", "", difference)
    if outside:
        return Verdict("not reproduced", _side(difference.mean, higher_is_better), difference)
    needed = seeds_needed(difference.mean, deviation, difference.n, difference.margin, rounding)
    return Verdict("inconclusive", f"{_doubt(difference)}; {_outlook(needed)}", difference, needed)


def judge_open(
    printed: str | None,
    margin: float,
    values: Sequence[float],
    higher_is_better: bool,
    obstacles: Sequence[Obstacle] = (),
) -> Verdict:
    """The verdict on runs with a training recipe of our own: *reached* or *not reached*, never *reproduced*.

    Obstacles as in ``judge``; fewer than three seeds are *inconclusive*. *reached*: our mean is at least as good as the
    printed value, and the one-sided 95 % bound of our mean is at most the margin worse than it. Else *not reached*.
    """
    if obstacle := _obstacle(printed, values, obstacles):
        return _blocked(obstacle, printed, margin, values)
    assert printed is not None
    difference = compare(printed, margin, values)
    if difference.n < FEWEST_FOR_ORDER or difference.interval_90 is None:
        return Verdict("inconclusive", f"{difference.n} of at least {FEWEST_FOR_ORDER} seeds", difference)
    low, high = difference.interval_90
    gain, bound = (difference.mean, low) if higher_is_better else (-difference.mean, -high)
    if gain < 0:
        return Verdict("not reached", "mean is worse than the printed value", difference)
    if bound < -difference.margin * EDGE:
        return Verdict("not reached", "the 95 % bound of the mean is worse by more than the margin", difference)
    return Verdict("reached", "", difference)


def decided(
    difference: float | Array, deviation: float | Array, n: float | Array, margin: float, rounding: float = 0.0
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Rules 2 to 4 of ``judge`` elementwise: whether (*reproduced*, *not reproduced*) holds; never both."""
    distance, n = np.abs(np.asarray(difference, float)), np.asarray(n, float)
    spread = np.asarray(deviation, float)
    error, edge = spread / np.sqrt(n), margin * EDGE
    inside = distance + stdtrit(n - 1, 0.95) * error <= edge
    outside = distance - stdtrit(n - 1, 0.975) * error > edge
    apart = distance - rounding > _reach(n) * spread
    enough = n >= FEWEST_SEEDS
    return np.asarray(enough & inside), np.asarray(enough & outside & apart)


def seeds_needed(difference: float, deviation: float, n: int, margin: float, rounding: float = 0.0) -> int | None:
    """The smallest number of seeds above n that would decide if mean and deviation stayed as they are."""
    counts = np.arange(max(n + 1, FEWEST_SEEDS), MOST_SEEDS + 1, dtype=float)
    inside, outside = decided(difference, deviation, counts, margin, rounding)
    deciding = counts[inside | outside]
    return int(deciding[0]) if deciding.size else None


def _obstacle(printed: str | None, values: Sequence[float], obstacles: Sequence[Obstacle]) -> Obstacle | None:
    """The obstacle that decides, with the reasons of all that share its word."""
    found = list(obstacles)
    if not values and all(o.word == "different protocol" for o in obstacles):
        found.append(Obstacle("not run"))
    if printed is None or printed == "-":
        found.append(Obstacle("no printed value"))
    if not found:
        return None
    word = min((o.word for o in found), key=PRECEDENCE.index)
    return Obstacle(word, "; ".join(o.reason for o in found if o.word == word and o.reason))


def _blocked(obstacle: Obstacle, printed: str | None, margin: float, values: Sequence[float]) -> Verdict:
    if obstacle.word == "inconclusive" and printed is not None and values:
        return Verdict(obstacle.word, obstacle.reason, compare(printed, margin, values))
    return Verdict(obstacle.word, obstacle.reason)


def _deviation(values: Sequence[float]) -> float | None:
    summary = summarise(values)
    return summary.deviation if summary else None


def _side(difference: float, higher_is_better: bool) -> str:
    return "ours is better" if (difference > 0) == higher_is_better else "ours is worse"


def _doubt(difference: Difference) -> str:
    """Why two or more seeds do not decide."""
    if difference.n < FEWEST_SEEDS:
        return f"{difference.n} of at least {FEWEST_SEEDS} seeds"
    assert difference.interval_95 is not None
    low, high = difference.interval_95
    if abs(difference.mean) <= difference.margin * EDGE:
        return "mean within the margin, its interval not"
    if max(low, -high) <= difference.margin * EDGE:
        return "mean outside the margin, its interval not"
    return "mean outside the margin, but a single run of ours may give the printed value"


def _outlook(needed: int | None) -> str:
    if needed is None:
        return f"no number of seeds up to {MOST_SEEDS:,} would decide"
    return f"{needed} seeds would decide if mean and deviation stay"


# What the printed numbers can show by themselves


@dataclass(frozen=True)
class PrintedDifference:
    difference: float  # a − b, in points
    samples_apart: float  # the difference in test samples
    standard_error: float
    ratio: float  # |difference| / standard error


def sampling_error(value_percent: float, samples: int) -> float:
    """Standard error in points of an error or accuracy in percent of that many test samples: 100 · √(p (1 − p) / n)."""
    if not 0 <= value_percent <= 100:
        raise ValueError(f"a percentage lies between 0 and 100, not at {value_percent}")
    if samples < 1:
        raise ValueError(f"a test set has at least one sample, not {samples}")
    return math.sqrt(value_percent * (100 - value_percent) / samples)


def printed_difference(a: float, b: float, samples: int) -> PrintedDifference:
    """How far two printed percentages on test sets of one size are apart, for independent binomials.

    Two models that are tested on the same samples tend to err on the same ones; the standard error of their difference
    is then smaller, by an amount that printed numbers do not tell.
    """
    difference = a - b
    error = math.hypot(sampling_error(a, samples), sampling_error(b, samples))
    ratio = abs(difference) / error if error else (math.inf if difference else 0.0)
    return PrintedDifference(difference, difference * samples / 100, error, ratio)


def default_margin(value: float, samples: int | None, rerun_spread: float = 0.0) -> float:
    """The larger of twice the sampling error of a printed percentage and the spread between published re-runs.

    ``samples`` is None where the value is no percentage of samples (bits per character): the spread alone decides.
    """
    margin = max(rerun_spread, 2 * sampling_error(value, samples) if samples is not None else 0.0)
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError("a margin needs a number of test samples or a positive spread between re-runs")
    return margin


# A user's run beside the published ones

AgreementWord = Literal["equal", "agrees", "differs", "one published seed", "nothing published"]


@dataclass(frozen=True)
class Agreement:
    word: AgreementWord
    reason: str = ""
    interval: Interval | None = None  # 95 % prediction interval of the published seeds

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


def agreement(
    yours: float, published_values: Sequence[float], same_bits_expected: bool, *, counterpart: float | None = None
) -> Agreement:
    """Whether one run agrees with the published runs of the same settings.

    1. *equal*: the very number of the published run with the same seed, ``counterpart``; if that is not given, of any
       published run, which on a small test set may tie by chance.
    2. *differs*: not equal although equal bits were expected (same machine kind, reference recurrences, one thread).
    3. *one published seed* or *nothing published*: there is no spread between seeds to compare with.
    4. *agrees*: inside the 95 % prediction interval of the published seeds, mean ± t · s · √(1 + 1/n); else *differs*.
    """
    if yours in (published_values if counterpart is None else (counterpart,)):
        return Agreement("equal")
    if not published_values:
        return Agreement("nothing published")
    interval = prediction_interval(published_values)
    inside = interval is not None and interval[0] <= yours <= interval[1]
    if same_bits_expected:
        where = f"; {'inside' if inside else 'outside'} the spread between seeds" if interval else ""
        return Agreement("differs", f"equal bits were expected{where}", interval)
    if interval is None:
        return Agreement("one published seed")
    reason = f"{len(published_values)} published seeds predict {interval[0]:.4g} to {interval[1]:.4g}"
    return Agreement("agrees" if inside else "differs", reason, interval)
