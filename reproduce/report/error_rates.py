"""How often the rules for printed values and for orders err, simulated.

``python -m reproduce.report.error_rates`` prints the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtr

from reproduce.report.verdicts import ALPHA, FEWEST_FOR_ORDER, FEWEST_WHERE_CLOSE, Array, decided


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


def simulate_order(ratio: float, distance: float, *, trials: int = 40_000, seed: int = 0) -> tuple[float, float]:
    """How often two rows are told apart by three seeds a side, and by three or, where those leave it open, five.

    The rows are normal, ``distance`` apart in deviations of the one; the other's deviation is ``ratio`` times as large.
    """
    random = np.random.RandomState(seed)
    a = random.standard_normal((trials, FEWEST_WHERE_CLOSE))
    b = distance + ratio * random.standard_normal((trials, FEWEST_WHERE_CLOSE))
    three = _welch_p(a[:, :FEWEST_FOR_ORDER], b[:, :FEWEST_FOR_ORDER]) <= ALPHA
    return float(three.mean()), float((three | (_welch_p(a, b) <= ALPHA)).mean())


def _welch_p(a: Array, b: Array) -> Array:
    n = a.shape[1]
    u, v = a.var(axis=1, ddof=1) / n, b.var(axis=1, ddof=1) / n
    freedom = (u + v) ** 2 * (n - 1) / (u**2 + v**2)
    return np.asarray(2 * stdtr(freedom, -abs(a.mean(axis=1) - b.mean(axis=1)) / np.sqrt(u + v)))


SEEDS = (5, 10, 20)
RATIOS = (1.0, 3.0, 10.0)  # of the deviations of two rows
DISTANCES = (0.0, 2.0, 4.0)
DEVIATIONS = (0.25, 0.5, 1.0, 2.0)  # of the margin


def error_rates_markdown() -> str:
    """Simulated error rates and power of ``judge`` as a page of Markdown, equal in every byte each time."""
    lines = [_INTRODUCTION, f"| {' | '.join(_COLUMNS)} |", "|" + "---:|" * len(_COLUMNS)]
    for deviation in DEVIATIONS:
        for n in SEEDS:
            cells = " | ".join(f"{100 * rate:.1f} %" for rate in _row(n, deviation))
            lines.append(f"| {deviation:g} | {n} | {cells} |")
    lines += [_REMARKS, _ORDERS]
    for ratio in RATIOS:
        rates = [rate for distance in DISTANCES for rate in simulate_order(ratio, distance * ratio)]
        lines.append(f"| {ratio:g} | {' | '.join(f'{100 * rate:.1f} %' for rate in rates)} |")
    return "\n".join([*lines, _ABOUT_ORDERS])


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

Written by `python -m reproduce.report.error_rates`; 40,000 trials per cell with a fixed random seed, so that the
standard error of a rate is at most 0.25 points and 0.11 at 5 %. "At k margins" says where the true mean of our seeds
lies from the printed value, *s* is the deviation between seeds. Seeds are normal, but for the column "long tail"
(exponential). "Printed is a run like ours": the printed value is itself one run of our distribution.
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

_ORDERS = """\
# How often an order errs

Two rows, Welch's test at 5 % without Holm's correction. "Three" is three seeds a side; "or five" has two more each
where three leave the order open, which is a second chance to err. Distances are in deviations of the row that spreads
more.

| ratio of deviations | equal rows: three | or five | 2 s apart: three | or five | 4 s apart: three | or five |
|---:|---:|---:|---:|---:|---:|---:|"""

_ABOUT_ORDERS = """
- The second look makes a wrong order of two equal rows likelier than 5 %, by what the first columns say. A third one
  would again, so nothing asks for more than five seeds of an order that stays open.
"""


if __name__ == "__main__":
    print(error_rates_markdown(), end="")
