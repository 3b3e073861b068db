"""results/README.md: what is there, at which budget, on which machine, and what is missing."""

from __future__ import annotations

from collections import Counter

from reproduce.plan.experiments import EXPERIMENTS, Experiment
from reproduce.report import tables, verdicts
from reproduce.report.estimates import time_left
from reproduce.report.records import Record, Records
from reproduce.report.selection import Block, blocks


def overview(found: Records) -> str:
    """The page; everything in it follows from the records."""
    everything = {name: blocks(experiment, found.good) for name, experiment in EXPERIMENTS.items()}
    lines = [
        "# Results",
        "",
        "Generated from the run records in `records/`; nothing here is typed by hand. What stands here is what this",
        "project publishes; your own runs go to `runs/`. Rebuild any of it with",
        "`python reproduce/<name>.py --publish --report-only`.",
        "",
        *summary_lines(found),
        "",
        "| | rows with runs | verdicts on printed numbers | budgets |",
        "|---|---|---|---|",
    ]
    for name, shown in everything.items():
        title = f"[{EXPERIMENTS[name].title}]({name}.md)"
        lines.append(f"| {title} | {_rows(EXPERIMENTS[name], shown)} | {_verdicts(shown)} | {_budgets(shown)} |")
    lines += ["", "## The rule of the verdicts", "", *_rule(), "", "## What is missing", ""]
    missing = [line for name in everything for line in missing_lines(EXPERIMENTS[name], everything[name], found.good)]
    if missing:
        missing += [
            "",
            "Hours of one core: the median over the row's records nearest in work, scaled by samples, steps and",
            "units squared.",
        ]
    lines += missing or ["Nothing: every cell has its seeds at the paper's budget."]
    lines += ["", "## Provenance", ""]
    lines += [f"- {line}" for line in tables.provenance([block for shown in everything.values() for block in shown])]
    lines += [f"- skipped record: {problem}" for problem in found.problems]
    return "\n".join([*lines, ""])


def summary_lines(found: Records) -> list[str]:
    budgets = Counter(r.budget for r in found.good)
    counted = ", ".join(f"{count} at the {budget} budget" for budget, count in sorted(budgets.items()))
    lines = [f"{len(found.good)} runs: {counted or 'none yet'}."]
    if any(budget != "paper" for budget in budgets):
        lines.append("A number from a reduced budget neither confirms nor denies the paper's.")
    standins = sorted({r.task.name for r in found.good if r.task.is_standin})
    if standins:
        lines.append(f"Synthetic stand-ins for data that could not be had: {', '.join(standins)}.")
    return lines


def _rows(experiment: Experiment, shown: list[Block]) -> str:
    run = {line.row for block in shown for line in block.lines if line.published}
    return f"{len(run)} of {len(experiment.shown_rows)}"


def _verdicts(shown: list[Block]) -> str:
    counts = Counter(
        line.verdict.word for block in shown for line in block.lines if block.data == "" and line.published
    )
    return ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "–"


def _budgets(shown: list[Block]) -> str:
    runs = {r.run: r.budget for block in shown for r in block.records}
    return ", ".join(f"{budget} ({count} runs)" for budget, count in sorted(Counter(runs.values()).items())) or "–"


def _rule() -> list[str]:
    """The written rule, from where it is applied."""
    assert verdicts.judge.__doc__ is not None
    return [line.strip() for line in verdicts.judge.__doc__.strip().splitlines()]


def missing_lines(experiment: Experiment, shown: list[Block], known: list[Record]) -> list[str]:
    """Per experiment the rows that are not at the paper's budget, the command that runs them, and its time if known."""
    done = {
        (line.row, block.cell)
        for block in shown
        for line in block.lines
        if block.budget == "paper" and block.data == "" and line.published and line.published.is_current
        and all(r.status != "unfinished" for r in line.published.records)
    }  # fmt: skip
    lines = []
    for cell in experiment.all_cells:
        lacking = [row for row in experiment.runnable_rows if (row, cell) not in done]
        if lacking:
            each = [f"{row} ({_hours(experiment, row, cell, known)})" for row in lacking]
            lines.append(f"    - `--cells {cell}`: {', '.join(each)}")
    command = f"python reproduce/{experiment.name}.py --budget paper --seeds 5"
    return [f"- {experiment.title}: `{command}`", *lines] if lines else []


def _hours(experiment: Experiment, row: str, cell: str, known: list[Record]) -> str:
    """Time of one seed at the paper's budget."""
    settings, _ = experiment.load_recipe().resolve(row, cell, "paper")
    left = time_left(experiment.recipe, row, settings, 0, known)
    return "time not measured" if left is None else f"about {left / 3600:.2g} h per seed"
