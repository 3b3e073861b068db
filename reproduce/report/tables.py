"""Tables as Markdown, CSV and LaTeX, each with its provenance; and in the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from itertools import groupby, pairwise

from rich.markup import escape as escape_markup
from rich.table import Table

from reproduce.plan import paper
from reproduce.plan.experiments import Experiment
from reproduce.report.judging import MIN_SEEDS
from reproduce.report.records import Record
from reproduce.report.selection import Entry, number, ours


def by_row(entries: list[Entry]) -> list[tuple[str, str, dict[str, list[Entry]]]]:
    """(row, label, cell -> entries) in order; a cell has one entry per kind of data."""
    rows = []
    for (row, label), group in groupby(entries, key=lambda e: (e.row, e.label)):
        cells: dict[str, list[Entry]] = {}
        for entry in group:
            cells.setdefault(entry.cell, []).append(entry)
        rows.append((row, label, cells))
    return rows


def cell_labels(entries: list[Entry]) -> dict[str, str]:
    return {entry.cell: entry.cell_label for entry in entries}


def warnings(entries: list[Entry]) -> list[str]:
    """The first lines of every table: what its numbers are not."""
    lines = []
    standins = sorted({r.task.name for e in entries if e.data == "stand-in" for r in e.records})
    if standins:
        lines.append(f"STAND-IN DATA: {', '.join(standins)} is synthetic; its numbers do not compare with the paper's.")
    parts = sorted({r.task.name for e in entries if e.data not in ("", "stand-in") for r in e.records})
    if parts:
        lines.append(f"PART OF THE DATA: {', '.join(parts)}; these numbers do not compare with the paper's.")
    budgets = sorted({r.budget for e in entries for r in e.records if r.budget != "paper"})
    if budgets:
        lines.append(
            f"REDUCED BUDGET ({', '.join(budgets)}) where a cell says so; such a number neither confirms nor denies."
        )
    return lines


def provenance(entries: list[Entry]) -> list[str]:
    """Which code, machines and commands the numbers come from."""
    records = list({r.run: r for e in entries for r in e.records}.values())
    if not records:
        return ["no records"]
    return [
        f"{len(records)} run records, {min(r.finished for r in records)} to {max(r.finished for r in records)}",
        f"commits: {_several(r.commit[:10] + (' (modified)' if r.dirty else '') for r in records)}",
        f"machines: {_several(_machine(r) for r in records)}",
        f"versions: {_several('python ' + r.versions['python'] + ', torch ' + r.versions['torch'] for r in records)}",
        f"commands: {_several(r.command for r in records)}",
    ]


def _machine(r: Record) -> str:
    where = r.machine.gpu if r.device.startswith("cuda") and r.machine.gpu else r.machine.cpu
    return f"{where}, {r.machine.cores} cores"


def _several(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def order_lines(entries: list[Entry]) -> list[str]:
    """For figures: the order of the models on each cell, and where neighbours' intervals overlap."""
    lines = []
    for cell, label in cell_labels(entries).items():
        ranked = [e for e in entries if e.cell == cell and e.summary]
        if len(ranked) < 2:
            continue
        metric, better_high = ranked[0].records[0].task.metric, ranked[0].records[0].task.higher_is_better
        ranked.sort(key=lambda e: e.summary.mean if e.summary else 0.0, reverse=better_high)
        text = ranked[0].label
        for before, after in pairwise(ranked):
            text += f" {_relation(before, after)} {after.label}"
        shown = ", ".join(number(e.summary.mean, metric) for e in ranked if e.summary)
        lines.append(f"{label}: {text} ({shown})")
    if lines:
        lines.append(
            f"“<” stands where the 95 % intervals of neighbours are apart, “≲” where they overlap, “?” where one has "
            f"fewer than {MIN_SEEDS} seeds; best first."
        )
    return lines


def _relation(better: Entry, worse: Entry) -> str:
    a, b = better.summary, worse.summary
    if not a or not b or a.half is None or b.half is None or min(a.n, b.n) < MIN_SEEDS:
        return "?"
    return "<" if abs(a.mean - b.mean) > a.half + b.half else "≲"


def markdown(experiment: Experiment, entries: list[Entry]) -> str:
    labels = cell_labels(entries)
    printed = experiment.kind == "table"
    head = ["Model"]
    for label in labels.values():
        head += [f"{label}: paper", f"{label}: ours", f"{label}: verdict"] if printed else [f"{label}: ours"]
    lines = [f"# {experiment.title}", ""]
    lines += [f"**{line}**  " for line in warnings(entries)]
    lines += ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    marks: dict[str, int] = {}
    for _, label, cells in by_row(entries):
        doubt = next(iter(cells.values()))[0].discrepancy
        columns = [f"{label} [{marks.setdefault(doubt, len(marks) + 1)}]" if doubt else label]
        for cell in labels:
            here = cells[cell]
            mine = "<br>".join(ours(e) for e in here)
            columns += [here[0].printed, mine, "<br>".join(str(e.verdict) for e in here)] if printed else [mine]
        lines.append(f"| {' | '.join(columns)} |")
    lines += ["", "Ours is mean ± 95 % interval over n seeds (Student's t); test split, weights chosen on validation."]
    lines += [f"\n[{mark}] {text}" for text, mark in marks.items()]
    table = paper.load().tables.get(experiment.name)
    if table and table.note:
        lines += ["", table.note]
    if order := order_lines(entries) if not printed else []:
        lines += ["", "## Order", "", *(f"- {line}" for line in order)]
    lines += ["", "## Provenance", "", *(f"- {line}" for line in provenance(entries)), ""]
    return "\n".join(lines)


COLUMNS = (
    "experiment", "row", "label", "cell", "paper", "ours", "half_width_95", "n", "seeds", "values", "verdict", "reason",
    "data", "task", "fingerprint", "budget", "updates", "updates_planned", "hidden_size", "parameters", "seconds",
    "diverged", "unfinished", "commits", "torch", "machine", "discrepancy",
)  # fmt: skip


def comma_separated(experiment: Experiment, entries: list[Entry]) -> str:
    """One line per entry, numbers in full; every line carries its own provenance."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for e in entries:
        s, rs = e.summary, e.records
        done = [r for r in rs if r.status == "completed"]
        first = rs[0] if rs else None
        writer.writerow([
            experiment.name, e.row, e.label, e.cell, "" if e.printed == "-" else e.printed,
            s.mean if s else "", s.half if s and s.half is not None else "", s.n if s else 0,
            " ".join(str(r.seed) for r in done), " ".join(str(r.test) for r in done), e.verdict.word, e.verdict.reason,
            e.data or ("real" if rs else ""), first.task.name if first else "", first.task.fingerprint if first else "",
            first.budget if first else "", min((r.steps_done for r in rs), default=""),
            first.steps_planned if first else "", first.settings.model.hidden_size if first else "",
            first.parameters if first else "", round(sum(r.wall_seconds for r in rs), 1) if rs else "",
            sum(r.status == "diverged" for r in rs), sum(r.status == "unfinished" for r in rs),
            " ".join(dict.fromkeys(r.commit[:10] for r in rs)), first.versions["torch"] if first else "",
            _machine(first) if first else "", e.discrepancy,
        ])  # fmt: skip
    return out.getvalue()


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "≤": r"$\leq$", "<": r"$<$",
    ">": r"$>$", "“": "``", "”": "''", "·": r"$\cdot$", "§": r"\S", "×": r"$\times$", "≲": r"$\lesssim$",
}  # fmt: skip


def escape(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def latex(experiment: Experiment, entries: list[Entry]) -> str:
    """A booktabs table, ready to \\input; it needs \\usepackage{booktabs} and \\usepackage{tabularx}."""
    labels = cell_labels(entries)
    printed = experiment.kind == "table"
    each = 3 if printed else 1
    tall = r"\raggedright\arraybackslash"
    columns = f"r>{{{tall}}}X>{{{tall}}}X" if printed else f">{{{tall}}}X"
    head = ("Generated from run records, not typed.", r"Preamble: \usepackage{booktabs,tabularx,amssymb}")
    lines = [f"% {line}" for line in (*head, *provenance(entries))]
    caption = " ".join([experiment.title + ".", *warnings(entries)])
    lines += [
        r"\begin{table*}", r"\centering\footnotesize", rf"\caption{{{escape(caption)}}}",
        rf"\label{{tab:durnn-{experiment.name}}}", rf"\begin{{tabularx}}{{\textwidth}}{{l{columns * len(labels)}}}",
        r"\toprule",
    ]  # fmt: skip
    if printed:
        spans = [rf"\multicolumn{{3}}{{c}}{{{escape(label)}}}" for label in labels.values()]
        rules = [rf"\cmidrule(lr){{{2 + 3 * k}-{4 + 3 * k}}}" for k in range(len(labels))]
        lines += [" & ".join(["", *spans]) + r" \\", " ".join(rules)]
        lines.append(" & ".join(["Model", *(["paper", "ours", "verdict"] * len(labels))]) + r" \\")
    else:
        lines.append(" & ".join(["Model", *(escape(label) for label in labels.values())]) + r" \\")
    lines.append(r"\midrule")
    for _, label, cells in by_row(entries):
        parts = [escape(label)]
        for cell in labels:
            here = cells[cell]
            mine = "; ".join(escape(ours(e)) for e in here)
            verdict = "; ".join(escape(e.verdict.word) for e in here)
            parts += [escape(here[0].printed.replace("-", "–")), mine, verdict] if each == 3 else [mine]
        lines.append(" & ".join(parts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabularx}", r"\end{table*}", ""]
    return "\n".join(lines)


def terminal(experiment: Experiment, entries: list[Entry]) -> Table:
    labels = cell_labels(entries)
    printed = experiment.kind == "table"
    table = Table(title=experiment.title, caption="\n".join(warnings(entries)), caption_style="yellow", show_lines=True)
    table.add_column("model")
    for label in labels.values():
        for name in ("paper", "ours: verdict") if printed else ("ours",):
            table.add_column(f"{label}\n{name}", overflow="fold")
    for _, label, cells in by_row(entries):
        columns = [label]
        for cell in labels:
            here = cells[cell]
            if printed:  # with a column of its own for the verdict, two cells would not fit into 80 characters
                columns += [here[0].printed, "\n".join(_ours_and_verdict(e) for e in here)]
            else:
                columns.append("\n".join(ours(e, short=True) for e in here))
        table.add_row(*map(escape_markup, columns))
    return table


def _ours_and_verdict(entry: Entry) -> str:
    return f"{ours(entry, short=True)}: {entry.verdict.word}" if entry.records else entry.verdict.word
