"""results/README.md: what is there, at which budget, on which machine, and what is missing."""

from __future__ import annotations

from collections import Counter

from reproduce.plan.experiments import EXPERIMENTS, Experiment
from reproduce.report import tables, verdicts
from reproduce.report.estimates import rounded, time_left
from reproduce.report.records import Record, Records
from reproduce.report.selection import Block, Group, blocks

WANTED = {"paper": 5, "open": 3, "cpu": 3}
"""Seeds: what a verdict on a printed number needs, and what an order needs."""


def overview(found: Records) -> str:
    """The page; everything in it follows from the records."""
    everything = {name: blocks(experiment, found.good) for name, experiment in EXPERIMENTS.items()}
    every_block = [block for shown in everything.values() for block in shown]
    lines = [
        "# Results",
        "",
        "Generated from the run records in `records/`; nothing here is typed by hand. What stands here is what this",
        "project publishes; your own runs go to `runs/`. Rebuild any of it with",
        "`python reproduce/<name>.py --publish --report-only`.",
        "",
        *summary_lines(found, every_block),
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
            "Seeds that a row lacks × hours of one core for each: the median over the row's latest records nearest in",
            "work, scaled by samples, steps and units squared.",
        ]
    lines += missing or ["Nothing: every cell has its seeds."]
    lines += ["", "## Provenance", ""]
    lines += [f"- {line}" for line in tables.origins(every_block)]
    lines += ["- commands: at the end of each page above"]
    lines += [f"- skipped record: {problem}" for problem in found.problems]
    return "\n".join([*lines, ""])


def summary_lines(found: Records, shown: list[Block]) -> list[str]:
    budgets = Counter(r.budget for r in found.good)
    counted = ", ".join(f"{count} at the {budget} budget" for budget, count in sorted(budgets.items()))
    lines = [f"{len(found.good)} runs: {counted or 'none yet'}."]
    if any(budget != "paper" for budget in budgets):
        lines.append("A number from a reduced budget neither confirms nor denies the paper's.")
    if aside := len({r.run for r in found.good} - {r.run for block in shown for r in block.records}):
        lines.append(f"{aside} of them stand in no table or figure: a newer recipe, or a newer run, took their place.")
    standins = sorted({r.task.name.partition("[")[0] for r in found.good if r.task.is_standin})
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
    """Per budget the command that runs what is missing, its hours, and for each cell the seeds that each row lacks."""
    done = {
        (block.budget, block.cell, line.row): _seeds(line.published)
        for block in shown if block.data == ""
        for line in block.lines if line.published and line.published.is_current
    }  # fmt: skip
    lines = []
    for budget, wanted in WANTED.items():
        total, of_cells = 0.0, []
        for cell in experiment.all_cells:
            lacking = []
            for row in experiment.runnable_rows:
                seeds = wanted - done.get((budget, cell, row), 0)
                if seeds > 0 and _is_asked_for(experiment, row, cell, budget, done):
                    hours = _hours(experiment, row, cell, budget, known)
                    total += seeds * (hours or 0.0)
                    lacking.append(f"{row} {seeds} × {f'{rounded(hours)} h' if hours else 'time not measured'}")
            if lacking:
                of_cells.append(f"    - `--cells {cell}`: {', '.join(lacking)}")
        if of_cells:
            command = f"python reproduce/{experiment.name}.py --publish --budget {budget} --seeds {wanted}"
            lines += [f"- {experiment.title}: `{command}`, {rounded(total)} h", *of_cells]
    return lines


def _seeds(group: Group) -> int:
    return sum(r.status != "unfinished" for r in group.records)


def _is_asked_for(
    experiment: Experiment, row: str, cell: str, budget: str, done: dict[tuple[str, str, str], int]
) -> bool:
    """Whether a budget is one of its own, and says more than the paper's as far as that was run."""
    recipe = experiment.load_recipe()
    if budget == "paper":
        return True
    if not recipe.offers(row, cell, budget) or done.get(("paper", cell, row), 0) >= WANTED[budget]:
        return False
    return recipe.resolve(row, cell, budget)[0] != recipe.resolve(row, cell, "paper")[0]


def _hours(experiment: Experiment, row: str, cell: str, budget: str, known: list[Record]) -> float | None:
    """Of one seed."""
    settings, _ = experiment.load_recipe().resolve(row, cell, budget)
    left = time_left(experiment.recipe, row, settings, 0, known)
    return None if left is None else left / 3600
