"""Two rows compared by one rule: a number for each seed of both, and the order they show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reproduce.plan import paper
from reproduce.plan.sentences import Comparison, Order, Smooth, Speed
from reproduce.report import orders
from reproduce.report.evidence import Found, cell_label, ending, label, test_value, unevenness, updates_until
from reproduce.report.records import Record
from reproduce.report.selection import ABOUT_EQUAL, Group

NEVER = "never"  # a level was not passed
Runs = dict[str, list[tuple[Record, ...]]]  # of each row and seed, over the cells of a comparison


@dataclass(frozen=True)
class Side:
    """The numbers of one row, one per seed, with the runs (first 12 digits) that they come from."""

    label: str
    numbers: tuple[str, ...]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Compared:
    """One reading of a comparison. ``values``: of each row, finite; ``order`` is None where no run gives a number."""

    values: dict[str, list[float]]
    sides: tuple[Side, ...]
    order: orders.Order | None


def relation(rule: Comparison) -> str:
    if isinstance(rule, Speed):
        return f"passes {rule.until:g} sooner than"
    return "descends more smoothly than" if isinstance(rule, Smooth) else "is better than"


def by_seed(found: Found, row: str, cells: Sequence[str]) -> list[tuple[Record, ...]]:
    """The records of a row, one tuple over the cells for each seed that all cells have."""
    by_cell = [{r.seed: r for r in found.of(row, cell)} for cell in cells]
    shared = sorted(set.intersection(*({*seeds} for seeds in by_cell)))
    return [tuple(seeds[seed] for seeds in by_cell) for seed in shared]


def readings(rule: Comparison) -> list[Comparison]:
    """A rule on smoothness once for each end of the descent."""
    return [rule.model_copy(update={"until": [u]}) for u in rule.until] if isinstance(rule, Smooth) else [rule]


def compare(rule: Comparison, cell: str, runs: Runs) -> Compared:
    task = runs[rule.row][0][0].task
    values = {row: [_value(rule, group) for group in groups] for row, groups in runs.items()}
    sides = tuple(_side(rule, row, values[row], runs[row]) for row in runs)
    higher = isinstance(rule, Order) and task.higher_is_better  # updates and changes of a curve are better fewer
    finite = _finite(rule, cell, values, higher, runs)
    if finite is None:
        return Compared({}, sides, None)
    a, b = finite.values()
    log_scale = (orders.is_on_log_scale(task.metric) and not rule.minus) if isinstance(rule, Order) else True
    return Compared(finite, sides, orders.order(a, b, higher, log_scale))


def not_comparable(found: Found) -> str:
    """Why the runs of a reduced budget cannot be put in an order; empty if they can, or at the paper's budget."""
    if found.setting.budget == "paper":
        return ""
    if name := at_chance(found):
        return name
    seen = [Group(records).samples_seen for records in found.records.values()]
    if max(seen) > ABOUT_EQUAL * min(seen):
        return f"trained on {min(seen):,} and on {max(seen):,} samples"
    return ""


def at_chance(found: Found) -> str:
    """Which row has learned nothing at a reduced budget, in words; empty if all have, or at the paper's budget."""
    for (row, cell), records in found.records.items():
        if found.setting.budget != "paper" and Group(records).is_at_chance:
            recipe_name = records[0].recipe
            return f"{label(recipe_name, row)} is at chance on {cell_label(recipe_name, cell)}"
    return ""


def _value(rule: Comparison, records: Sequence[Record]) -> float:
    """The number of one seed; infinite where a run gives none."""
    if isinstance(rule, Speed):
        return updates_until(records[0], rule.until)
    if isinstance(rule, Smooth):
        return unevenness(records[0], rule.until[0])
    values = [test_value(r) for r in records]
    if any(math.isinf(v) for v in values):
        return next(v for v in values if math.isinf(v))
    return values[0] - sum(values[1:])


def _side(rule: Comparison, row: str, values: Sequence[float], runs: Sequence[tuple[Record, ...]]) -> Side:
    numbers = tuple(_text(rule, value, records[0]) for value, records in zip(values, runs, strict=True))
    name = label(rule.recipe, row)
    if isinstance(rule, Smooth):
        name += f" {ending(rule.until[0])}"
    return Side(name, numbers, tuple(r.run[:12] for records in runs for r in records))


def _finite(
    rule: Comparison, cell: str, values: dict[str, list[float]], higher: bool, runs: Runs
) -> dict[str, list[float]] | None:
    """A run without a number counts as the worst: of all updates, or of a constant answer and the values beside it."""
    known = [v for own in values.values() for v in own if math.isfinite(v)]
    if isinstance(rule, Speed):
        known = [float(group[0].steps_planned) for own in runs.values() for group in own]
    elif isinstance(rule, Order) and not rule.minus and (chance := paper.load().chance.get(cell)):
        known = [*known, chance.value]
    if not known:
        return None
    worst = min(known) if higher else max(known)
    return {row: [v if math.isfinite(v) else worst for v in own] for row, own in values.items()}


def _text(rule: Comparison, value: float, record: Record) -> str:
    if isinstance(rule, Order):
        return test_text(value, record)
    if isinstance(rule, Speed):
        return f"{value:,.0f}" if math.isfinite(value) else NEVER
    return f"{value:.2f}" if math.isfinite(value) else "no descent"


def test_text(value: float, record: Record) -> str:
    if math.isinf(value):
        return "diverged"
    return f"{value:.2e}" if record.task.metric == "mse" else f"{value:.4g}"


def ids(records: Sequence[Record]) -> tuple[str, ...]:
    return tuple(r.run[:12] for r in records)
