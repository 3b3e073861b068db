"""Orders of models on plain numbers: all pairs, Welch's test, Holm's correction, probability of improvement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.special import stdtr

from reproduce.report.verdicts import (
    ALPHA,
    FEWEST_FOR_ORDER,
    FEWEST_WHERE_CLOSE,
    Array,
    Interval,
    Summary,
    around,
    quantile,
    summarise,
)

RESAMPLES = 4000
MOST = 100  # seeds, beyond which nobody will run a pair
LONG = 8  # models, more than which are not listed where none of them is set off from the others

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


def is_on_log_scale(metric: str) -> bool:
    """Squared errors lie decades apart and are compared by ratios; percentages and bits by differences, everywhere."""
    return metric == "mse"


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
    difference, half, p_value = _welch(*map(_summary, (a, b)))
    low, high = around(difference, half)
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


def seeds_to_separate(a_values: Sequence[float], b_values: Sequence[float], log_scale: bool) -> int | None:
    """The smallest number of seeds a side, above those there are, with which Welch's test would tell the two apart if
    means and deviations stayed as they are; None if no number up to ``MOST`` would.
    """
    sides = [_summary(_scaled(values, log_scale)) for values in (a_values, b_values)]
    for n in range(max(side.n for side in sides) + 1, MOST + 1):
        if _welch(*(replace(side, n=n) for side in sides))[2] <= ALPHA:
            return n
    return None


def _summary(values: Sequence[float]) -> Summary:
    found = summarise(values)
    assert found is not None
    return found


def _welch(first: Summary, second: Summary) -> tuple[float, float, float]:
    """Difference of the means, half-width of its 95 % interval, two-sided p; p is 0 or 1 where neither side spreads."""
    assert first.deviation is not None
    assert second.deviation is not None
    difference = first.mean - second.mean
    u, v = first.deviation**2 / first.n, second.deviation**2 / second.n
    if u + v == 0:
        return difference, 0.0, float(difference == 0)
    freedom = (u + v) ** 2 / (u**2 / (first.n - 1) + v**2 / (second.n - 1))
    error = math.sqrt(u + v)
    p_value = 2 * float(stdtr(freedom, -abs(difference) / error))
    return difference, quantile(0.95, freedom) * error, p_value


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
        separated. Wins across a "?" that no "<" implies follow by name. A long row of nothing but "?" is left out.
        """
        sign = ">" if self.higher_is_better else "<"
        cuts = [self._is_cut(k) for k in range(1, len(self.ranked))]
        text = self.ranked[0] if self.ranked else ""
        for name, cut in zip(self.ranked[1:], cuts, strict=True):
            text += f" {sign if cut else '?'} {name}"
        if len(self.ranked) > LONG and True not in cuts:
            text = f"{sum(map(len, map(self.beats, self.ranked)))} of {len(self.orders)} pairs are told apart"
        for place, name in enumerate(self.ranked):
            block = cuts.index(True, place) + 1 if True in cuts[place:] else len(self.ranked)
            if more := [b for b in self.beats(name) if b in self.ranked[:block]]:
                text += f"; {name} {sign} {', '.join(more)}"
        return text

    def _is_cut(self, place: int) -> bool:
        return all(self.orders[a, b].word == "better" for a in self.ranked[:place] for b in self.ranked[place:])


def all_pairs(groups: Mapping[str, Sequence[float]], higher_is_better: bool, log_scale: bool = False) -> Pairs:
    """``order`` for every pair, with Holm's correction over all pairs that have enough seeds."""

    def place(name: str) -> tuple[bool, float]:
        summary = summarise(_scaled(groups[name], log_scale))
        return summary is None, 0.0 if summary is None else -summary.mean if higher_is_better else summary.mean

    ranked = tuple(sorted(groups, key=place))
    pairs = list(combinations(ranked, 2))
    orders = adjust([order(groups[a], groups[b], higher_is_better, log_scale) for a, b in pairs])
    return Pairs(ranked, dict(zip(pairs, orders, strict=True)), higher_is_better)
