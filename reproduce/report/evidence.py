"""Which records speak for a rule: those of the present recipes, at one budget, on one kind of data."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from reproduce.plan import paper, recipe
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.plan.sentences import DataKind
from reproduce.report.records import Record, is_current, one_per_seed
from reproduce.report.verdicts import FEWEST_FOR_ORDER

BUDGETS = ("quick", "cpu", "paper")  # from the smallest; "smoke" shows that everything runs, and nothing else
KINDS: tuple[DataKind, ...] = ("stand-in", "partial", "real")  # from the worst

MEASURE = "then `python -m reproduce.report.measurements` on the machine that has the weights"

Spot = tuple[str, str]  # row, cell


@dataclass(frozen=True)
class Setting:
    """What runs must share to be compared. ``part``: which part of the data, such as "10 of 60 classes"."""

    kind: DataKind
    part: str
    budget: str

    def __str__(self) -> str:
        data = {"real": "", "partial": self.part, "stand-in": "synthetic stand-in"}[self.kind]
        return f"{self.budget} budget" + (f", {data}" if data else "")


@dataclass(frozen=True)
class Found:
    """The records of each row and cell of one comparison, by seed."""

    setting: Setting
    records: dict[Spot, tuple[Record, ...]]

    def of(self, row: str, cell: str) -> tuple[Record, ...]:
        return self.records[row, cell]


class Pool:
    """The finished records, sorted by what they can be compared with. Those of an older recipe are only counted."""

    def __init__(self, records: Iterable[Record]):
        self._groups: dict[tuple[str, Spot], dict[Setting, list[Record]]] = {}
        self.older: dict[tuple[str, Spot], int] = {}
        for record in records:
            if record.budget not in BUDGETS or not _is_finished(record):
                continue
            place = record.recipe, (record.row, record.cell)
            if is_current(record, recipe.load(record.recipe)):
                self._groups.setdefault(place, {}).setdefault(_setting(record), []).append(record)
            else:
                self.older[place] = self.older.get(place, 0) + 1

    def find(
        self,
        recipe_name: str,
        spots: Sequence[Spot],
        kinds: Sequence[DataKind],
        usable: Callable[[Record], bool] = lambda _: True,
    ) -> Found | None:
        """The largest budget at which every spot has enough seeds; if there is none, at which every spot has one.

        Better data goes before a larger budget.
        """
        groups = [self._groups.get((recipe_name, spot), {}) for spot in spots]
        best: tuple[tuple[bool, int, int, str], Found] | None = None
        for setting in groups[0]:
            found = {s: list(filter(usable, group.get(setting, []))) for s, group in zip(spots, groups, strict=True)}
            if setting.kind not in kinds or not all(found.values()):
                continue
            chosen = {spot: _one_task(records) for spot, records in found.items()}
            enough = min(map(len, chosen.values())) >= FEWEST_FOR_ORDER
            rank = enough, KINDS.index(setting.kind), BUDGETS.index(setting.budget), setting.part
            if best is None or rank > best[0]:
                best = rank, Found(setting, chosen)
        return best[1] if best else None

    def next_budget(self, budget: str) -> str:
        """The next larger one; the largest is its own."""
        return BUDGETS[min(BUDGETS.index(budget) + 1, len(BUDGETS) - 1)]

    def worth_extending(self, recipe_name: str, spots: Sequence[Spot], setting: Setting) -> str:
        """The largest budget, from that of the setting up, at which one of the spots has enough seeds on its data; that
        of the setting if there is none."""
        groups = [self._groups.get((recipe_name, spot), {}) for spot in spots]
        for budget in reversed(BUDGETS[BUDGETS.index(setting.budget) :]):
            each = [group.get(replace(setting, budget=budget), []) for group in groups]
            if any(records and len(_one_task(records)) >= FEWEST_FOR_ORDER for records in each):
                return budget
        return setting.budget

    def has(self, recipe_name: str, spot: Spot) -> bool:
        return (recipe_name, spot) in self._groups


def _is_finished(record: Record) -> bool:
    return record.status == "diverged" or (record.status == "completed" and record.test is not None)


def _setting(record: Record) -> Setting:
    kind: DataKind = "stand-in" if record.task.is_standin else "partial" if record.task.partial else "real"
    return Setting(kind, record.task.partial, record.budget)


def _one_task(records: Sequence[Record]) -> tuple[Record, ...]:
    """The seeds of one version of the task, the one with most of them, then the latest; one record per seed."""
    tasks: dict[str, list[Record]] = {}
    for record in records:
        tasks.setdefault(record.task.fingerprint, []).append(record)
    return max(map(one_per_seed, tasks.values()), key=lambda seeds: (len(seeds), max(r.finished for r in seeds)))


# Numbers of a record


def test_value(record: Record) -> float:
    """The test metric; a run that diverged is worse than any number."""
    if record.test is None:
        return -math.inf if record.task.higher_is_better else math.inf
    return record.test


def updates_until(record: Record, limit: float) -> float:
    """The first evaluation at which the validation metric is better than the limit; infinity if none is."""
    higher = record.task.higher_is_better
    for point in record.curve:
        if point.valid is not None and (point.valid > limit if higher else point.valid < limit):
            return float(point.step)
    return math.inf


def unevenness(record: Record, until: float) -> float:
    """All changes of log10 of a validation curve over its net fall: 1 for a curve that never turns.

    Counted until it first passes ``until``, or 0: until it first comes within a factor of two of its best value.
    Infinity for a curve that does not fall so far or ends in a divergence.
    """
    logs = [math.log10(p.valid) for p in record.curve if p.valid is not None and p.valid > 0]
    if record.task.higher_is_better:
        logs = [-value for value in logs]
    if record.status == "diverged" or not logs:
        return math.inf
    sign = -1 if record.task.higher_is_better else 1
    level = sign * math.log10(until) if until else min(logs) + math.log10(2)
    end = next((i for i, value in enumerate(logs) if value <= level), 0)
    net = logs[0] - logs[end]
    if until and logs[0] <= level:  # down before the first evaluation
        return 1.0
    return math.fsum(abs(b - a) for a, b in pairwise(logs[: end + 1])) / net if net > 0 else math.inf


def ending(until: float) -> str:
    """Until where a fall is counted."""
    return f"until {until:g}" if until else "until twice the best value"


# Names


def rows_of(recipe_name: str) -> list[str]:
    """The rows of a recipe, and those of the paper's table that have none yet."""
    table = paper.load().tables.get(recipe_name)
    return list(dict.fromkeys([*(table.rows if table else ()), *recipe.load(recipe_name).rows]))


def chosen_rows(patterns: Sequence[str], recipe_name: str, without: str, cell: str) -> list[str]:
    """The rows that patterns choose, in the order of the table; rows of a table for which it prints no value are not
    part of what it claims, unless they are named.
    """
    table = paper.load().tables.get(recipe_name)
    wanted = [p for p in patterns if not p.startswith("!")]
    refused = [p[1:] for p in patterns if p.startswith("!")]
    found = []
    for row in rows_of(recipe_name):
        is_named, is_printed = row in wanted, table is None or table.printed(row, cell) != "-"
        if row == without or any(fnmatch.fnmatchcase(row, p) for p in refused):
            continue
        if is_named or (is_printed and any(fnmatch.fnmatchcase(row, p) for p in wanted)):
            found.append(row)
    return found


def label(recipe_name: str, row: str) -> str:
    table, rows = paper.load().tables.get(recipe_name), recipe.load(recipe_name).rows
    if table and row in table.rows:
        return table.rows[row].label
    return (rows[row].label if row in rows else "") or row


def cell_label(recipe_name: str, cell: str) -> str:
    return recipe.load(recipe_name).cells[cell].label


# What is missing


@dataclass(frozen=True)
class Need:
    """Runs that would decide; without a budget: a recipe for the rows. ``other``: what no command can make."""

    recipe: str = ""
    rows: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    budget: str = ""
    seeds: int = FEWEST_FOR_ORDER
    measured: bool = False  # their weights must be measured as well
    other: str = ""


def wanted(needs: Iterable[Need], prefer: Sequence[str] = ()) -> list[str]:
    """What to do about them, as few lines as possible; ``prefer``: tables and figures whose command to name first."""
    chosen = list(dict.fromkeys(needs))
    lines = []
    chosen = [need for need in chosen if need.measured or replace(need, measured=True) not in chosen]
    for need in _joined(_joined(chosen, "rows"), "cells"):
        names = ", ".join(label(need.recipe, row) for row in need.rows) if need.recipe else ""
        if need.other:
            lines.append(need.other)
        elif not need.budget:
            lines.append(f"a recipe for {names}")
        else:
            made = " and ".join(_commands(need, prefer))
            lines.append(f"{made}, {MEASURE}" if need.measured else made)
    return lines


def _joined(needs: Sequence[Need], key: Literal["rows", "cells"]) -> list[Need]:
    """Needs that differ in one field only become one with all of its entries."""
    found: dict[Need, list[str]] = {}
    nothing: dict[str, Any] = {key: ()}
    for need in needs:
        found.setdefault(replace(need, **nothing), []).extend(getattr(need, key))
    joined: list[dict[str, Any]] = [{key: tuple(dict.fromkeys(entries))} for entries in found.values()]
    return [replace(need, **entries) for need, entries in zip(found, joined, strict=True)]


def _commands(need: Need, prefer: Sequence[str]) -> list[str]:
    """As few as run all of its rows."""
    names = [*prefer, *(name for name in EXPERIMENTS if name not in prefer)]
    shown = [EXPERIMENTS[name] for name in names]
    shown = [each for each in shown if each.recipe == need.recipe and {*need.cells} <= {*each.all_cells}]
    left, made = need.rows, list[str]()
    while left:
        best = max(shown, key=lambda each: len({*left} & {*each.runnable_rows}), default=None)
        covered = [row for row in left if best and row in best.runnable_rows]
        if not best or not covered:
            return [*made, f"a table or figure that runs {', '.join(label(need.recipe, row) for row in left)}"]
        choice = f"--rows {','.join(covered)} --cells {','.join(need.cells)}"
        made.append(f"`python reproduce/{best.name}.py {choice} --budget {need.budget} --seeds {need.seeds}`")
        left = tuple(row for row in left if row not in covered)
    return made
