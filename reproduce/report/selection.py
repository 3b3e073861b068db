"""What a table says, before anything is formatted: which runs speak for a row, and the verdict on them.

A *block* is one cell of an experiment on one kind of data at one budget, so that nothing in a column was run in two
ways. Each of its lines is a row of the paper's table with the published runs and the user's own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reproduce.plan import paper
from reproduce.plan.experiments import Experiment
from reproduce.plan.parts import canonical
from reproduce.plan.recipe import BUDGETS, Recipe
from reproduce.report import orders, verdicts
from reproduce.report.records import Record, is_current, one_per_seed
from reproduce.report.verdicts import Agreement, Obstacle, Summary, Verdict

LAST = 10  # evaluations at the end of a curve whose mean is given
ABOUT_EQUAL = 1.5  # by what factor trainings of a reduced budget may differ in samples and still be compared


@dataclass(frozen=True)
class Group:
    """The seeds of one configuration: one row on one cell, on one kind of data, at one budget."""

    records: tuple[Record, ...]
    is_current: bool = True  # the recipe has not changed since

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def values(self) -> list[float]:
        """The test metric of each completed seed, of the weights that were best on validation."""
        return [r.test for r in self.records if r.status == "completed" and r.test is not None]

    @property
    def summary(self) -> Summary | None:
        return verdicts.summarise(self.values)

    def curve_value(self, last: int) -> float | None:
        """Mean over seeds of the mean validation metric of the last evaluations."""
        ends = [[p.valid for p in r.curve[-last:] if p.valid is not None] for r in self.records]
        means = [statistics.fmean(end) for end in ends if end]
        return statistics.fmean(means) if means else None

    @property
    def samples_seen(self) -> int:
        """How many the training shows; characters, where the samples are pieces of one text."""
        r = self.first
        pieces = r.steps_planned * r.settings.training.batch_size
        return pieces * r.task.length if r.task.metric == "bits_per_character" else pieces

    @property
    def chance(self) -> float | None:
        """The metric of the best constant answer on the test split, as recorded or as known for the whole set."""
        known = paper.load().chance.get(self.first.cell)
        if self.first.task.chance is not None or known is None or data_of(self.first):
            return self.first.task.chance
        return known.value

    @property
    def is_at_chance(self) -> bool:
        """Whether no seed does better than the best constant answer, up to the error of the test split."""
        chance = self.chance
        return (
            chance is not None and bool(self.values) and all(_is_no_better(v, chance, self.first) for v in self.values)
        )

    @property
    def remarks(self) -> list[str]:
        """Everything about these runs that a reader of the number has to know."""
        found = [] if self.is_current else ["made with an older recipe"]
        if self.is_at_chance:
            found.append(f"at chance: the best constant answer has {number(self.chance or 0, self.first.task.metric)}")
        gone = [r for r in self.records if r.status == "diverged"]
        if gone:
            steps = ", ".join(f"{r.diverged_at:,}" for r in gone)
            found.append(f"{len(gone)} of {len(self.records)} seeds diverged, at update {steps}")
        for r in self.records:
            if r.status == "unfinished":
                found.append(f"seed {r.seed} unfinished, at {r.steps_done:,} of {r.steps_planned:,} updates")
        if any(r.ended == "time-cap" for r in self.records):
            found.append("ended by a time cap")
        found += _history(self.records)
        return found


def _is_no_better(value: float, chance: float, r: Record) -> bool:
    """Up to twice the sampling error of the constant answer on the samples that were scored.

    On the adding problem its squared error has a deviation of √(1/15 − 1/36) = 1.18 times its mean; for bits per
    character, whose samples hang together, 2 % stand for it.
    """
    samples = min(r.task.samples.get("test") or 0, r.settings.evaluation.test_samples or math.inf)
    slack = 0.02 * abs(chance)
    if r.task.metric in ("error_percent", "accuracy_percent") and samples:
        slack = 2 * verdicts.sampling_error(chance, int(samples))
    elif r.task.metric == "mse" and samples:
        slack = 2 * 1.18 * chance / math.sqrt(samples)
    return value <= chance + slack if r.task.higher_is_better else value >= chance - slack


def _history(records: Sequence[Record]) -> list[str]:
    """Which seeds crossed a change of code or of machine, or were made by code that no commit holds."""
    code = [r.seed for r in records if len({visit.commit for visit in r.lineage}) > 1]
    machines = [r.seed for r in records if len({visit.machine for visit in r.lineage if visit.machine}) > 1]
    loose = [r.seed for r in records if r.dirty]
    found = []
    for seeds, what in (
        (code, "continued under other code"),
        (machines, "continued on another machine"),
        (loose, "made by code that no commit holds"),
    ):
        if seeds:
            which = "all seeds" if len(seeds) == len(records) > 1 else f"seed {', '.join(map(str, seeds))}"
            found.append(f"{which} {what}")
    return found


@dataclass(frozen=True)
class Line:
    """One row of a block. ``judged`` says whose runs the verdict is on."""

    row: str
    label: str
    printed: str  # "-" where the paper prints no value
    published: Group | None
    yours: Group | None
    verdict: Verdict
    judged: str = ""  # "published", "yours" or "" where there is nothing to judge
    notes: tuple[str, ...] = ()  # of the paper's own number

    @property
    def group(self) -> Group | None:
        return self.yours if self.judged == "yours" else self.published


@dataclass(frozen=True)
class Block:
    experiment: Experiment
    cell: str
    label: str
    budget: str
    data: str  # "": all of the real data; "stand-in"; or which part, such as "10 of 60 classes"
    lines: tuple[Line, ...]
    agreements: tuple[tuple[Record, Agreement], ...] = field(default=())

    @property
    def records(self) -> list[Record]:
        groups = [group for line in self.lines for group in (line.published, line.yours) if group]
        return [r for group in groups for r in group.records]

    @property
    def metric(self) -> str:
        return self.records[0].task.metric if self.records else ""

    @property
    def samples_seen(self) -> dict[str, int]:
        """What the trainings of a reduced budget show, by label, where that differs too much to compare rows by it."""
        groups = {line.label: line.group for line in self.lines if self.budget in ("quick", "cpu")}
        seen = {label: group.samples_seen for label, group in groups.items() if group}
        return seen if seen and max(seen.values()) > ABOUT_EQUAL * min(seen.values()) else {}

    def order(self, whose: str = "published") -> orders.Pairs | None:
        """Which rows beat which, by all pairs of those that have runs; None for fewer than two."""
        groups = {line.label: getattr(line, whose).values for line in self.lines if getattr(line, whose)}
        groups = {label: values for label, values in groups.items() if values}
        if len(groups) < 2:
            return None
        return orders.all_pairs(groups, self.records[0].task.higher_is_better, orders.is_on_log_scale(self.metric))


def blocks(
    experiment: Experiment, published: list[Record], yours: Iterable[Record] = (), budgets: Sequence[str] = ()
) -> list[Block]:
    """Every combination of data, budget and cell for which there are runs; real data and large budgets first.

    budgets: only these. Without any run, one block per cell shows the paper's numbers. The open division lists the rows
    that have a recipe for it.
    """
    recipe, mine = experiment.load_recipe(), list(yours)
    rows, cells = set(experiment.shown_rows), experiment.all_cells
    here = [r for r in [*published, *mine] if r.recipe == recipe.name and r.row in rows and r.cell in cells]
    kinds = {(data_of(r), r.budget) for r in here if not budgets or r.budget in budgets}
    ordered: list[tuple[str, str]] = sorted(
        kinds, key=lambda kind: (kind[0] == "stand-in", kind[0], -BUDGETS.index(kind[1]))
    )
    found = []
    for data, budget in ordered or [("", budgets[0] if budgets else "paper")]:
        for cell in cells:
            block = _block(experiment, recipe, cell, data, budget, published, mine)
            if block.records or not kinds:
                found.append(block)
    return found


def most_telling(shown: list[Block], cell: str) -> Block | None:
    """What a figure compares: the largest budget at which two rows have runs of the present recipe, else the block of
    the cell in which most rows have runs."""
    here = [block for block in shown if block.cell == cell and block.records]
    for block in here:  # the largest budget first
        if sum(line.group is not None and line.group.is_current for line in block.lines) > 1:
            return block
    return max(here, key=lambda block: sum(line.group is not None for line in block.lines), default=None)


def _block(
    experiment: Experiment, recipe: Recipe, cell: str, data: str, budget: str, published: list[Record],
    yours: list[Record],
) -> Block:  # fmt: skip
    lines = []
    agreements: list[tuple[Record, Agreement]] = []
    for row, label in experiment.shown_rows.items():
        ours, mine = (choose(recipe, row, cell, data, budget, records) for records in (published, yours))
        if not (ours or mine) and row in recipe.rows and not recipe.offers(row, cell, budget):
            continue
        lines.append(_line(experiment, recipe, row, label, cell, data, budget, ours, mine))
        agreements += [(r, agree(r, published)) for r in (mine.records if mine else ()) if r.test is not None]
    return Block(experiment, cell, recipe.cells[cell].label, budget, data, tuple(lines), tuple(agreements))


def _line(
    experiment: Experiment, recipe: Recipe, row: str, label: str, cell: str, data: str, budget: str,
    ours: Group | None, mine: Group | None,
) -> Line:  # fmt: skip
    table = paper.load().tables.get(experiment.name)
    printed = table.printed(row, cell) if table else "-"
    line = table.rows.get(row) if table else None
    notes = (line.discrepancy,) if line and line.discrepancy else ()
    judged = "yours" if mine and (not ours or len(mine.values) > len(ours.values)) else "published" if ours else ""
    group = mine if judged == "yours" else ours
    obstacles = _obstacles(row in recipe.rows, group, data, budget)
    if table and printed != "-" and (protocol := table.protocol(row, cell)):
        obstacles.append(Obstacle("different protocol", protocol))
    margin = table.margin(row, cell) if table and printed != "-" else None
    higher = group.first.task.higher_is_better if group else False
    judge = verdicts.judge_open if budget == "open" else verdicts.judge
    verdict = judge(printed, margin.value if margin else 0.0, group.values if group else [], higher, obstacles)
    return Line(row, label, printed, ours, mine, verdict, judged, notes)


def _obstacles(is_implemented: bool, group: Group | None, data: str, budget: str) -> list[Obstacle]:
    """What keeps the runs of a line from deciding anything about the printed number."""
    if not is_implemented:
        return [Obstacle("not implemented")]
    if group is None:
        return [Obstacle("not run")]
    found = []
    if data:
        found.append(Obstacle("not comparable", "synthetic stand-in" if data == "stand-in" else data))
    gone = sum(r.status == "diverged" for r in group.records)
    if gone == len(group.records):
        found.append(Obstacle("diverged"))
    elif gone:
        found.append(Obstacle("inconclusive", f"{gone} of {len(group.records)} seeds diverged"))
    if budget not in ("paper", "open"):
        found.append(Obstacle("inconclusive", f"{budget} budget"))
    if any(r.status == "unfinished" or r.ended == "time-cap" for r in group.records):
        found.append(Obstacle("inconclusive", "a run has not finished its schedule"))
    if not group.is_current:
        found.append(Obstacle("inconclusive", "older recipe"))
    return found


def choose(recipe: Recipe, row: str, cell: str, data: str, budget: str, records: list[Record]) -> Group | None:
    """The seeds that speak for a row: of the present recipe before an older one, more seeds before fewer."""
    groups: dict[str, list[Record]] = {}
    for r in records:
        if (r.recipe, r.row, r.cell, data_of(r), r.budget) == (recipe.name, row, cell, data, budget):
            groups.setdefault(canonical([r.settings.explicit(), r.task.fingerprint]), []).append(r)
    made = [Group(one_per_seed(g), is_current(g[0], recipe)) for g in groups.values()]
    return max(made, key=_rank, default=None)


def _rank(group: Group) -> tuple[bool, int, str]:
    done = sum(r.status != "unfinished" for r in group.records)
    return group.is_current, done, max(r.finished for r in group.records)


def data_of(r: Record) -> str:
    return "stand-in" if r.task.is_standin else r.task.partial


def agree(mine: Record, published: list[Record]) -> Agreement:
    """How a run of the user's agrees with the published seeds of the same settings on the same data."""
    same = [
        r for r in published
        if r.test is not None and (r.row, r.cell) == (mine.row, mine.cell)
        and r.task.fingerprint == mine.task.fingerprint and r.settings.explicit() == mine.settings.explicit()
    ]  # fmt: skip
    twin = next((r for r in same if r.seed == mine.seed), None)
    assert mine.test is not None
    return verdicts.agreement(
        mine.test, [r.test for r in same if r.test is not None], bool(twin and _same_bits(mine, twin)),
        counterpart=twin.test if twin else None,
    )  # fmt: skip


def _same_bits(a: Record, b: Record) -> bool:
    """Whether two runs must be equal in every bit: one kind of machine, reference recurrences, one thread."""
    return (
        a.machine.cpu == b.machine.cpu
        and a.device == b.device == "cpu"
        and a.backend == b.backend == "reference"
        and a.machine.threads == b.machine.threads == 1
        and a.versions.get("torch") == b.versions.get("torch")
    )


DECIMALS = {"error_percent": 2, "accuracy_percent": 2, "bits_per_character": 3}


def number(value: float, metric: str) -> str:
    """A value with the digits that its metric is given with; exponents without leading zeros."""
    if metric in DECIMALS:
        return f"{value:.{DECIMALS[metric]}f}"
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    mantissa, _, exponent = f"{value:.2g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa
