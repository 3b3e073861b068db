"""What a table says: for each row and cell the paper's value, ours, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

from reproduce.plan import paper
from reproduce.plan.experiments import Experiment
from reproduce.plan.parts import canonical
from reproduce.plan.recipe import Recipe
from reproduce.report import judging
from reproduce.report.judging import RANK, Summary, Verdict
from reproduce.report.records import Record

DECIMALS = {"error_percent": 2, "accuracy_percent": 2, "bits_per_character": 3}


@dataclass(frozen=True)
class Entry:
    """One row on one cell on one kind of data; ``records`` are the seeds of one configuration."""

    row: str
    cell: str
    label: str
    cell_label: str
    printed: str  # "-" where the paper prints no value
    verdict: Verdict
    discrepancy: str = ""
    data: str = ""  # "", "stand-in" or the part of the real set, such as "10 of 60 classes"
    records: list[Record] = field(default_factory=list)
    reductions: list[str] = field(default_factory=list)  # how it differs from the paper budget
    is_current: bool = True  # the recipe has not changed since

    @property
    def summary(self) -> Summary | None:
        return judging.summarise([r.test for r in self.records if r.status == "completed" and r.test is not None])

    def notes(self, short: bool = False) -> list[str]:
        """Everything that keeps this number from being the paper's experiment; empty if nothing does."""
        found = [f"{self.data.upper()} DATA" if self.data == "stand-in" else self.data] if self.data else []
        found += self.reductions[:1] if short else self.reductions
        return found if self.is_current else [*found, "older recipe"]


def collect(experiment: Experiment, records: list[Record]) -> list[Entry]:
    """Entries in the order of the paper's table (of the recipe, for figures), all cells of a row together."""
    recipes = experiment.load_recipe()
    table = paper.load().tables.get(experiment.name)
    entries = []
    for row, label in experiment.shown_rows.items():
        for cell in experiment.all_cells:
            line = table.rows.get(row) if table else None
            printed = line.values[table.cells.index(cell)] if table and line else "-"
            discrepancy = line.discrepancy if line else ""
            is_implemented = row in recipes.rows
            groups = choose(row, cell, recipes, records) if is_implemented else []
            shared = (row, cell, label, recipes.cells[cell].label, printed)
            if not groups:
                entries.append(Entry(*shared, judging.judge(printed, [], is_implemented), discrepancy))
            for group in groups:
                entries.append(_entry(shared, discrepancy, group, recipes))
    return entries


def _entry(shared: tuple[str, str, str, str, str], discrepancy: str, group: list[Record], recipes: Recipe) -> Entry:
    first = group[0]
    return Entry(
        *shared, judging.judge(shared[4], group), discrepancy, data_of(first), group, _reductions(first, recipes),
        _is_current(first, recipes),
    )  # fmt: skip


def choose(row: str, cell: str, recipes: Recipe, records: list[Record]) -> list[list[Record]]:
    """The seeds that speak for a row on a cell: per kind of data, those of the best configuration there is.

    A present recipe goes before an outdated one, a larger budget before a smaller one, more seeds before fewer.
    """
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for r in records:
        if (r.recipe, r.row, r.cell) == (recipes.name, row, cell):
            key = (data_of(r), r.budget, r.task.fingerprint, canonical(r.settings.explicit()))
            groups.setdefault(key, []).append(r)
    best: dict[str, list[Record]] = {}
    for (data, *_), group in groups.items():
        if data not in best or _rank(group, recipes) > _rank(best[data], recipes):
            best[data] = group
    return [sorted(best[data], key=lambda r: r.seed) for data in sorted(best)]


def _rank(group: list[Record], recipes: Recipe) -> tuple[bool, int, int, str]:
    done = sum(r.status != "unfinished" for r in group)
    return _is_current(group[0], recipes), RANK[group[0].budget], done, max(r.finished for r in group)


def _is_current(r: Record, recipes: Recipe) -> bool:
    return r.row in recipes.rows and recipes.resolve(r.row, r.cell, r.budget)[0].explicit() == r.settings.explicit()


def data_of(r: Record) -> str:
    return "stand-in" if r.task.is_standin else r.task.partial


def _reductions(r: Record, recipes: Recipe) -> list[str]:
    """How a run is smaller than the paper's, in words that fit into a cell."""
    if r.budget == "paper":
        return []
    full = recipes.resolve(r.row, r.cell, "paper")[0]
    words = [f"{r.budget} budget", f"{r.steps_done:,} of {full.training.updates:,} updates"]
    if r.settings.model.hidden_size != full.model.hidden_size:
        words.append(f"{r.settings.model.hidden_size} of {full.model.hidden_size} units")
    return words


def number(value: float, metric: str) -> str:
    return f"{value:.{DECIMALS[metric]}f}" if metric in DECIMALS else f"{value:.3g}"


def ours(entry: Entry, short: bool = False) -> str:
    """Our side of a cell in plain words, with everything that qualifies it; ``short`` for a terminal."""
    if not entry.records:
        return "–"
    metric = entry.records[0].task.metric
    parts = []
    if summary := entry.summary:
        value = number(summary.mean, metric)
        if summary.half is not None:
            value += f" ± {number(summary.half, metric)}"
        parts.append(f"{value} (n={summary.n})")
    diverged = [r for r in entry.records if r.status == "diverged"]
    if diverged:
        steps = ", ".join(f"{r.diverged_at:,}" for r in diverged)
        parts.append(f"{len(diverged)} diverged at update {steps}")
    unfinished = [r for r in entry.records if r.status == "unfinished"]
    if unfinished and not summary:
        r = max(unfinished, key=lambda r: r.steps_done)
        valid = "–" if r.valid is None else number(r.valid, metric)
        parts.append(f"unfinished: validation {valid} at {r.steps_done:,} of {r.steps_planned:,} updates")
    text = "; ".join(parts)
    notes = entry.notes(short)
    return f"{text} [{'; '.join(notes)}]" if notes else text
