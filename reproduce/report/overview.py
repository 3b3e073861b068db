"""results/README.md: what is there, at which budget, on which machine, and what is missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from reproduce.plan.experiments import EXPERIMENTS, Experiment
from reproduce.report import judging, tables
from reproduce.report.estimates import time_left
from reproduce.report.records import Record, Records
from reproduce.report.selection import Entry, collect


def overview(found: Records, results: Path) -> str:
    lines = [
        "# Results",
        "",
        "Generated from the run records in `records/`; nothing here is typed by hand. Rebuild any of it with",
        "`python reproduce/<name>.py --report-only`.",
        "",
        *summary_lines(found),
        "",
        "## What is here",
        "",
        "| | verdicts | budgets | files |",
        "|---|---|---|---|",
    ]
    everything = {name: collect(experiment, found.good) for name, experiment in EXPERIMENTS.items()}
    for name, entries in everything.items():
        lines.append(
            f"| {EXPERIMENTS[name].title} | {_verdicts(entries)} | {_budgets(entries)} | {_files(name, results)} |"
        )
    lines += ["", "## The rule of the verdicts", "", *_rule(), "", "## What is missing", ""]
    missing = [
        line for name, entries in everything.items() for line in missing_lines(EXPERIMENTS[name], entries, found.good)
    ]
    if missing:
        missing += ["", "Hours are those of the row's nearest record, scaled by samples, steps and units squared."]
    lines += missing or ["Nothing: every cell has its seeds at the paper's budget."]
    lines += ["", "## Provenance", ""]
    every = [entry for entries in everything.values() for entry in entries]
    lines += [f"- {line}" for line in tables.provenance(every)]
    lines += [f"- skipped record: {problem}" for problem in found.problems]
    return "\n".join([*lines, ""])


def summary_lines(found: Records) -> list[str]:
    budgets = Counter(r.budget for r in found.good)
    counted = ", ".join(f"{count} at the {budget} budget" for budget, count in sorted(budgets.items()))
    lines = [f"{len(found.good)} runs: {counted or 'none yet'}."]
    if any(budget != "paper" for budget in budgets):
        lines.append("A number from a reduced budget neither confirms nor denies the paper's; its cell says so.")
    standins = sorted({r.task.name for r in found.good if r.task.is_standin})
    if standins:
        lines.append(f"Synthetic stand-ins for data that could not be had: {', '.join(standins)}.")
    return lines


def _verdicts(entries: list[Entry]) -> str:
    counts = Counter(entry.verdict.word for entry in entries)
    return ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "–"


def _budgets(entries: list[Entry]) -> str:
    counts = Counter(r.budget for entry in entries for r in entry.records)
    return ", ".join(f"{budget} ({count} runs)" for budget, count in sorted(counts.items())) or "–"


def _files(name: str, results: Path) -> str:
    found = sorted([*results.glob(f"{name}*.*"), *results.glob(f"figures/{name}.*")])
    return ", ".join(f"[{path.name}]({path.relative_to(results)})" for path in found) or "–"


def _rule() -> list[str]:
    """The written rule, from where it is applied."""
    assert judging.__doc__ is not None
    return judging.__doc__.strip().splitlines()[2:]


def missing_lines(experiment: Experiment, entries: list[Entry], known: list[Record]) -> list[str]:
    """Per experiment the rows that are not at the paper's budget, the command that runs them, and its time if known."""
    lacking = [
        e for e in entries
        if e.verdict.word not in ("not implemented", "reproduced", "not reproduced")
        and not (e.records and e.records[0].budget == "paper" and all(r.status != "unfinished" for r in e.records))
    ]  # fmt: skip
    if not lacking:
        return []
    command = f"python reproduce/{experiment.name}.py --budget paper"
    lines = [f"- {experiment.title}: `{command}`"]
    for cell in dict.fromkeys(e.cell for e in lacking):
        rows = dict.fromkeys(e.row for e in lacking if e.cell == cell)
        each = [f"{row} ({_hours(experiment, row, cell, known)})" for row in rows]
        lines.append(f"    - `--cells {cell}`: {', '.join(each)}")
    return lines


def _hours(experiment: Experiment, row: str, cell: str, known: list[Record]) -> str:
    """Time of one seed at the paper's budget."""
    settings, _ = experiment.load_recipe().resolve(row, cell, "paper")
    left = time_left(experiment.recipe, row, settings, 0, known)
    return "time not measured" if left is None else f"about {left / 3600:.2g} h per seed"
