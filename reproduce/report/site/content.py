"""Everything that the pages are made of, gathered once from a set of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reproduce.plan import paper
from reproduce.plan.experiments import EXPERIMENTS, Experiment
from reproduce.plan.runs import ROOT
from reproduce.report import claims, measurements
from reproduce.report.claims import JudgedClaim
from reproduce.report.measurements import Measurement
from reproduce.report.publish import PUBLISHED
from reproduce.report.records import Record, Records, read_all
from reproduce.report.selection import Block, Line, blocks
from reproduce.report.site.addresses import Spot
from suite.machine import commit

TABLES = tuple(name for name, experiment in EXPERIMENTS.items() if experiment.kind == "table")


@dataclass(frozen=True)
class Entry:
    """A line of a table or figure with the block it stands in."""

    spot: Spot
    block: Block
    line: Line


class Content:
    """``folder`` holds the records; what was drawn from trained weights lies beside it."""

    def __init__(self, folder: Path, records: Records, measured: Sequence[Measurement], version: str) -> None:
        self.folder, self.records, self.measured, self.version = folder, records, list(measured), version
        self.is_published = folder.resolve() == (PUBLISHED / "records").resolve()
        self.blocks = {name: blocks(experiment, records.good) for name, experiment in EXPERIMENTS.items()}
        self._planned = {name: blocks(experiment, []) for name, experiment in EXPERIMENTS.items()}

    @property
    def whose(self) -> str:
        """The name of the column with our numbers."""
        return "published" if self.is_published else "these runs"

    @cached_property
    def cells(self) -> dict[Spot, Entry]:
        """Every row and cell with runs; at the paper's budget also those without, where a page speaks of them."""
        found: dict[Spot, Entry] = {}
        for entry in _entries(self.blocks):
            if entry.line.published:
                found.setdefault(entry.spot, entry)
        run = {(spot.recipe, spot.row, spot.cell) for spot in found}
        linked = {self.spot(entry.block, entry.line) for entry in _entries(self.blocks)}
        for entry in _entries(self._planned):
            spot, line = entry.spot, entry.line
            can_be_told = line.printed != "-" or line.row in entry.block.experiment.runnable_rows
            if spot in linked or ((spot.recipe, spot.row, spot.cell) not in run and can_be_told):
                found.setdefault(spot, entry)
        return found

    def spot(self, block: Block, line: Line) -> Spot:
        """The page of a line; where it has no runs, that of the row and cell at the paper's budget."""
        spot = spot_of(block.experiment, block, line)
        return spot if line.published else Spot(spot.recipe, spot.row, spot.cell, "paper", "")

    def best(self, name: str, row: str, cell: str) -> Entry:
        """The runs that say most about a number: real data first, then the largest budget."""
        recipe = EXPERIMENTS[name].recipe
        for block in self.blocks[name]:
            for line in block.lines:
                if (block.cell, line.row) == (cell, row) and line.published:
                    return self.cells[spot_of(block.experiment, block, line)]
        return self.cells[Spot(recipe, row, cell, "paper", "")]

    def beside(self, spot: Spot) -> list[Entry]:
        """The same row and cell at other budgets and on other data."""
        same = (spot.recipe, spot.row, spot.cell)
        return [
            e for s, e in self.cells.items() if s != spot and (s.recipe, s.row, s.cell) == same and e.line.published
        ]

    def shown_in(self, spot: Spot) -> list[Experiment]:
        """The tables and figures that a row and cell stand in."""
        return [
            e for e in EXPERIMENTS.values()
            if e.recipe == spot.recipe and spot.row in e.shown_rows and spot.cell in e.all_cells
        ]  # fmt: skip

    @cached_property
    def judged(self) -> dict[str, JudgedClaim]:
        return claims.judge_all(self.records.good, self.measured)

    @cached_property
    def by_run(self) -> dict[str, list[Record]]:
        """Records by the first digits of their run; rows that share their settings share a run."""
        found: dict[str, list[Record]] = {}
        for r in self.records.good:
            found.setdefault(r.run[:12], []).append(r)
        return found

    @cached_property
    def spot_of_record(self) -> dict[tuple[str, str], Spot]:
        """By run and row: the page on which a record stands."""
        groups = [(spot, entry.line.published) for spot, entry in self.cells.items()]
        return {(r.run, r.row): spot for spot, group in groups if group for r in group.records}

    @property
    def left_out(self) -> list[str]:
        """One sentence for each record that no page shows, or that cannot be trusted."""
        hidden = [r for r in self.records.good if (r.run, r.row) not in self.spot_of_record]
        counts = Counter(f"{r.recipe}, row {r.row} on {r.cell}" for r in hidden)
        known = [f"{where}: {n} not shown; of no table here, or beside newer ones" for where, n in counts.items()]
        return known + self.records.problems

    @property
    def row_counts(self) -> dict[str, tuple[int, int, int]]:
        """By table: rows that the paper prints, those that can be run, those that have runs."""
        found = {}
        for name in TABLES:
            rows = paper.load().tables[name].rows
            run = {line.row for block in self.blocks[name] for line in block.lines if line.published}
            found[name] = len(rows), len(set(rows) & set(EXPERIMENTS[name].runnable_rows)), len(set(rows) & run)
        return found

    def words(self) -> Counter[str]:
        """How often each verdict stands in the matrix."""
        return Counter(self.best(*place).line.verdict.word for place in self.printed_numbers())

    def printed_numbers(self) -> list[tuple[str, str, str]]:
        """Every table, row and cell for which the paper prints a number."""
        tables = {name: paper.load().tables[name] for name in TABLES}
        return [(n, r, c) for n, t in tables.items() for r in t.rows for c in t.cells if t.printed(r, c) != "-"]


def _entries(shown: dict[str, list[Block]]) -> Iterator[Entry]:
    for some in shown.values():
        for block in some:
            for line in block.lines:
                yield Entry(spot_of(block.experiment, block, line), block, line)


def spot_of(experiment: Experiment, block: Block, line: Line) -> Spot:
    return Spot(experiment.recipe, line.row, block.cell, block.budget, block.data)


def gather(folder: Path = PUBLISHED / "records") -> Content:
    """The records of a folder; measurements of their weights lie beside it."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; --records names one with run records")
    measured = measurements.read_all(folder.parent / "measurements")
    return Content(folder, read_all(folder), measured, commit(ROOT)[0])
