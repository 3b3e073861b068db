"""Means, intervals and verdicts.

The rule of the verdict, for one row of a table on one task, in this order:

1. *not implemented*: the zoo has no such model.
2. *not run*: there is no record.
3. *not comparable*: the data is a synthetic stand-in, or a part of the real set.
4. *diverged*: every seed of the best budget diverged. (If only some did: *inconclusive*.)
5. *inconclusive*: the budget is not "paper", a run has not finished its schedule, or there are fewer than 3 seeds.
   The verdict says which.
6. The paper prints the result of one run. Under the hypothesis that it is a run like ours, it lies with probability
   95 % in the prediction interval mean ± t · s · √(1 + 1/n), with t the 97.5 % quantile of Student's distribution with
   n − 1 degrees of freedom. The interval is widened by half a unit of the last digit that the paper prints.
   *reproduced*: the printed value lies inside, and the half-width of the 95 % interval of our mean, t · s / √n, is at
   most 10 % of the printed value. *inconclusive*: inside, but our interval is wider than that, so that almost anything
   would lie inside; more seeds are needed. *not reproduced*: outside; the verdict says whether ours is better or worse.

So a reduced budget, missing seeds or other data can never read "reproduced". Where the paper prints no number, the
verdict is *no printed value*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scipy import stats as distributions

from reproduce.report.records import Record

MIN_SEEDS = 3
LEVEL = 0.95
WIDEST = 0.10  # of the printed value, for the half-width of our interval

Word = Literal[
    "reproduced", "not reproduced", "inconclusive", "not comparable", "diverged", "not run", "not implemented",
    "no printed value",
]  # fmt: skip
RANK = {"smoke": 0, "quick": 1, "cpu": 2, "paper": 3}


@dataclass(frozen=True)
class Verdict:
    word: Word
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


@dataclass(frozen=True)
class Summary:
    """Mean and 95 % interval of the mean; ``half`` is None for a single seed."""

    n: int
    mean: float
    half: float | None
    deviation: float | None


def summarise(values: list[float]) -> Summary | None:
    """Student's interval of the mean over seeds."""
    if not values:
        return None
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Summary(1, mean, None, None)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    return Summary(n, mean, _quantile(n) * deviation / math.sqrt(n), deviation)


def _quantile(n: int) -> float:
    return float(distributions.t.ppf(0.5 + LEVEL / 2, n - 1))


def printed_step(printed: str) -> float:
    """Half a unit of the last printed digit: 0.005 for "1.68", 0.5 for "18"."""
    decimals = len(printed.split(".")[1]) if "." in printed else 0
    return 0.5 * 10.0**-decimals


def judge(printed: str | None, records: list[Record], implemented: bool = True) -> Verdict:
    """The verdict on one printed value ("-" or None if the paper prints none) from the records of one configuration."""
    if not implemented:
        return Verdict("not implemented")
    if not records:
        return Verdict("not run")
    first = records[0]
    if first.task.is_standin:
        return Verdict("not comparable", "synthetic stand-in")
    if first.task.partial:
        return Verdict("not comparable", first.task.name)
    diverged = [r for r in records if r.status == "diverged"]
    finished = [r for r in records if r.status == "completed" and r.test is not None]
    if len(diverged) == len(records):
        steps = ", ".join(f"{r.diverged_at:,}" for r in diverged)
        return Verdict("diverged", f"at update {steps}")
    if printed is None or printed == "-":
        return Verdict("no printed value")
    if reason := _missing(records, finished, diverged):
        return Verdict("inconclusive", reason)
    return _compare(printed, finished)


def _missing(records: list[Record], finished: list[Record], diverged: list[Record]) -> str:
    """What keeps the records from deciding, or an empty string."""
    lowest = min(records, key=lambda r: RANK[r.budget])
    if lowest.budget != "paper":
        return f"{lowest.budget} budget, {lowest.steps_done:,} updates"
    short = [r for r in records if r.status == "unfinished" or r.ended == "time-cap"]
    if short:
        done = min(short, key=lambda r: r.steps_done)
        return f"{done.steps_done:,} of {done.steps_planned:,} updates"
    if diverged:
        return f"{len(diverged)} of {len(records)} seeds diverged"
    if len(finished) < MIN_SEEDS:
        return f"{len(finished)} of at least {MIN_SEEDS} seeds"
    return ""


def _compare(printed: str, finished: list[Record]) -> Verdict:
    summary = summarise([r.test for r in finished if r.test is not None])
    assert summary is not None
    assert summary.half is not None
    assert summary.deviation is not None
    value = float(printed)
    reach = _quantile(summary.n) * summary.deviation * math.sqrt(1 + 1 / summary.n) + printed_step(printed)
    if abs(value - summary.mean) > reach:
        better = (summary.mean > value) == finished[0].task.higher_is_better
        return Verdict("not reproduced", "ours is better" if better else "ours is worse")
    if summary.half > WIDEST * abs(value):
        return Verdict("inconclusive", f"interval ± {summary.half:.2g} is wider than 10 % of the value; more seeds")
    return Verdict("reproduced")
