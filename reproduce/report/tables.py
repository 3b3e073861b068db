"""Blocks as text: in the terminal, as Markdown, CSV and LaTeX. One line per row, within 100 columns.

What holds for a whole block stands once above it; what holds for one number is a mark with a footnote. A stand-in's
numbers never stand beside the paper's: its blocks come last and have no column for them.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.markup import escape as escape_markup
from rich.table import Table

from reproduce.plan import paper
from reproduce.plan.experiments import Experiment
from reproduce.report.records import Record
from reproduce.report.selection import LAST, Block, Group, Line, number

BUDGET_WORDS = {
    "paper": "the paper's budget",
    "cpu": "cpu budget (a reduced schedule or width; neither confirms nor denies a number)",
    "quick": "quick budget (minutes instead of days; neither confirms nor denies a number)",
    "smoke": "smoke budget (shows that everything runs, nothing else)",
    "open": "open division (same task, model and parameters, a training recipe of our own)",
}


@dataclass
class Footnotes:
    """Texts behind marks, numbered in the order of their first use."""

    texts: list[str] = field(default_factory=list)

    def mark(self, texts: Iterable[str]) -> str:
        numbers = []
        for text in texts:
            if text not in self.texts:
                self.texts.append(text)
            numbers.append(self.texts.index(text) + 1)
        return f" [{','.join(map(str, numbers))}]" if numbers else ""

    def lines(self) -> list[str]:
        return [f"[{mark}] {text}" for mark, text in enumerate(self.texts, 1)]


def heading(block: Block) -> str:
    return f"{block.label}, {BUDGET_WORDS[block.budget]}"


def facts(block: Block) -> list[str]:
    """What holds for every number of a block."""
    found = []
    if block.data == "stand-in":
        names = sorted({r.task.name.partition("[")[0] for r in block.records})
        found.append(
            f"Generated stand-in data ({', '.join(names)}): these numbers compare with nothing but each other."
        )
    elif block.data:
        found.append(f"Only a part of the data, {block.data}: these numbers do not compare with the paper's.")
    if seen := block.samples_seen:
        usual = Counter(seen.values()).most_common(1)[0][0]
        rows = {n: [label for label, own in seen.items() if own == n] for n in sorted({*seen.values()} - {usual})}
        apart = "; ".join(f"{n:,} by {', '.join(names)}" for n, names in rows.items())
        unit = "characters" if block.metric == "bits_per_character" else "samples"
        found.append(f"Not trained for equally long: {apart}; {usual:,} {unit} by the others.")
    return found


def columns(block: Block, with_yours: bool) -> list[str]:
    """The columns of a block; the paper's stand only beside numbers from real data."""
    names = ["model"]
    is_table = block.experiment.kind == "table"
    if is_table and block.data != "stand-in":
        names.append("paper")
    names += ["published", "yours"] if with_yours else ["published"]
    if is_table and block.data == "":
        names += ["− paper", "verdict"]
    if not is_table:
        names += ["last", f"last {LAST}"]
    return names


def cells(block: Block, line: Line, names: list[str], notes: Footnotes) -> list[str]:
    """The texts of one line, in the order of the columns."""
    texts = {
        "model": line.label + notes.mark(line.notes if "paper" in names else ()),
        "paper": "–" if line.printed == "-" else line.printed,
        "published": value(line.published, notes),
        "yours": value(line.yours, notes),
        "− paper": difference(line, block.metric),
        "verdict": line.verdict.word + (" (yours)" if line.judged == "yours" and "published" in names else ""),
        "last": curve_end(line.group, 1),
        f"last {LAST}": curve_end(line.group, LAST),
    }
    return [texts[name] for name in names]


def value(group: Group | None, notes: Footnotes) -> str:
    """Mean over the completed seeds, their number, and a mark for whatever else has to be known."""
    if group is None:
        return "–"
    mark = notes.mark(group.remarks)
    if summary := group.summary:
        return f"{number(summary.mean, group.first.task.metric)} ({summary.n}){mark}"
    return ("diverged" if all(r.status == "diverged" for r in group.records) else "unfinished") + mark


def difference(line: Line, metric: str) -> str:
    """Our mean minus the printed value, with the half-width of its 90 % interval where there is one."""
    found = line.verdict.difference
    if found is None:
        return ""
    low, high = found.interval_90 or (None, None)
    half = "" if low is None or high is None else f" ± {number((high - low) / 2, metric)}"
    sign = "+" if found.mean >= 0 else "−"
    return f"{sign}{number(abs(found.mean), metric)}{half}"


def curve_end(group: Group | None, last: int) -> str:
    found = group.curve_value(last) if group else None
    return "–" if found is None or group is None else number(found, group.first.task.metric)


def explanations(blocks: list[Block]) -> list[str]:
    """What the columns mean."""
    said = [
        "A number is the mean over (n) seeds of the test metric of the weights that were best on validation.",
    ]
    if any(block.experiment.kind != "table" for block in blocks):
        said.append(
            f"“last” is the validation metric of the last evaluation, “last {LAST}” the mean of the last {LAST}."
        )
    if any(block.experiment.kind == "table" and block.data == "" for block in blocks):
        said.append(
            "“− paper” is our mean minus the printed value, ± half its 90 % interval; the rule of the verdict is in"
        )
        said.append("reproduce/report/verdicts.py, its error rates in reproduce/report/error_rates.md.")
    return said


def order_line(block: Block, whose: str = "published") -> str:
    """The order of the rows of a block by all pairs, in words; empty where there is nothing to order."""
    pairs = block.order(whose)
    if pairs is None or all(order.p_value is None for order in pairs.orders.values()):
        return ""
    alike = ", rows trained for unequally long" if block.samples_seen else ""
    return f"{block.label}, {block.budget} budget{alike}: {pairs.line}"


def agreement_lines(blocks: list[Block]) -> list[str]:
    """How many of the user's runs agree with the published ones, and by which rule."""
    found = [agreement for block in blocks for _, agreement in block.agreements]
    if not found:
        return []
    counts = {word: sum(a.word == word for a in found) for word in dict.fromkeys(a.word for a in found)}
    good = counts.get("equal", 0) + counts.get("agrees", 0)
    compared = good + counts.get("differs", 0)
    lines = [
        f"{good} of {compared} of your runs that can be compared agree with the published ones"
        f" ({', '.join(f'{count} {word}' for word, count in counts.items())})."
        if compared
        else f"None of your {len(found)} runs can be compared with published ones"
        f" ({', '.join(f'{count} {word}' for word, count in counts.items())})."
    ]
    lines.append(
        "Rule: equal bits on one kind of machine with reference recurrences and one thread; otherwise inside the 95 % "
        "prediction interval of the published seeds, which takes at least two."
    )
    differing = [
        f"{r.row} on {r.cell}: {a.reason}" for block in blocks for r, a in block.agreements if a.word == "differs"
    ]
    return [*lines, *differing]


def terminal(block: Block, with_yours: bool, notes: Footnotes) -> Table:
    """One block; its footnotes are gathered in ``notes`` and printed after the last block."""
    names = columns(block, with_yours)
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in ("model", "verdict") else "right", no_wrap=name != "model")
    for line in block.lines:
        table.add_row(*map(escape_markup, cells(block, line, names, notes)))
    return table


def markdown(experiment: Experiment, blocks: list[Block], with_yours: bool = False) -> str:
    notes = Footnotes()
    lines = [f"# {experiment.title}", "", *explanations(blocks)]
    for block in blocks:
        names = columns(block, with_yours)
        lines += ["", f"## {heading(block)}", ""]
        if said := facts(block):
            lines += [*said, ""]
        lines += [
            f"| {' | '.join(names)} |",
            "|" + "".join("---|" if n in ("model", "verdict") else "---:|" for n in names),
        ]
        lines += [f"| {' | '.join(cells(block, line, names, notes))} |" for line in block.lines]
        for whose in ("published", "yours") if with_yours else ("published",):
            if order := order_line(block, whose):
                lines += ["", f"Order{' of yours' if whose == 'yours' else ''}: {order}"]
    if notes.texts:
        lines += ["", "## Notes", "", *(f"- {line}" for line in notes.lines())]
    table = paper.load().tables.get(experiment.name)
    if table and table.note:
        lines += ["", table.note]
    if agreed := agreement_lines(blocks):
        lines += ["", "## Yours and the published runs", "", *agreed]
    lines += ["", "## Provenance", "", *(f"- {line}" for line in origins(blocks))]
    if given := commands(blocks):
        lines += ["- commands:", *(f"    - `{command}`" for command in given)]
    return "\n".join([*lines, ""])


def provenance(blocks: list[Block]) -> list[str]:
    """Which code, machines and commands the numbers come from."""
    given = commands(blocks)
    return [*origins(blocks), *([f"commands: {'; '.join(given)}"] if given else [])]


def commands(blocks: list[Block]) -> list[str]:
    """The command lines that made the numbers, each once."""
    return list(dict.fromkeys(r.command for block in blocks for r in block.records))


def origins(blocks: list[Block]) -> list[str]:
    """Which code, versions and machines the numbers come from."""
    records = list({r.run: r for block in blocks for r in block.records}.values())
    if not records:
        return ["no records"]
    return [
        f"{len(records)} run records, {min(r.finished for r in records)} to {max(r.finished for r in records)}",
        f"commits: {_several(r.commit[:10] + (' (modified)' if r.dirty else '') for r in records)}",
        f"machines: {_several(machine_of(r) for r in records)}",
        f"versions: {_several('python ' + r.versions['python'] + ', torch ' + r.versions['torch'] for r in records)}",
    ]


def machine_of(r: Record) -> str:
    where = r.machine.gpu if r.device.startswith("cuda") and r.machine.gpu else r.machine.cpu
    return f"{where}, {r.machine.cores} cores"


def _several(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


COLUMNS = (
    "experiment", "row", "label", "cell", "data", "budget", "whose", "paper", "mean", "half_width_95", "n", "seeds",
    "values", "last", f"last_{LAST}", "difference", "difference_low_90", "difference_high_90", "verdict", "reason",
    "seeds_needed", "updates", "updates_planned", "hidden_size", "parameters", "seconds", "diverged", "unfinished",
    "remarks", "task", "fingerprint", "runs", "commits", "torch", "machine", "note",
)  # fmt: skip


def comma_separated(blocks: list[Block], with_yours: bool = False) -> str:
    """One line per row, block and owner of the runs, numbers in full; every line carries its own provenance."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for block in blocks:
        for line in block.lines:
            for whose in ("published", "yours") if with_yours else ("published",):
                writer.writerow(_csv_line(block, line, whose))
    return out.getvalue()


def _csv_line(block: Block, line: Line, whose: str) -> dict[str, object]:
    group: Group | None = getattr(line, whose)
    found: dict[str, object] = {
        "experiment": block.experiment.name, "row": line.row, "label": line.label, "cell": block.cell,
        "data": block.data or "real", "budget": block.budget, "whose": whose,
        "paper": "" if line.printed == "-" else line.printed, "n": 0, "note": " ".join(line.notes),
    }  # fmt: skip
    if line.judged == whose or not line.judged:
        found |= {"verdict": line.verdict.word, "reason": line.verdict.reason}
        if d := line.verdict.difference:
            low, high = d.interval_90 or ("", "")
            found |= {"difference": d.mean, "difference_low_90": low, "difference_high_90": high}
        if line.verdict.seeds_needed is not None:
            found["seeds_needed"] = line.verdict.seeds_needed
    if group is None:
        return found
    rs, r, s = group.records, group.first, group.summary
    done = [r for r in rs if r.status == "completed"]
    if s:
        found |= {"mean": s.mean, "half_width_95": "" if s.half is None else s.half, "n": s.n}
    return found | {
        "seeds": " ".join(str(r.seed) for r in done), "values": " ".join(str(r.test) for r in done),
        "last": group.curve_value(1) or "", f"last_{LAST}": group.curve_value(LAST) or "",
        "updates": min(r.steps_done for r in rs), "updates_planned": r.steps_planned,
        "hidden_size": r.settings.model.hidden_size, "parameters": r.parameters,
        "seconds": round(sum(r.wall_seconds for r in rs), 1),
        "diverged": sum(r.status == "diverged" for r in rs), "unfinished": sum(r.status == "unfinished" for r in rs),
        "remarks": "; ".join(group.remarks), "task": r.task.name, "fingerprint": r.task.fingerprint,
        "runs": " ".join(r.run[:12] for r in rs), "commits": " ".join(dict.fromkeys(r.commit[:10] for r in rs)),
        "torch": r.versions["torch"], "machine": machine_of(r),
    }  # fmt: skip
