"""How to cite a number or a claim: ``python -m reproduce.report.cite table1/durnn-1/mnist``.

Prints a sentence that is true of the records, BibTeX for this suite and for the paper, the ids of the records and the
command that rebuilds the number. A name is ``EXPERIMENT/ROW/CELL``, ``EXPERIMENT`` or ``claim/NAME``. Exit status 2 if
the name is not known or there is nothing to cite.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reproduce.plan.experiments import EXPERIMENTS, Experiment
from reproduce.plan.recipe import BUDGETS
from reproduce.plan.runs import ROOT
from reproduce.report import claims, measurements
from reproduce.report.claims import JudgedClaim
from reproduce.report.measurements import Measurement
from reproduce.report.publish import PUBLISHED
from reproduce.report.records import Record, read_all
from reproduce.report.selection import Block, Group, Line, blocks, number
from reproduce.report.verdicts import Difference
from suite.files import nearest

CITATION = ROOT / "CITATION.cff"
METRICS = {
    "error_percent": ("test error", " %"),
    "accuracy_percent": ("test accuracy", " %"),
    "bits_per_character": ("test loss in bits per character", ""),
    "mse": ("test mean squared error", ""),
}


@dataclass(frozen=True)
class Citation:
    """``commands`` rebuild what the sentence says; ``others`` name what else there is to cite under the same name."""

    sentence: str
    records: tuple[str, ...]
    commands: tuple[str, ...]
    others: tuple[str, ...] = ()


def cite(
    name: str, records: Sequence[Record], budget: str = "", data: str = "", measured: Sequence[Measurement] = ()
) -> Citation:
    """The citation of a name; ValueError in one sentence if it is not known or there is nothing to cite.

    budget, data: which runs. ``data`` is "real", "stand-in" or a part of the data such as "10 of 60 classes". Without
    them: real data first, then the largest budget.
    """
    parts = name.strip("/").split("/")
    if parts[0] == "claim":
        if len(parts) != 2:
            raise ValueError(f"{name!r} is not the name of a claim; write claim/NAME")
        return _cite_claim(parts[1], records, measured)
    experiment = _known("table or figure", parts[0], EXPERIMENTS)
    if len(parts) == 1:
        return _cite_experiment(EXPERIMENTS[experiment], records, budget, data)
    if len(parts) != 3:
        cells = ", ".join(EXPERIMENTS[experiment].all_cells)
        raise ValueError(f"{name!r} does not name a number; write {experiment}/ROW/CELL with one of the cells {cells}")
    chosen = EXPERIMENTS[experiment]
    row, cell = _known("row", parts[1], chosen.shown_rows), _known("cell", parts[2], chosen.all_cells)
    found = [
        (block, line)
        for block in blocks(chosen, list(records), budgets=_budgets(budget))
        for line in block.lines
        if (block.cell, line.row) == (cell, row) and line.published and _is_wanted(block, data)
    ]
    ended = [(block, line) for block, line in found if has_ended(line.published)]
    if not ended:
        raise ValueError(f"there is nothing to cite: {_emptiness(chosen, row, cell, budget, data, bool(found))}")
    block, line = ended[0]
    assert line.published is not None
    return Citation(
        sentence(block, line),
        tuple(r.run for r in line.published.records),
        (command(chosen, (row,), (cell,), block.budget, line.published),),
        tuple(f"--budget {b.budget} --data {shlex.quote(b.data or 'real')}" for b, _ in ended[1:]),
    )


def _known(kind: str, name: str, known: Any) -> str:
    if name not in known:
        raise ValueError(f"there is no {kind} {name!r}; {nearest(name, known)}")
    return name


def _budgets(budget: str) -> tuple[str, ...]:
    return (_known("budget", budget, BUDGETS),) if budget else ()


def _is_wanted(block: Block, data: str) -> bool:
    return not data or (block.data or "real") == data


def has_ended(group: Group | None) -> bool:
    """Whether there is an outcome to speak of."""
    return group is not None and any(r.status != "unfinished" for r in group.records)


def _emptiness(experiment: Experiment, row: str, cell: str, budget: str, data: str, started: bool) -> str:
    if row not in experiment.load_recipe().rows:
        return f"row {row} of {experiment.name} has no recipe yet"
    which = "".join([f" at the {budget} budget" if budget else "", f" on data {data!r}" if data else ""])
    return f"{'no run has ended' if started else 'no run'} of {experiment.name}/{row}/{cell}{which}"


# Sentences


def sentence(block: Block, line: Line) -> str:
    """What the published runs of a line show, in words that hold for them and for nothing else."""
    group = line.published
    assert group is not None
    where = f"{block.label} ({block.experiment.title.partition(':')[0]})"
    text = f"{line.label} on {where}, trained {_schedule(block, group)} on {_data(block)}, {_outcome(group)}."
    text += _beside_paper(block, line)
    if group.remarks:
        text += f" Remarks: {'; '.join(group.remarks)}."
    return text


def _schedule(block: Block, group: Group) -> str:
    steps = sorted({r.steps_done for r in group.records})
    updates = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return f"at the {block.budget} budget ({updates} updates)"


def _data(block: Block) -> str:
    if block.data == "stand-in":
        return f"a generated stand-in ({block.records[0].task.name}), whose numbers compare with nothing but each other"
    return f"a part of the data ({block.data})" if block.data else "all of the paper's data"


def _outcome(group: Group) -> str:
    what, unit = METRICS.get(group.first.task.metric, (group.first.task.metric, ""))
    summary = group.summary
    if summary is None:
        return f"diverged in all of its {len(group.records)} seeds"
    seeds = ", ".join(str(r.seed) for r in group.records if r.status == "completed" and r.test is not None)
    mean = f"{number(summary.mean, group.first.task.metric)}{unit}"
    if summary.half is None:
        return f"has a {what} of {mean} with one seed ({seeds}), which gives no interval"
    half = number(summary.half, group.first.task.metric)
    return f"has a {what} of {mean} ± {half} (mean of {summary.n} seeds: {seeds}; ± is the 95 % interval of the mean)"


def _beside_paper(block: Block, line: Line) -> str:
    """Nothing where the paper prints no value, or where a difference to it would mean nothing."""
    if line.printed == "-":
        return ""
    if block.data:
        return f" The paper's number is of other data, so the two are {line.verdict.word}."
    text = f" The paper prints {line.printed}"
    if difference := line.verdict.difference:
        text += f"; the difference is {_signed(difference, block.metric)}"
    return f"{text}. Verdict: {line.verdict}."


def _signed(difference: Difference, metric: str) -> str:
    low, high = difference.interval_90 or (None, None)
    text = signed(difference.mean, metric)
    if low is not None and high is not None:
        text += f" (90 % interval {signed(low, metric)} to {signed(high, metric)})"
    return f"{text}, the margin ± {number(difference.margin, metric)}"


def signed(value: float, metric: str) -> str:
    return f"{'+' if value >= 0 else '−'}{number(abs(value), metric)}"


def command(
    experiment: Experiment, rows: Sequence[str], cells: Sequence[str], budget: str, group: Group | None = None
) -> str:
    """What rebuilds the numbers of a group, or makes them with five seeds where there is none yet."""
    seeds = max(r.seed for r in group.records) + 1 if group else 5
    text = f"python reproduce/{experiment.name}.py --rows {','.join(rows)} --cells {','.join(cells)}"
    return f"{text} --budget {budget} --seeds {seeds}"


def _cite_experiment(experiment: Experiment, records: Sequence[Record], budget: str, data: str) -> Citation:
    """The verdicts of a whole table, each printed number once, by the runs that say most about it."""
    best: dict[tuple[str, str], tuple[Block, Line]] = {}
    for block in blocks(experiment, list(records), budgets=_budgets(budget)):
        for line in block.lines:
            if line.published and _is_wanted(block, data):
                best.setdefault((line.row, block.cell), (block, line))
    if not best:
        raise ValueError(f"there is nothing to cite: no run of {experiment.name} is among the records")
    rows, runs = {row for row, _ in best}, [r.run for _, line in best.values() for r in _records(line)]
    text = f"Of the {len(experiment.shown_rows)} rows of {experiment.title}, {len(rows)} have runs in this suite"
    text += f" ({len(runs)} runs; {_counted(_kind(block) for block, _ in best.values())})."
    if experiment.kind == "table":
        words = _counted(line.verdict.word for _, line in best.values())
        text += f" Verdicts on the {len(best)} numbers with runs: {words}."
    commands = {
        command(experiment, (row,), (cell,), block.budget, line.published)
        for (row, cell), (block, line) in best.items()
    }
    return Citation(text, tuple(dict.fromkeys(runs)), tuple(sorted(commands)))


def _records(line: Line) -> tuple[Record, ...]:
    return line.published.records if line.published else ()


def _kind(block: Block) -> str:
    return f"at the {block.budget} budget on {block.data or 'all of the data'}"


def _counted(words: Any) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))


def _cite_claim(name: str, records: Sequence[Record], measured: Sequence[Measurement]) -> Citation:
    judged = claims.judge_all(records, measured)
    found = judged[_known("claim", name, judged)]
    runs = [r.run for r in records if r.run[:12] in found.runs]
    return Citation(claim_sentence(found), tuple(dict.fromkeys(runs)), ("python -m reproduce.report.claims",))


def claim_sentence(judged: JudgedClaim) -> str:
    where = f", at: {'; '.join(judged.where)}" if judged.where else ""
    return (
        f"The paper's sentence “{judged.claim.text}” ({judged.claim.section}) is judged {judged.verdict.word} by the "
        f"rules and records of this suite ({judged.verdict.reason}{where})."
    )


# BibTeX


def bibtex(path: Path = CITATION) -> str:
    """Entries for this suite and for the paper, from CITATION.cff."""
    if not path.exists():
        raise ValueError(f"there is no {path.name} in {path.parent}; it is part of the checkout")
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    entries = [_entry("durnn-suite", "software", data)]
    entries += [_entry("durnn-paper", one["type"], one) for one in data.get("references", [])[:1]]
    return "\n\n".join(entries)


def _entry(key: str, kind: str, data: dict[str, Any]) -> str:
    people = [
        f"{one['family-names']}, {one['given-names']}" if "family-names" in one else f"{{{one['name']}}}"
        for one in data["authors"]
    ]
    fields = {"title": f"{{{data['title']}}}", "author": " and ".join(people)}
    fields |= {name: str(data[name]) for name in ("version", "year", "journal", "doi", "url") if name in data}
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def main(arguments: list[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m reproduce.report.cite",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="such as table1/durnn-1/mnist, table1 or claim/NAME")
    parser.add_argument("--budget", default="", help="only runs at this budget")
    parser.add_argument("--data", default="", help="real, stand-in, or a part such as '10 of 60 classes'")
    parser.add_argument("--records", type=Path, default=PUBLISHED / "records", help="default: the published ones")
    options = parser.parse_args(arguments)
    try:
        measured = measurements.read_all(options.records.parent / "measurements")
        found = cite(options.name, read_all(options.records).good, options.budget, options.data, measured)
        entries = bibtex()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(found.sentence)
    if found.others:
        print(f"\nAlso: {'; '.join(found.others)}")
    print(f"\n{entries}\n\nRecords:", *(found.records or ["none: it follows from formulas"]), sep="\n")
    print("\nRebuild with:", *found.commands, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
