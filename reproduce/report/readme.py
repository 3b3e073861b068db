"""The generated parts of the project's README: ``python -m reproduce.report.readme`` writes them anew.

A part stands between ``<!-- generated: name -->`` and ``<!-- end -->``; a test holds all of them true.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
from models.inputs import INPUTS
from models.readouts import READOUTS
from models.registry import ZOO, Registry
from reproduce.plan import paper
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.plan.runs import ROOT
from reproduce.report import records, speed
from reproduce.report.records import Record
from reproduce.report.selection import blocks
from reproduce.report.tables import Footnotes, difference, value
from suite.files import write_atomic

README = ROOT / "README.md"
SHOWN = (("table1", "mnist"), ("table1", "pmnist"), ("table2", "ptb-c"), ("table3", "ntu-cs"), ("table3", "ntu-cv"))
_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def results(known: list[Record]) -> str:
    """The paper's DuRNN rows on real data, each at the largest budget it was run at; at the quick one, which takes
    minutes, only where a cell has no other."""
    lines = ["| | paper | published (seeds) | − paper | budget, data | verdict |", "|---|---:|---:|---:|---|---|"]
    for name, cell in SHOWN:
        found = [b for b in blocks(EXPERIMENTS[name], known) if b.cell == cell and b.records and b.data != "stand-in"]
        longer = [b for b in found if b.budget != "quick"] or found[:1]
        for row in paper.load().tables[name].rows:
            shown = [(b, line) for b in longer for line in b.lines if line.row == row and line.published]
            if row.startswith("durnn") and shown:
                block, line = shown[0]
                label = f"[{block.label}](results/{name}.md): {line.label}"
                mine = value(line.published, Footnotes()).partition(" [")[0]
                away = difference(line, block.metric) or "–"
                where = f"{block.budget}, {block.data or 'all'}"
                lines.append(f"| {label} | {line.printed} | {mine} | {away} | {where} | {line.verdict.word} |")
    return "\n".join(lines)


def rows(known: list[Record]) -> str:
    """How many of the paper's rows run, and how many have been run."""
    said = []
    for name, table in paper.load().tables.items():
        recipe = EXPERIMENTS[name].load_recipe()
        can = sum(row in recipe.rows for row in table.rows)
        ran = len({r.row for r in known if r.recipe == recipe.name and r.row in table.rows})
        said.append(
            f"{can} of {len(table.rows)} rows of {EXPERIMENTS[name].title.partition(':')[0]} run, {ran} have runs"
        )
    return f"{'; '.join(said)}. {len(known)} runs are published."


def zoo(known: list[Record]) -> str:
    """Every model with its state, its paper and its file."""
    lines = ["| name | states | paper | file |", "|---|---|---|---|"]
    for name in models.names():
        net = models.registry.example(name)
        path = Path(inspect.getfile(ZOO.entry(name).cls)).relative_to(ROOT)
        states = ", ".join(net.state_names)
        lines.append(f"| `{name}` | {states} | {models.registry.paper(name) or '–'} | [{path}]({path}) |")
    return "\n".join(lines)


def around(known: list[Record]) -> str:
    """Every input and readout with the penalties that it collects, its paper and its file."""
    lines = ["| name | stands | penalties | paper | file |", "|---|---|---|---|---|"]
    registries: tuple[tuple[Registry[Any], str], ...] = ((INPUTS, "before"), (READOUTS, "behind"))
    for registry, where in registries:
        for name in registry.names():
            entry = registry.entry(name)
            path = Path(inspect.getfile(entry.cls)).relative_to(ROOT)
            penalties = ", ".join(f"`{penalty}`" for penalty in entry.cls.penalty_names) or "–"
            lines.append(f"| `{name}` | {where} | {penalties} | {entry.paper or '–'} | [{path}]({path}) |")
    return "\n".join(lines)


def kernels(known: list[Record]) -> str:
    """The speed of every machine that a measurement was published of."""
    return speed.readme_part(speed.published())


PARTS: dict[str, Callable[[list[Record]], str]] = {
    "results": results,
    "rows": rows,
    "zoo": zoo,
    "around": around,
    "speed": kernels,
}


def generate(text: str, known: list[Record]) -> str:
    """The text with every generated part written anew; ValueError for a part that nobody generates."""

    def fill(match: re.Match[str]) -> str:
        if match[2] not in PARTS:
            raise ValueError(f"README: there is no generated part {match[2]!r}; known: {', '.join(PARTS)}")
        return f"{match[1]}{PARTS[match[2]](known)}\n{match[3]}"

    return _PART.sub(fill, text)


def main() -> None:
    known = records.read_all(ROOT / "results" / "records").good
    write_atomic(README, generate(README.read_text(encoding="utf-8"), known).encode())


if __name__ == "__main__":
    main()
