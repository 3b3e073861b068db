"""Verdicts on plain numbers: a printed value, an order of models, a user's run, a claim.

Everything here is a rule on numbers; nothing reads a record or a file. Seeds are taken as independent draws from one
normal distribution, on a log scale where a rule says so. How often the rule for printed values errs, also for seeds
that are not normal, is simulated in ``verdicts.md``, which ``python -m reproduce.report.verdicts`` prints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from itertools import combinations
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Interval = tuple[float, float]
Array = NDArray[np.float64]

FEWEST_SEEDS = 5  # for a verdict on a printed value
FEWEST_FOR_ORDER = 3  # for an order, a threshold, and the open division
FEWEST_WHERE_CLOSE = 5  # for an order that three seeds leave open
MOST_SEEDS = 1000  # where the search for a deciding number of seeds ends
ALPHA = 0.05
RESAMPLES = 4000
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
    return Summary(n, mean, _t(0.95, n - 1) * deviation / math.sqrt(n), deviation)


def prediction_interval(values: Sequence[float]) -> Interval | None:
    """Where one more run falls with probability 95 %: mean ± t · s · √(1 + 1/n); None for fewer than two values."""
    summary = summarise(values)
    if summary is None or summary.deviation is None:
        return None
    return _around(summary.mean, float(_reach(np.float64(summary.n))) * summary.deviation)


def _t(level: float, freedom: float) -> float:
    """Half-width of the central interval of Student's distribution."""
    return float(stdtrit(freedom, 0.5 + level / 2))


def _reach(n: Array | np.float64) -> Array:
    """Half-width of the 95 % prediction interval of one run, in deviations."""
    return np.asarray(stdtrit(n - 1, 0.975) * np.sqrt(1 + 1 / n))


def _around(centre: float, half: float) -> Interval:
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
    narrow, wide = _t(0.90, summary.n - 1) * error, _t(0.95, summary.n - 1) * error
    reach = float(_reach(np.float64(summary.n))) * summary.deviation
    return Difference(summary.n, mean, margin, _around(mean, narrow), _around(mean, wide), _around(mean, reach))


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


# An order

OrderWord = Literal["better", "worse", "not separated", "too few seeds"]


@dataclass(frozen=True)
class Order:
    """How a compares with b; without the fields from ``effect`` on where one of them has too few seeds.

    ``effect`` is mean(a) − mean(b), on a log scale the ratio of the geometric means a / b, with Welch's 95 % interval.
    ``improvement`` is the probability that a run of a is better than a run of b, ties counting half.
    """

    seeds: tuple[int, int]
    log_scale: bool
    ahead: int = 0  # 1 if a is better by the means, -1 if b is
    effect: float | None = None
    effect_interval: Interval | None = None
    improvement: float | None = None
    improvement_interval: Interval | None = None
    p_value: float | None = None  # Welch, two-sided
    p_adjusted: float | None = None  # after Holm, over the pairs that were tested together

    @property
    def word(self) -> OrderWord:
        """*better* or *worse* if the adjusted p is at most 5 %, else *not separated*; of a against b."""
        if self.p_adjusted is None:
            return "too few seeds"
        if self.p_adjusted > ALPHA or self.ahead == 0:
            return "not separated"
        return "better" if self.ahead > 0 else "worse"

    @property
    def missing(self) -> tuple[int, int]:
        """Seeds that a and b lack: to three where there are too few, to five where the order stays open."""
        aims = {"too few seeds": FEWEST_FOR_ORDER, "not separated": FEWEST_WHERE_CLOSE}
        a, b = (max(0, aims.get(self.word, 0) - n) for n in self.seeds)
        return a, b


def should_log(values: Sequence[float]) -> bool:
    """Whether values are compared on a log scale: all positive, and the largest more than 10 times the smallest."""
    return bool(values) and min(values) > 0 and max(values) > 10 * min(values)


def order(a_values: Sequence[float], b_values: Sequence[float], higher_is_better: bool, log_scale: bool) -> Order:
    """Welch's t-test and the probability of improvement, for at least three seeds each at one budget.

    On a log scale (errors over several decades) the test compares mean logarithms. The interval of the probability of
    improvement is a percentile bootstrap over the seeds of each side, with a fixed random seed; where the two sides do
    not overlap at all it shrinks to a point whatever the number of seeds, so the word rests on Welch's test alone. A
    diverged run has no value, and leaving it out flatters its side: the caller says how many there were.
    """
    seeds = len(a_values), len(b_values)
    a, b = (_scaled(values, log_scale) for values in (a_values, b_values))
    if min(seeds) < FEWEST_FOR_ORDER:
        return Order(seeds, log_scale)
    difference, half, p_value = _welch(a, b)
    low, high = _around(difference, half)
    sign = 1 if higher_is_better else -1
    wins = np.sign(sign * (np.asarray(a_values, float)[:, None] - np.asarray(b_values, float)[None, :])) / 2 + 0.5
    return Order(
        seeds,
        log_scale,
        ahead=sign * ((difference > 0) - (difference < 0)),
        effect=math.exp(difference) if log_scale else difference,
        effect_interval=(math.exp(low), math.exp(high)) if log_scale else (low, high),
        improvement=float(wins.mean()),
        improvement_interval=_bootstrap(wins),
        p_value=p_value,
        p_adjusted=p_value,
    )


def _scaled(values: Sequence[float], log_scale: bool) -> list[float]:
    if log_scale and not all(v > 0 for v in values):
        raise ValueError("a log scale needs values above 0")
    return [math.log(v) for v in values] if log_scale else list(values)


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """Difference of the means, half-width of its 95 % interval, two-sided p; p is 0 or 1 where neither side spreads."""
    first, second = summarise(a), summarise(b)
    assert first is not None
    assert second is not None
    assert first.deviation is not None
    assert second.deviation is not None
    difference = first.mean - second.mean
    u, v = first.deviation**2 / first.n, second.deviation**2 / second.n
    if u + v == 0:
        return difference, 0.0, float(difference == 0)
    freedom = (u + v) ** 2 / (u**2 / (first.n - 1) + v**2 / (second.n - 1))
    error = math.sqrt(u + v)
    p_value = 2 * float(stdtr(freedom, -abs(difference) / error))
    return difference, _t(0.95, freedom) * error, p_value


def _bootstrap(wins: Array) -> Interval:
    """95 % percentile interval of the mean of wins[i, j] over resampled rows and columns."""
    random = np.random.RandomState(0)  # its stream is frozen across versions of numpy, a Generator's is not
    rows = random.randint(wins.shape[0], size=(RESAMPLES, wins.shape[0]))
    columns = random.randint(wins.shape[1], size=(RESAMPLES, wins.shape[1]))
    means = wins[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values in the order given: the k-th smallest of m times (m − k + 1), rising, at most 1."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def adjust(orders: Sequence[Order]) -> list[Order]:
    """The same orders with Holm's correction over those that have a test; earlier corrections are forgotten."""
    adjusted = iter(holm([o.p_value for o in orders if o.p_value is not None]))
    return [o if o.p_value is None else replace(o, p_adjusted=next(adjusted)) for o in orders]


@dataclass(frozen=True)
class Pairs:
    """Every pair of models on one task; ``ranked`` is best first by the means, a model without values last."""

    ranked: tuple[str, ...]
    orders: dict[tuple[str, str], Order]  # each pair once, the one ranked first before the other
    higher_is_better: bool

    def beats(self, name: str) -> list[str]:
        """The models that this one is better than at 5 %, after Holm over all pairs."""
        return [b for (a, b), found in self.orders.items() if a == name and found.word == "better"]

    @property
    def line(self) -> str:
        """All pairs in one line, such as "DuRNN < IndRNN ? LSTM" for errors; ">" where higher is better.

        "<" stands where every model before it beats every model after it, and "?" where some such pair is not
        separated. Wins across a "?" that no "<" implies follow by name.
        """
        sign = ">" if self.higher_is_better else "<"
        cuts = [self._is_cut(k) for k in range(1, len(self.ranked))]
        text = self.ranked[0] if self.ranked else ""
        for name, cut in zip(self.ranked[1:], cuts, strict=True):
            text += f" {sign if cut else '?'} {name}"
        for place, name in enumerate(self.ranked):
            block = cuts.index(True, place) + 1 if True in cuts[place:] else len(self.ranked)
            if more := [b for b in self.beats(name) if b in self.ranked[:block]]:
                text += f"; {name} {sign} {', '.join(more)}"
        return text

    def _is_cut(self, place: int) -> bool:
        return all(self.orders[a, b].word == "better" for a in self.ranked[:place] for b in self.ranked[place:])


def all_pairs(groups: Mapping[str, Sequence[float]], higher_is_better: bool, log_scale: bool | None = None) -> Pairs:
    """``order`` for every pair, with Holm's correction over all pairs that have enough seeds.

    All pairs share one scale: unless it is stated, logarithmic if ``should_log`` of all values together.
    """
    if log_scale is None:
        log_scale = should_log([v for values in groups.values() for v in values])

    def place(name: str) -> tuple[bool, float]:
        summary = summarise(_scaled(groups[name], log_scale))
        return summary is None, 0.0 if summary is None else -summary.mean if higher_is_better else summary.mean

    ranked = tuple(sorted(groups, key=place))
    pairs = list(combinations(ranked, 2))
    orders = adjust([order(groups[a], groups[b], higher_is_better, log_scale) for a, b in pairs])
    return Pairs(ranked, dict(zip(pairs, orders, strict=True)), higher_is_better)


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


# A claim

ClaimWord = Literal["supported", "contradicted", "undecided"]


@dataclass(frozen=True)
class ClaimVerdict:
    """``reason`` says what the word rests on or what is missing; the budget it was judged at is the caller's to add."""

    word: ClaimWord
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


def threshold_claim(values: Sequence[float], limit: float, below: bool = True) -> ClaimVerdict:
    """The claim "every run ends below (above) the limit", strictly, from at least three seeds.

    *supported* if all seeds do, *contradicted* if none does, *undecided* if only some do or seeds are missing. A
    diverged seed is a failure: it is given as infinity (minus infinity for a lower limit), not left out.
    """
    if any(math.isnan(v) for v in values):
        raise ValueError("a value is not a number; a diverged seed is given as infinity")
    met, side = sum(v < limit if below else v > limit for v in values), "below" if below else "above"
    reason = f"{met} of {len(values)} seeds {side} {limit:g}"
    if len(values) < FEWEST_FOR_ORDER:
        return ClaimVerdict("undecided", f"{reason}; {FEWEST_FOR_ORDER - len(values)} more needed")
    return ClaimVerdict("supported" if met == len(values) else "undecided" if met else "contradicted", reason)


def order_claim(orders: Mapping[str, Order]) -> ClaimVerdict:
    """The claim "a is better than b" for each named pair, with Holm's correction over the pairs of the claim.

    *supported* if a is *better* in all pairs, *contradicted* if it is *worse* in one, else *undecided*.
    """
    return every({name: _pair_claim(o) for name, o in zip(orders, adjust(list(orders.values())), strict=True)})


def _pair_claim(found: Order) -> ClaimVerdict:
    lacking = " and ".join(str(n) for n in found.missing)
    if found.p_adjusted is None:
        return ClaimVerdict("undecided", f"too few seeds, {lacking} missing")
    words: dict[OrderWord, ClaimWord] = {"better": "supported", "worse": "contradicted"}
    reason = f"p = {found.p_adjusted:.2g}" + (f", {lacking} seeds missing" if any(found.missing) else "")
    return ClaimVerdict(words.get(found.word, "undecided"), reason)


def every(parts: Mapping[str, ClaimVerdict]) -> ClaimVerdict:
    """A claim that holds if all its parts do: one contradicted part contradicts it, else one undecided leaves it open.

    The reason names the parts that decide.
    """
    found = {part.word for part in parts.values()}
    if not found:
        return ClaimVerdict("undecided", "nothing to judge")
    precedence: tuple[ClaimWord, ...] = ("contradicted", "undecided", "supported")
    word = next(w for w in precedence if w in found)
    reasons = [f"{name}: {part.reason}" if part.reason else name for name, part in parts.items() if part.word == word]
    return ClaimVerdict(word, "; ".join(reasons))


# How often the rule for printed values errs


@dataclass(frozen=True)
class Rates:
    reproduced: float
    not_reproduced: float


def simulate(
    n: int,
    deviation: float,
    offset: float,
    *,
    printed: Literal["mean", "run"] = "mean",
    tail: bool = False,
    trials: int = 40_000,
    seed: int = 0,
) -> Rates:
    """How often n seeds give each verdict; deviation and offset of the true mean from the printed value in margins.

    Seeds are normal, or with ``tail`` exponential (skewness 2, long on the side of larger values). With
    ``printed="run"`` the printed value is itself one run of that distribution, shifted by the offset.
    """
    random = np.random.RandomState(seed)  # its stream is frozen across versions of numpy, a Generator's is not
    shape = (trials, n + 1)
    draws = random.standard_exponential(shape) - 1 if tail else random.standard_normal(shape)
    ours = draws[:, :n]
    mean = offset + deviation * (ours.mean(axis=1) - (draws[:, n] if printed == "run" else 0))
    inside, outside = decided(mean, deviation * ours.std(axis=1, ddof=1), n, 1.0)
    return Rates(float(inside.mean()), float(outside.mean()))


SEEDS = (5, 10, 20)
DEVIATIONS = (0.25, 0.5, 1.0, 2.0)  # of the margin


def error_rates_markdown() -> str:
    """Simulated error rates and power of ``judge`` as a page of Markdown, equal in every byte each time."""
    lines = [_INTRODUCTION, f"| {' | '.join(_COLUMNS)} |", "|" + "---:|" * len(_COLUMNS)]
    for deviation in DEVIATIONS:
        for n in SEEDS:
            cells = " | ".join(f"{100 * rate:.1f} %" for rate in _row(n, deviation))
            lines.append(f"| {deviation:g} | {n} | {cells} |")
    return "\n".join([*lines, _REMARKS])


def _row(n: int, deviation: float) -> list[float]:
    edge = simulate(n, deviation, 1.0)
    return [
        edge.reproduced,
        simulate(n, deviation, 1.0, tail=True).reproduced,
        edge.not_reproduced,
        simulate(n, deviation, 0.0, printed="run").not_reproduced,
        simulate(n, deviation, 0.0).reproduced,
        simulate(n, deviation, 2.0).not_reproduced,
        simulate(n, deviation, 3.0).not_reproduced,
    ]


_COLUMNS = (
    "s / margin", "seeds", "wrong *reproduced* at 1 margin", "… long tail", "wrong *not reproduced* at 1 margin",
    "… printed is a run like ours", "*reproduced* at 0", "*not reproduced* at 2 margins",
    "*not reproduced* at 3 margins",
)  # fmt: skip

_INTRODUCTION = """\
# How often the verdict on a printed value errs

Written by `python -m reproduce.report.verdicts`; 40,000 trials per cell with a fixed random seed, so that the standard
error of a rate is at most 0.25 points and 0.11 at 5 %. "At k margins" says where the true mean of our seeds lies from
the printed value, *s* is the deviation between seeds. Seeds are normal, but for the column "long tail" (exponential).
"Printed is a run like ours": the printed value is itself one run of our distribution.
"""

_REMARKS = """
- A wrong *reproduced* is likeliest with the true mean exactly on the margin; there it stays within 5 %.
- With a long tail on the far side it does not: few seeds without one of the bad runs look closer to the printed value,
  and more alike, than they are. More seeds help slowly; looking at the single seeds helps more.
- A wrong *not reproduced* stays within 2.5 % for a mean on the margin, and within 5 % for a printed value that is one
  run like ours, up to the error of the simulation.
- More seeds raise the power of *reproduced*. They raise that of *not reproduced* only where the distance exceeds
  1.96 *s*: below that a single run of ours may well give the printed value, and more seeds make it surer that the
  verdict stays *inconclusive*.
"""


if __name__ == "__main__":
    print(error_rates_markdown(), end="")
