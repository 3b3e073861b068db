"""What stands on the pages about results: overview, tables and figures, cells, claims, bounds."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reproduce.plan import paper
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.report import cite, claims, tables, theory, verdicts
from reproduce.report.estimates import rounded, time_left
from reproduce.report.records import Record
from reproduce.report.selection import Block, Group, Line, number
from reproduce.report.site import prose
from reproduce.report.site.addresses import Spot, claim_page, experiment_page, record_file
from reproduce.report.site.content import TABLES, Content, Entry
from reproduce.report.site.curves import Chart, chart, series
from reproduce.report.site.words import rule_in_words


@dataclass(frozen=True)
class Page:
    """One file: its place, its template and what the template is given. ``trail``: (title, page) of those above it."""

    path: str
    title: str
    template: str
    given: dict[str, Any] = field(default_factory=dict)
    trail: tuple[tuple[str, str], ...] = ()


# Overview


def overview(content: Content, has_dashboard: bool) -> Page:
    matrix = []
    for name in TABLES:
        table = paper.load().tables[name]
        recipe = EXPERIMENTS[name].load_recipe()
        rows = [
            (row.label, [_square(content, name, key, cell) for cell in table.cells]) for key, row in table.rows.items()
        ]
        matrix.append((EXPERIMENTS[name], [recipe.cells[cell].label for cell in table.cells], rows))
    return Page(
        "index.html",
        "DuRNN suite: results",
        "index.html",
        {
            "matrix": matrix,
            "counts": content.row_counts,
            "words": content.words().most_common(),
            "printed": len(content.printed_numbers()),
            "rule": prose.html(verdicts.judge.__doc__),
            "claim_words": _claim_words(content),
            "has_dashboard": has_dashboard,
        },
    )


def _square(content: Content, name: str, row: str, cell: str) -> dict[str, Any]:
    if paper.load().tables[name].printed(row, cell) == "-":
        return {"word": "no printed value"}
    entry = content.best(name, row, cell)
    verdict, where = entry.line.verdict, entry.block.data or f"{entry.block.budget} budget"
    return {
        "word": verdict.word,
        "reason": verdict.reason,
        "where": where if entry.line.published else "",
        "page": entry.spot.page,
    }


def _claim_words(content: Content) -> list[tuple[str, int]]:
    found = [judged.verdict.word for judged in content.judged.values()]
    return [(word, found.count(word)) for word in reversed(claims.PRECEDENCE)]


# Tables and figures


def experiments(content: Content) -> Iterator[Page]:
    for name, experiment in EXPERIMENTS.items():
        notes = tables.Footnotes()
        shown = content.blocks[name]
        parts = {"": "On the paper's data", "part": "On a part of the data", "stand-in": "On generated stand-ins"}
        sections: dict[str, list[dict[str, Any]]] = {}
        for index, block in enumerate(shown):
            kind = block.data if block.data in ("", "stand-in") else "part"
            sections.setdefault(parts[kind], []).append(_block(content, block, index, notes))
        table = paper.load().tables.get(name)
        yield Page(
            experiment_page(name),
            experiment.title,
            "experiment.html",
            {
                "experiment": experiment,
                "sections": sections,
                "notes": notes.texts,
                "explanations": tables.explanations(shown),
                "paper_note": table.note if table else "",
                "claims": [(n, j) for n, j in content.judged.items() if name in j.claim.figures],
                "activations": _activations(content, name),
                "clip": CLIP_PAGE if name == "table3" and _clip_rows(content) else "",
                "command": f"python reproduce/{name}.py --budget paper --seeds 5",
            },
        )


def _block(content: Content, block: Block, index: int, notes: tables.Footnotes) -> dict[str, Any]:
    names = tables.columns(block, with_yours=False)
    rows = [_line(content, block, line, names, notes) for line in block.lines]
    drawn = None
    if block.experiment.kind == "curves":
        some = [(style, line) for style, line in enumerate(block.lines) if line.published]
        curves = [series(line.label, style, line.published.records) for style, line in some if line.published]
        chance = next((line.published.chance for _, line in some if line.published), None)
        title = f"{block.experiment.title}, {block.label}, {block.budget} budget"
        drawn = chart(f"curve-{index}", title, block.metric, curves, chance)
    order = block.order()
    return {
        "index": index, "block": block, "heading": tables.heading(block), "facts": tables.facts(block),
        "columns": names, "rows": rows, "order": order.line if order else "", "chart": drawn,
    }  # fmt: skip


def _line(content: Content, block: Block, line: Line, names: list[str], notes: tables.Footnotes) -> dict[str, Any]:
    """The columns of one line; marks are numbers of footnotes."""
    group = line.published
    texts = dict(zip(names, tables.cells(block, line, names, tables.Footnotes()), strict=True))
    return {
        "label": line.label,
        "label_marks": _marks(notes, line.notes if "paper" in names else ()),
        "texts": texts,
        "value": value_text(group),
        "has_runs": group is not None,
        "value_marks": _marks(notes, group.remarks if group else ()),
        "word": line.verdict.word,
        "page": content.spot(block, line).page,
    }


def _marks(notes: tables.Footnotes, texts: tuple[str, ...] | list[str]) -> list[int]:
    notes.mark(texts)
    return [notes.texts.index(text) + 1 for text in texts]


def value_text(group: Group | None) -> str:
    """Mean over the completed seeds and their number."""
    if group is None:
        return "–"
    if summary := group.summary:
        return f"{number(summary.mean, group.first.task.metric)} ({summary.n})"
    return "diverged" if all(r.status == "diverged" for r in group.records) else "unfinished"


def _activations(content: Content, name: str) -> dict[str, Any] | None:
    """The drawing and the numbers that were made where the trained weights are; None where there are none."""
    if EXPERIMENTS[name].kind != "activations":
        return None
    results = content.folder.parent
    drawing, numbers = results / "figures" / f"{name}.svg", results / f"{name}-activations.csv"
    if not (drawing.exists() and numbers.exists()):
        return {}
    with numbers.open(encoding="utf-8", newline="") as file:
        return {"drawing": f"figures/{name}.svg", "rows": list(csv.DictReader(file))}


# One clip, seen by the skeleton systems

CLIP, CLIP_PAGE = "table3-clip", "clip.html"


def _clip_rows(content: Content) -> list[dict[str, str]]:
    """The numbers of the drawing that was made where the trained weights are; empty where there is none."""
    results = content.folder.parent
    numbers = results / f"{CLIP}.csv"
    if not ((results / "figures" / f"{CLIP}.svg").exists() and numbers.exists()):
        return []
    with numbers.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def clip_pages(content: Content) -> Iterator[Page]:
    rows = _clip_rows(content)
    if rows:
        table = EXPERIMENTS["table3"]
        yield Page(
            CLIP_PAGE,
            "One clip, seen by the skeleton systems",
            "clip.html",
            {
                "drawing": f"figures/{CLIP}.svg",
                "clip": rows[0]["clip"],
                "joints": [(row["which"], row["attention"]) for row in rows if row["of"] == "joint"],
                "frames": [(row["which"], row["attention"]) for row in rows if row["of"] == "frame"],
            },
            ((table.title, experiment_page(table.name)),),
        )


# Cells


def cells(content: Content) -> Iterator[Page]:
    for spot, entry in content.cells.items():
        first = content.shown_in(spot)[0]
        yield Page(
            spot.page,
            f"{entry.line.label} on {entry.block.label}",
            "cell.html",
            _cell(content, entry),
            ((first.title, experiment_page(first.name)),),
        )


def _cell(content: Content, entry: Entry) -> dict[str, Any]:
    spot, block, line = entry.spot, entry.block, entry.line
    group, table = line.published, paper.load().tables.get(block.experiment.name)
    margin = table.margin(line.row, block.cell) if table and line.printed != "-" else None
    recipe = block.experiment.load_recipe()
    if group:
        settings, sources = group.first.settings.explicit(), group.first.sources
    elif line.row in recipe.rows:
        resolved, sources = recipe.resolve(line.row, block.cell, spot.budget)
        settings = resolved.explicit()
    else:
        settings, sources = {}, {}
    runs = {r.run[:12] for r in group.records} if group else set()
    data = shlex.quote(spot.data or "real")
    return {
        "spot": spot, "block": block, "line": line, "group": group, "margin": margin,
        "metric": cite.METRICS.get(block.metric, (block.metric, "")),
        "value": value_text(group), "half": _half(group), "difference": _difference(line, block.metric),
        "budget": tables.BUDGET_WORDS[spot.budget],
        "sentence": cite.sentence(block, line) if cite.has_ended(group) else "",
        "cited": f"{block.experiment.name}/{line.row}/{block.cell} --budget {spot.budget} --data {data}",
        "command": cite.command(block.experiment, (line.row,), (block.cell,), spot.budget, group)
        if line.row in recipe.rows else "",
        "hours": _hours(content, entry), "seeds": [_seed(r, content) for r in group.records] if group else [],
        "settings": list(flat(settings, sources)), "model": settings.get("model", {}).get("name", ""),
        "chart": _own_chart(entry), "others": content.beside(spot), "shown_in": content.shown_in(spot),
        "protocol": table.protocol(line.row, block.cell) if table else "",
        "claims": [(n, j) for n, j in content.judged.items() if runs & set(j.runs)],
    }  # fmt: skip


def _half(group: Group | None) -> str:
    if not (group and group.summary and group.summary.half is not None):
        return ""
    return number(group.summary.half, group.first.task.metric)


def _difference(line: Line, metric: str) -> dict[str, str] | None:
    found = line.verdict.difference
    if found is None:
        return None
    intervals = {
        name: f"{cite.signed(ends[0], metric)} to {cite.signed(ends[1], metric)}"
        for name, ends in (("90 %", found.interval_90), ("95 %", found.interval_95)) if ends
    }  # fmt: skip
    return {"mean": cite.signed(found.mean, metric), "margin": number(found.margin, metric), **intervals}


def _hours(content: Content, entry: Entry) -> str:
    """How long one seed takes, where it is not there yet."""
    recipe = entry.block.experiment.load_recipe()
    if entry.line.published or entry.line.row not in recipe.rows:
        return ""
    settings, _ = recipe.resolve(entry.line.row, entry.block.cell, entry.spot.budget)
    left = time_left(recipe.name, entry.line.row, settings, 0, content.records.good)
    return "" if left is None else f"about {rounded(left / 3600)} hours of one core per seed"


def _seed(r: Record, content: Content) -> dict[str, Any]:
    commits = list(dict.fromkeys(visit.commit for visit in r.lineage)) or [r.commit]
    return {
        "record": r, "file": record_file(r), "machine": tables.machine_of(r), "commits": commits,
        "test": "–" if r.test is None else number(r.test, r.task.metric),
        "valid": "–" if r.valid is None else number(r.valid, r.task.metric),
    }  # fmt: skip


def flat(settings: dict[str, Any], sources: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Name, value and source of everything that is set."""
    for part, options in settings.items():
        if not isinstance(options, dict):
            yield part, _plain(options), sources.get(part, "")
            continue
        for option, value in options.items():
            name = f"{part}.{option}"
            yield name, _plain(value), sources.get(name, sources.get(part, ""))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _own_chart(entry: Entry) -> Chart | None:
    group = entry.line.published
    if group is None:
        return None
    curves = [series(f"seed {r.seed}", n, [r]) for n, r in enumerate(group.records)]
    return chart("curve", f"{entry.line.label} on {entry.block.label}", entry.block.metric, curves, group.chance)


# Claims and bounds


def claim_pages(content: Content) -> Iterator[Page]:
    yield Page(
        "claims/index.html",
        "The paper's sentences",
        "claims.html",
        {"judged": content.judged, "counts": _claim_words(content), "rule": prose.html(_after_first(claims.__doc__))},
    )
    for name, judged in content.judged.items():
        findings = [f for word in claims.PRECEDENCE for f in judged.findings if f.verdict.word == word]
        yield Page(
            claim_page(name),
            name,
            "claim.html",
            {
                "name": name, "judged": judged, "findings": findings, "sentence": cite.claim_sentence(judged),
                "rules": [rule_in_words(rule) for rule in judged.claim.rules],
                "figures": [EXPERIMENTS[figure] for figure in judged.claim.figures],
                "records": {run: evidence(content, run) for run in judged.runs},
            },
            (("Claims", "claims/index.html"),),
        )  # fmt: skip


def evidence(content: Content, run: str) -> tuple[str, Spot | None]:
    """The file of a run, and the page of its cell where it has one."""
    r = content.by_run[run][0]
    return record_file(r), content.spot_of_record.get((r.run, r.row))


def _after_first(docstring: str | None) -> str:
    return (docstring or "").partition("\n\n")[2]


def bounds(content: Content) -> Page:
    gradients = []
    for m in content.measured:
        found = {name.removeprefix("gradient/"): value for name, value in m.values.items() if "gradient/" in name}
        if found and m.run[:12] in content.by_run:
            gradients.append((content.by_run[m.run[:12]][0], found))
    about = [(n, j) for n, j in content.judged.items() if any(rule.kind == "bound" for rule in j.claim.rules)]
    given = {"lines": theory.formulas(), "gradients": gradients, "claims": about, "file": record_file}
    return Page("bounds.html", "Gradient control (§IV-B) in numbers", "bounds.html", given)
