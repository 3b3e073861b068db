"""What records, measurements and formulas say about one rule of a claim, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reproduce.plan import recipe
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
from reproduce.report.comparisons import (
    NEVER,
    Compared,
    Runs,
    Side,
    at_chance,
    by_seed,
    compare,
    ids,
    not_comparable,
    readings,
    relation,
    test_text,
)  # fmt: skip
from reproduce.report.evidence import Need, Pool, Setting, Spot, cell_label, chosen_rows, label, test_value
from reproduce.report.measurements import Measurement
from reproduce.report.records import Record
from reproduce.report.rules import ClaimVerdict, pair_claim, threshold_claim
from reproduce.report.sizes import parameter_count
from reproduce.report.verdicts import FEWEST_FOR_ORDER, FEWEST_WHERE_CLOSE

COMPUTED = "computed"


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
        says = f"{label(rule.recipe, rule.row)} {relation(rule)} {label(rule.recipe, other)} on {place}"
        spots = [(row, c) for row in (rule.row, other) for c in cells]
        found = self.pool.find(rule.recipe, spots, rule.data)
        if found is None:
            return self._nothing(says, rule.recipe, spots)
        runs = {row: by_seed(found, row, cells) for row in (rule.row, other)}
        compared = [compare(reading, cell, runs) for reading in readings(rule)]
        sides = tuple(side for each in compared for side in each.sides)
        missing = self._pair_needs(rule, says, runs, cells, found.setting, compared[0])
        where = str(found.setting)
        if isinstance(rule, Order) and (why := not_comparable(found)):
            budget = self.pool.next_budget(found.setting.budget)
            need = Need(rule.recipe, tuple(runs), tuple(cells), budget, FEWEST_FOR_ORDER)
            return Finding(says, ClaimVerdict("undecided", why), where, sides, need)
        if any(each.order is None for each in compared):
            return Finding(says, ClaimVerdict("undecided", "no run gives a number"), where, sides, missing)
        if len({each.order.ahead for each in compared if each.order}) > 1:
            verdict = ClaimVerdict("undecided", "the order turns with where the descent is taken to end")
            return Finding(says, verdict, where, sides, Need(other="a word of the paper on where a descent ends"))
        weakest = max(compared, key=lambda each: each.order.p_value or 0.0 if each.order else 0.0)
        return Finding(says, ClaimVerdict("undecided"), where, weakest.sides, missing, order=weakest.order)

    def _pair_needs(
        self, rule: Comparison, says: str, runs: Runs, cells: Sequence[str], setting: Setting, compared: Compared
    ) -> Need:
        """Three seeds, five where the order is close; from there on adding seeds until a test succeeds is no test."""
        fewest = min(map(len, runs.values()))
        need = Need(rule.recipe, tuple(runs), tuple(cells), setting.budget, FEWEST_WHERE_CLOSE)
        if any({*side.numbers} == {NEVER} for side in compared.sides):  # at this budget there is nothing to count
            return replace(need, budget=self.pool.next_budget(setting.budget), seeds=FEWEST_FOR_ORDER)
        if fewest < FEWEST_FOR_ORDER:
            spots = [(row, cell) for row in runs for cell in cells]
            budget = self.pool.worth_extending(rule.recipe, spots, setting)
            return replace(need, budget=budget, seeds=FEWEST_FOR_ORDER)
        if fewest < FEWEST_WHERE_CLOSE or compared.order is None:
            return need
        return _more_seeds(says, setting, compared.values.values(), compared.order.log_scale)

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
        side = Side(name, tuple(test_text(test_value(r), r) for r in records), ids(records))
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
        rows, budget = tuple(row for row, _ in spots), found.setting.budget if found else "paper"
        few = found is None or min(len(found.of(*spot)) for spot in spots) < FEWEST_FOR_ORDER
        missing = Need(
            rule.recipe, rows, (cell,), budget, FEWEST_FOR_ORDER if few else FEWEST_WHERE_CLOSE, measured=True
        )
        if found is None:
            verdict = ClaimVerdict("undecided", "nothing was measured on trained weights")
            return Finding(says, verdict, missing=missing)
        if why := at_chance(found):
            need = replace(missing, budget=self.pool.next_budget(budget), seeds=FEWEST_FOR_ORDER)
            return Finding(says, ClaimVerdict("undecided", why), str(found.setting), missing=need)
        values = [[self._measured[r.run][value] for r in found.of(row, cell)] for row, value in wanted]
        sides = tuple(
            Side(name, tuple(f"{v:.3g}" for v in own), ids(found.of(row, cell)))
            for name, own, (row, _) in zip(names, values, wanted, strict=True)
        )
        if isinstance(rule.limit, str):
            order = orders.order(values[0], values[1], rule.below is None, log_scale=False)
            if min(map(len, values)) >= FEWEST_WHERE_CLOSE:
                missing = _more_seeds(says, found.setting, values, log_scale=False)
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


def _more_seeds(says: str, setting: Setting, sides: Iterable[Sequence[float]], log_scale: bool) -> Need:
    """How many would separate what five a side do not, as a statement and no command."""
    a, b = sides
    seeds = orders.seeds_to_separate(a, b, log_scale)
    many = f"about {seeds} seeds a side" if seeds else f"more than {orders.MOST} seeds a side"
    return Need(other=f"{many}, if means and spreads stay as they are: {says} [{setting}]")


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
