"""What records, measurements and formulas say about one rule of a claim, part by part."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reproduce.plan import paper, recipe
from reproduce.plan.sentences import (
    Bound,
    Comparison,
    Failure,
    Level,
    Measured,
    Open,
    Order,
    Parameters,
    Rule,
    Smooth,
    Speed,
    Threshold,
)  # fmt: skip
from reproduce.report import orders, theory
from reproduce.report.evidence import (
    Found,
    Need,
    Pool,
    Spot,
    cell_label,
    chosen_rows,
    label,
    test_value,
    unevenness,
    updates_until,
)  # fmt: skip
from reproduce.report.measurements import Measurement
from reproduce.report.records import Record
from reproduce.report.rules import ClaimVerdict, pair_claim, threshold_claim
from reproduce.report.sizes import parameter_count
from reproduce.report.verdicts import FEWEST_FOR_ORDER, FEWEST_WHERE_CLOSE

COMPUTED = "computed"


@dataclass(frozen=True)
class Side:
    """The numbers of one row, one per seed, with the runs (first 12 digits) that they come from."""

    label: str
    numbers: tuple[str, ...]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """One part of a claim. ``where``: the budget and the data it was judged at, or "computed".

    ``missing``: what would decide, where it is undecided. ``order``: of a pair whose verdict
    waits for the correction over all pairs of the claim (``settle``).
    """

    says: str
    verdict: ClaimVerdict
    where: str = ""
    sides: tuple[Side, ...] = ()
    missing: Need | None = None
    without: tuple[str, ...] = ()  # what has no runs at all
    order: orders.Order | None = None


def settle(findings: Sequence[Finding]) -> list[Finding]:
    """Give every pair its verdict, with Holm's correction over all of them."""
    adjusted = iter(orders.adjust([f.order for f in findings if f.order]))
    settled = []
    for finding in findings:
        if finding.order:
            order = next(adjusted)
            verdict = pair_claim(order)
            if order.word == "not separated":
                verdict = replace(verdict, reason=f"not separated, {verdict.reason}")
            finding = replace(finding, order=order, verdict=verdict)
        settled.append(finding if finding.verdict.word == "undecided" else replace(finding, missing=None))
    return settled


class Judge:
    """Judges rules by these records, and by the measurements of their weights."""

    def __init__(self, records: Iterable[Record], measurements: Iterable[Measurement] = ()):
        known = list(records)
        self.pool = Pool(known)
        weights = {r.run: r.weights_sha256 for r in known}
        self._measured = {m.run: m.values for m in measurements if weights.get(m.run) == m.weights_sha256}

    def judge(self, rule: Rule) -> list[Finding]:
        match rule:
            case Order() | Speed() | Smooth():
                pairs = [(cell, row) for cell in rule.cells for row in others(rule, cell)]
                return [self._pair(rule, cell, other) for cell, other in pairs]
            case Threshold() | Failure():
                return [self._level(rule, row, cell) for row in rule.rows for cell in rule.cells]
            case Measured():
                return [self._measure(rule, cell) for cell in rule.cells]
            case Parameters():
                return [_parameters(rule, cell) for cell in rule.cells]
            case Bound():
                return [_bound(rule)]
            case Open():
                verdict = ClaimVerdict("undecided", "no run of this suite decides it")
                return [Finding("the claim as a whole", verdict, missing=Need(other=rule.needs))]

    def _pair(self, rule: Comparison, cell: str, other: str) -> Finding:
        cells = [cell, rule.minus] if isinstance(rule, Order) and rule.minus else [cell]
        place = " minus ".join(cell_label(rule.recipe, c) for c in cells)
        says = f"{label(rule.recipe, rule.row)} {_relation(rule)} {label(rule.recipe, other)} on {place}"
        spots = [(row, c) for row in (rule.row, other) for c in cells]
        found = self.pool.find(rule.recipe, spots, rule.data)
        if found is None:
            return self._nothing(says, rule.recipe, spots)
        runs = {row: _by_seed(found, row, cells) for row in (rule.row, other)}
        values = {row: [_value(rule, group) for group in runs[row]] for row in runs}
        sides = tuple(_side(rule, row, values[row], runs[row]) for row in runs)
        higher = isinstance(rule, Order) and found.of(rule.row, cell)[0].task.higher_is_better
        finite = _finite(rule, cell, values, higher, runs)
        seeds = [len(own) for own in values.values()]
        if min(seeds) < FEWEST_FOR_ORDER:
            budget, enough = self.pool.worth_extending(rule.recipe, spots, found.setting), FEWEST_FOR_ORDER
        else:
            budget, enough = found.setting.budget, max(FEWEST_WHERE_CLOSE, max(seeds) + 2)
        missing = Need(rule.recipe, tuple(runs), tuple(cells), budget, enough)
        if finite is None:
            verdict = ClaimVerdict("undecided", "no run gives a number")
            return Finding(says, verdict, str(found.setting), sides, missing)
        together = [v for row in finite for v in finite[row]]
        log_scale = isinstance(rule, Smooth) or orders.should_log(together)
        order = orders.order(finite[rule.row], finite[other], higher, log_scale)
        return Finding(says, ClaimVerdict("undecided"), str(found.setting), sides, missing, order=order)

    def _level(self, rule: Level, row: str, cell: str) -> Finding:
        reaches = isinstance(rule, Threshold)
        name, place = label(rule.recipe, row), cell_label(rule.recipe, cell)
        says = f"{name} {'gets' if reaches else 'does not get'} better than {rule.limit:g} on {place}"
        found = self.pool.find(rule.recipe, [(row, cell)], rule.data)
        if found is None:
            return self._nothing(says, rule.recipe, [(row, cell)])
        records = found.of(row, cell)
        below = records[0].task.higher_is_better != reaches
        verdict = threshold_claim([test_value(r) for r in records], rule.limit, below)
        if found.setting.budget != "paper" and verdict.word == ("contradicted" if reaches else "supported"):
            verdict = ClaimVerdict("undecided", f"{verdict.reason}, but with less training than the paper's")
        side = Side(name, tuple(_test_text(test_value(r), r) for r in records), _ids(records))
        missing = Need(rule.recipe, (row,), (cell,), "paper", max(FEWEST_FOR_ORDER, len(records)))
        return Finding(says, verdict, str(found.setting), (side,), missing)

    def _measure(self, rule: Measured, cell: str) -> Finding:
        wanted = [(rule.row, rule.value)]
        if isinstance(rule.limit, str):
            row, _, value = rule.limit.partition(":")
            wanted.append((row, value))
        names = [f"{value} of {label(rule.recipe, row)}" for row, value in wanted]
        limit = names[1] if isinstance(rule.limit, str) else f"{rule.limit:g}"
        side = "above" if rule.below is None else "below"
        says = f"{names[0]} is {side} {limit} on {cell_label(rule.recipe, cell)}"

        def is_measured(record: Record) -> bool:
            has = self._measured.get(record.run, {})
            return all(value in has for row, value in wanted if row == record.row)

        spots = list(dict.fromkeys((row, cell) for row, _ in wanted))
        found = self.pool.find(rule.recipe, spots, rule.data, is_measured)
        seeds = max(FEWEST_FOR_ORDER, *(len(found.of(*spot)) + 2 for spot in spots)) if found else FEWEST_FOR_ORDER
        budget = found.setting.budget if found else "paper"
        missing = Need(rule.recipe, tuple(row for row, _ in spots), (cell,), budget, seeds, measured=True)
        if found is None:
            verdict = ClaimVerdict("undecided", "nothing was measured on trained weights")
            return Finding(says, verdict, missing=missing)
        values = [[self._measured[r.run][value] for r in found.of(row, cell)] for row, value in wanted]
        sides = tuple(
            Side(name, tuple(f"{v:.3g}" for v in own), _ids(found.of(row, cell)))
            for name, own, (row, _) in zip(names, values, wanted, strict=True)
        )
        if isinstance(rule.limit, str):
            order = orders.order(values[0], values[1], rule.below is None, log_scale=False)
            return Finding(says, ClaimVerdict("undecided"), str(found.setting), sides, missing, order=order)
        verdict = threshold_claim(values[0], rule.limit, below=rule.below is not None)
        return Finding(says, verdict, str(found.setting), sides, missing)

    def _nothing(self, says: str, recipe_name: str, spots: Sequence[Spot]) -> Finding:
        """Nothing can be compared: say which rows lack a recipe, or which spots lack runs."""
        rows, cells = (tuple(dict.fromkeys(names)) for names in zip(*spots, strict=True))
        known = recipe.load(recipe_name).rows
        if absent := tuple(row for row in rows if row not in known):
            return Finding(says, ClaimVerdict("undecided", "no recipe yet"), missing=Need(recipe_name, absent))
        without = [spot for spot in spots if not self.pool.has(recipe_name, spot)]
        names = tuple(f"{label(recipe_name, row)} on {cell_label(recipe_name, cell)}" for row, cell in without)
        reason = f"no runs of {' or '.join(names)}" if names else "no budget and data that all share"
        need = Need(recipe_name, rows, cells, "paper")
        return Finding(says, ClaimVerdict("undecided", reason), missing=need, without=names)


def others(rule: Comparison, cell: str) -> list[str]:
    return chosen_rows(rule.over, rule.recipe, rule.row, cell)


def spots(rule: Rule) -> set[tuple[str, Spot]]:
    """Every recipe, row and cell that a rule names."""
    match rule:
        case Order() | Speed() | Smooth():
            cells = [*rule.cells, *filter(None, [getattr(rule, "minus", "")])]
            named = {(row, cell) for cell in cells for row in (rule.row, *others(rule, rule.cells[0]))}
        case Threshold() | Failure():
            named = {(row, cell) for cell in rule.cells for row in rule.rows}
        case Measured():
            limit = [rule.limit.partition(":")[0]] if isinstance(rule.limit, str) else []
            named = {(row, cell) for cell in rule.cells for row in (rule.row, *limit)}
        case Parameters():
            named = {(row, cell) for cell in rule.cells for row in (rule.row, rule.than)}
        case Bound() | Open():
            return set()
    return {(rule.recipe, spot) for spot in named}


def _relation(rule: Comparison) -> str:
    if isinstance(rule, Speed):
        return f"passes {rule.until:g} sooner than"
    return "descends more smoothly than" if isinstance(rule, Smooth) else "is better than"


def _by_seed(found: Found, row: str, cells: Sequence[str]) -> list[tuple[Record, ...]]:
    """The records of a row, one tuple over the cells for each seed that all cells have."""
    by_cell = [{r.seed: r for r in found.of(row, cell)} for cell in cells]
    shared = sorted(set.intersection(*({*seeds} for seeds in by_cell)))
    return [tuple(seeds[seed] for seeds in by_cell) for seed in shared]


def _value(rule: Comparison, records: Sequence[Record]) -> float:
    """The number of one seed; infinite where a run gives none."""
    if isinstance(rule, Speed):
        return updates_until(records[0], rule.until)
    if isinstance(rule, Smooth):
        return unevenness(records[0])
    values = [test_value(r) for r in records]
    if any(math.isinf(v) for v in values):
        return next(v for v in values if math.isinf(v))
    return values[0] - sum(values[1:])


def _side(rule: Comparison, row: str, values: Sequence[float], runs: Sequence[tuple[Record, ...]]) -> Side:
    numbers = tuple(_text(rule, value, records[0]) for value, records in zip(values, runs, strict=True))
    return Side(label(rule.recipe, row), numbers, tuple(r.run[:12] for records in runs for r in records))


def _finite(
    rule: Comparison, cell: str, values: dict[str, list[float]], higher: bool, runs: dict[str, list[tuple[Record, ...]]]
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
        return _test_text(value, record)
    if isinstance(rule, Speed):
        return f"{value:,.0f}" if math.isfinite(value) else "never"
    return f"{value:.2f}" if math.isfinite(value) else "no descent"


def _test_text(value: float, record: Record) -> str:
    if math.isinf(value):
        return "diverged"
    return f"{value:.2e}" if record.task.metric == "mse" else f"{value:.4g}"


def _ids(records: Sequence[Record]) -> tuple[str, ...]:
    return tuple(r.run[:12] for r in records)


def _parameters(rule: Parameters, cell: str) -> Finding:
    own, other = (parameter_count(rule.recipe, row, cell) for row in (rule.row, rule.than))
    names = [label(rule.recipe, row) for row in (rule.row, rule.than)]
    says = f"{names[0]} has at most {rule.at_most:g} times the parameters of {names[1]}"
    reason = f"{own:,} against {other:,}, {own / other:.2f} times as many"
    word = ClaimVerdict("supported" if own <= rule.at_most * other else "contradicted", reason)
    return Finding(f"{says} on {cell_label(rule.recipe, cell)}", word, COMPUTED)


def _bound(rule: Bound) -> Finding:
    verdict, _ = theory.judge_bound(rule)
    relation = "is the same at every length" if rule.constant else f"equals {rule.equal}"
    if rule.below is not None:
        relation = f"stays below {rule.below}"
    return Finding(f"{rule.quantity} {relation}", verdict, COMPUTED)
