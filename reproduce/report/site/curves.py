"""Learning curves as SVG that stands by itself; ``static/curves.js`` adds a cursor to it.

The numbers of a chart stand once, in the table below it: for readers without eyes or scripts, and for the cursor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reproduce.report.records import Record
from reproduce.report.selection import number

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 50
STYLES = 8
"""Colours and dashes that the style sheet knows."""


@dataclass(frozen=True)
class Point:
    """One evaluation: mean over the seeds that got there, and their range."""

    step: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """The curves of one row: ``seeds`` hold (update, value)."""

    label: str
    style: int
    seeds: tuple[tuple[tuple[int, float], ...], ...]
    diverged: tuple[tuple[int, float], ...] = ()

    @property
    def points(self) -> list[Point]:
        found: dict[int, list[float]] = {}
        for seed in self.seeds:
            for step, value in seed:
                found.setdefault(step, []).append(value)
        return [Point(s, math.fsum(v) / len(v), min(v), max(v)) for s, v in sorted(found.items())]


def series(label: str, style: int, records: Sequence[Record]) -> Series:
    """The validation curves of the seeds of one row."""
    seeds = [[(p.step, p.valid) for p in r.curve if p.valid is not None and math.isfinite(p.valid)] for r in records]
    ends = [seed[-1] for r, seed in zip(records, seeds, strict=True) if r.status == "diverged" and seed]
    return Series(label, style % STYLES, tuple(tuple(seed) for seed in seeds if seed), tuple(ends))


@dataclass(frozen=True)
class Path:
    """``mean`` and ``seed`` are the attribute d of an SVG path."""

    style: int
    mean: str
    seeds: list[str]
    crosses: list[tuple[str, str]]  # centres, where a seed diverged


@dataclass(frozen=True)
class Tick:
    at: str
    label: str


@dataclass(frozen=True)
class Cell:
    value: str  # in full, for the cursor
    text: str


@dataclass(frozen=True)
class Chart:
    """Everything that ``_chart.html`` draws."""

    name: str  # of the elements, unique on a page
    title: str
    what: str  # the vertical axis
    series: list[Series]
    paths: list[Path]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    is_log: bool
    table: list[tuple[int, list[Cell | None]]]
    level: tuple[str, str] | None  # where a constant answer ends up, and its words
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


WHAT = {
    "error_percent": "validation error (%)",
    "accuracy_percent": "validation accuracy (%)",
    "bits_per_character": "validation, bits per character",
    "mse": "validation error (mean square)",
}


def chart(name: str, title: str, metric: str, shown: Sequence[Series], chance: float | None = None) -> Chart | None:
    """None where there is not a single evaluation."""
    drawn = [s for s in shown if s.points]
    values = [v for s in drawn for seed in s.seeds for _, v in seed]
    if not values:
        return None
    is_log = metric == "mse" and min(values) > 0
    top = max([*values, chance] if is_log and chance else values)
    y_range, y_steps = _log_axis(min(values), top) if is_log else _axis(min(values), max(values))
    x_range, x_steps = _axis(0, max(step for s in drawn for seed in s.seeds for step, _ in seed), is_whole=True)
    place = _Place(x_range, y_range, is_log)
    paths = [
        Path(
            s.style,
            place.path([(p.step, p.mean) for p in s.points]),
            [place.path(seed) for seed in s.seeds] if len(s.seeds) > 1 else [],
            [(place.x(step), place.y(value)) for step, value in s.diverged],
        )
        for s in drawn
    ]
    level = None
    if chance is not None and y_range[0] <= chance <= y_range[1]:
        level = place.y(chance), f"best constant answer, {number(chance, metric)}"
    return Chart(
        name,
        title,
        WHAT.get(metric, f"validation, {metric}"),
        drawn,
        paths,
        [Tick(place.x(v), f"{v:,.0f}") for v in x_steps],
        [Tick(place.y(v), _power(v) if is_log else f"{v:.10g}") for v in y_steps],
        x_range,
        y_range,
        is_log,
        _table(drawn, metric),
        level,
    )


def _table(drawn: Sequence[Series], metric: str) -> list[tuple[int, list[Cell | None]]]:
    columns = [{p.step: p for p in s.points} for s in drawn]
    steps = sorted({step for column in columns for step in column})
    return [(step, [_cell(column.get(step), metric) for column in columns]) for step in steps]


def _cell(point: Point | None, metric: str) -> Cell | None:
    if point is None:
        return None
    text = number(point.mean, metric)
    if point.low != point.high:
        text += f" ({number(point.low, metric)} to {number(point.high, metric)})"
    return Cell(f"{point.mean:.6g}", text)


@dataclass(frozen=True)
class _Place:
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    is_log: bool

    def x(self, value: float) -> str:
        low, high = self.x_range
        return f"{LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT):.1f}"

    def y(self, value: float) -> str:
        low, high = (math.log10(v) for v in self.y_range) if self.is_log else self.y_range
        at = math.log10(value) if self.is_log else value
        return f"{HEIGHT - BOTTOM - (at - low) / (high - low) * (HEIGHT - TOP - BOTTOM):.1f}"

    def path(self, points: Sequence[tuple[int, float]]) -> str:
        """A line through the points; a single one becomes a dot, by a line that goes nowhere."""
        parts = [f"{self.x(step)} {self.y(value)}" for step, value in points]
        return f"M{'L'.join(parts if len(parts) > 1 else parts * 2)}"


def _axis(low: float, high: float, is_whole: bool = False) -> tuple[tuple[float, float], list[float]]:
    """A range that ends on round numbers, and four to eight of them."""
    spread = (high - low) or abs(high) or 1.0
    unit = 10.0 ** math.floor(math.log10(spread / 4))
    step = next(unit * f for f in (1, 2, 2.5, 5, 10) if spread / (unit * f) <= 6)
    step = max(1.0, math.ceil(step)) if is_whole else step
    first = math.floor(low / step + 1e-9)
    last = max(first + 1, math.ceil(high / step - 1e-9))
    return (first * step, last * step), [n * step for n in range(first, last + 1)]


def _log_axis(low: float, high: float) -> tuple[tuple[float, float], list[float]]:
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    stride = max(1, math.ceil((last - first) / 6))
    return (10.0**first, 10.0**last), [10.0**n for n in range(first, last + 1, stride)]


def _power(value: float) -> str:
    exponent = round(math.log10(value))
    return "1" if exponent == 0 else "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
