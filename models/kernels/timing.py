"""Times that can be trusted: contenders take turns, and are repeated until three repetitions agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from suite import quiet

SETTLED = 0.05
"""Spread below which three repetitions agree."""

IN_A_ROW = 3
"""Calls of a contender that follow each other, as the updates of a training do: its caches are then its own."""

Step = Callable[[], object]


def spread(values: list[float]) -> float:
    """(largest − smallest) / median."""
    return (max(values) - min(values)) / median(values)


@dataclass(frozen=True)
class Times:
    """Of each contender the best time in each repetition, three of them that follow each other.

    settled: they agree, in the time of the first contender and in its ratio to the second, to ``SETTLED``.
    """

    seconds: dict[str, list[float]]
    settled: bool
    others: float | None = None
    stolen: float | None = None

    def of(self, name: str) -> float:
        return median(self.seconds[name])

    def ratios(self) -> list[float]:
        """The second contender's time over the first's, of each repetition."""
        first, second = list(self.seconds.values())[:2]
        return [b / a for a, b in zip(first, second, strict=True)]

    def spread(self) -> float:
        """The larger of those of the first contender's time and of the ratio."""
        return max(spread(next(iter(self.seconds.values()))), spread(self.ratios()))

    def disturbances(self) -> list[str]:
        """Why not to trust them; empty if the machine was quiet and the repetitions agree."""
        said = str(quiet.Disturbance(self.others, self.stolen))
        unsettled = "" if self.settled else f"repetitions differ by {self.spread():.0%}"
        return [reason for reason in (said, unsettled) if reason]


def repeated(
    contenders: Mapping[str, Step],
    prepare: Step = lambda: None,
    repetition: float = 0.6,
    limit: float = 12.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Measure until three repetitions in a row agree, or until ``limit`` seconds have passed and there are three.

    A repetition is rounds of ``IN_A_ROW`` calls each, for ``repetition`` seconds and at least one round. ``prepare`` is
    called before every call and not timed. Calls must return when their work is done.
    """
    for step in contenders.values():
        prepare()
        step()
    before, started = quiet.look(), clock()
    found: dict[str, list[float]] = {name: [] for name in contenders}
    while True:
        for name, seconds in _best_of_rounds(contenders, prepare, repetition, clock).items():
            found[name].append(seconds)
        times = Times({name: seconds[-3:] for name, seconds in found.items()}, settled=False)
        count = len(next(iter(found.values())))
        settled = count >= 3 and times.spread() < SETTLED
        if settled or (count >= 3 and clock() - started >= limit):
            noise = quiet.between(before, quiet.look())
            return Times(times.seconds, settled, noise.others, noise.stolen)


def _best_of_rounds(
    contenders: Mapping[str, Step], prepare: Step, least: float, clock: Callable[[], float]
) -> dict[str, float]:
    best = dict.fromkeys(contenders, float("inf"))
    started = clock()
    while True:
        for name, step in contenders.items():
            for _ in range(IN_A_ROW):
                prepare()
                before = clock()
                step()
                best[name] = min(best[name], clock() - before)
        if clock() - started >= least:
            return best
