"""The paper's sentences judged by the machine: *supported*, *contradicted* or *undecided*, each with its evidence.

1. A claim holds if every one of its rules does, on every cell, pair by pair. One contradicted part contradicts it; else
   one undecided part leaves it open.
2. Each comparison is made at one budget and on one kind of data: the largest budget at which all that is compared has
   three seeds, else the largest at which it has one, and then it is undecided. Only records of the present recipes
   count; smoke runs never do.
3. Orders: Welch's test at 5 % on at least three seeds a side, five where three leave it open, with Holm's correction
   over all pairs of the claim (a table corrects over the pairs of one task, so a close pair may differ there). Squared
   errors, updates and smoothness are compared by ratios, all else by differences. A run that diverged counts as the
   worse of a constant answer and the worst value beside it; one that never passes a level, as all its updates. At a
   reduced budget nothing is ordered of which one side is at chance or was shown 1.5 times the samples of the other.
4. Levels (reached, not reached): all of at least three seeds. Less training than the paper's can show that a level is
   reached, not that it never is.
5. What follows from formulas alone needs no run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reproduce.plan import paper
from reproduce.plan.paper import PaperTable
from reproduce.plan.runs import ROOT
from reproduce.plan.sentences import Claim, Order
from reproduce.report import measurements as measured
from reproduce.report import records as run_records
from reproduce.report.evidence import cell_label, label, wanted
from reproduce.report.findings import COMPUTED, Finding, Judge, others, settle, spots
from reproduce.report.measurements import Measurement
from reproduce.report.records import Record
from reproduce.report.rules import ClaimVerdict, ClaimWord
from reproduce.report.verdicts import EDGE
from suite.files import write_atomic

PRECEDENCE: tuple[ClaimWord, ...] = ("contradicted", "undecided", "supported")
SEPARATED = 1.96  # standard errors between two printed numbers
HIGHER_IS_BETTER = {"table3"}  # accuracies; the other tables print errors and bits
FILE = ROOT / "results" / "claims.md"


@dataclass(frozen=True)
class JudgedClaim:
    """``printed``: what the printed numbers show by themselves. ``older``: records of an older recipe, left aside."""

    name: str
    claim: Claim
    verdict: ClaimVerdict
    findings: tuple[Finding, ...]
    printed: tuple[str, ...]
    older: int

    @property
    def deciding(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.verdict.word == self.verdict.word)

    @property
    def where(self) -> tuple[str, ...]:
        """The budgets and data of the parts that decide; "computed" where none is needed."""
        return tuple(dict.fromkeys(f.where for f in self.deciding if f.where))

    @property
    def missing(self) -> tuple[str, ...]:
        """What would decide the parts that are undecided."""
        return tuple(wanted((f.missing for f in self.findings if f.missing), self.claim.figures))

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs (first 12 digits) that the evidence rests on."""
        return tuple(dict.fromkeys(run for f in self.findings for side in f.sides for run in side.runs))


def judge_all(records: Iterable[Record], measurements: Iterable[Measurement] = ()) -> dict[str, JudgedClaim]:
    """Every claim of the paper, in its order."""
    judge = Judge(records, measurements)
    return {name: judge_claim(name, claim, judge) for name, claim in paper.load().claims.items()}


def judge_claim(name: str, claim: Claim, judge: Judge) -> JudgedClaim:
    findings = settle([f for rule in claim.rules for f in judge.judge(rule)])
    counts = Counter(f.verdict.word for f in findings)
    word = next(w for w in PRECEDENCE if counts[w])
    parts = ", ".join(f"{counts[w]} {w}" for w in PRECEDENCE if counts[w])
    reason = f"{len(findings)} parts: {parts}" if len(findings) > 1 else findings[0].verdict.reason
    printed = tuple(line for rule in claim.rules if isinstance(rule, Order) for line in printed_lines(rule))
    older = sum(judge.pool.older.get(place, 0) for place in {place for rule in claim.rules for place in spots(rule)})
    return JudgedClaim(name, claim, ClaimVerdict(word, reason), tuple(findings), printed, older)


# What the printed numbers show by themselves


def printed_lines(rule: Order) -> list[str]:
    """For each cell of an order on one of the paper's tables: how far apart the printed numbers are, nearest first.

    The nearest and all that are not separated by name, the rest together. Numbers of another task are not compared.
    """
    table = paper.load().tables.get(rule.recipe)
    if table is None:
        return []
    lines = []
    for cell in rule.cells:
        printed = [row for row in others(rule, cell) if table.printed(row, cell) != "-"]
        if table.printed(rule.row, cell) == "-":
            continue
        same = [row for row in printed if not table.protocol(row, cell)]
        pairs = sorted(_printed_pair(rule, table, cell, row) for row in same)
        limit = _limit(table, cell)
        shown = max(1, sum(distance <= limit * EDGE for distance, _ in pairs))
        lines += [text + _standing(distance, limit) for distance, text in pairs[:shown]]
        if (more := len(pairs) - shown) > 0:
            rest = f"{more} other{'s' if more > 1 else ''}"
            lines.append(f"{_place(rule, cell)}: ahead of {rest} by more than {limit:g} {_unit(table, cell)}")
        if apart := [label(rule.recipe, row) for row in printed if row not in same]:
            why = table.protocol(next(row for row in printed if row not in same), cell)
            lines.append(f"not compared, because their numbers come from another task ({why}): {', '.join(apart)}")
    return lines


def _standing(distance: float, limit: float) -> str:
    side = "" if distance == 0 else ": ahead" if distance > 0 else ": behind"
    return side if abs(distance) > limit * EDGE else f"{side}, not separated"


def _printed_pair(rule: Order, table: PaperTable, cell: str, other: str) -> tuple[float, str]:
    """By how many standard errors or usual spreads the row of the rule is ahead, and the words for it."""
    higher = rule.recipe in HIGHER_IS_BETTER
    values = [table.printed(row, cell) for row in (rule.row, other)]
    gap = float(values[0]) - float(values[1])
    found = table.apart(rule.row, other, cell)
    error = found.standard_error if found else table.sampling[cell].spread
    if rule.minus and (beside := table.apart(rule.row, other, rule.minus)):
        values = [
            f"{float(v) - float(table.printed(row, rule.minus)):.2f}"
            for v, row in zip(values, (rule.row, other), strict=True)
        ]
        gap, error = gap - beside.difference, math.hypot(error, beside.standard_error)
    words = f"{_place(rule, cell)}: {values[0]} against {values[1]} ({label(rule.recipe, other)})"
    if found and not rule.minus:
        words += f", {abs(found.samples_apart):,.0f} of {table.sampling[cell].samples:,} samples"
    words += f", {abs(gap) / error:.1f} {_unit(table, cell)}"
    return (gap if higher else -gap) / error, words


def _unit(table: PaperTable, cell: str) -> str:
    spread = table.sampling[cell].spread
    return f"times the {spread:g} between re-runs" if table.sampling[cell].samples is None else "standard errors"


def _limit(table: PaperTable, cell: str) -> float:
    """From where two printed numbers are separated: standard errors, or usual spreads between re-runs."""
    return 1.0 if table.sampling[cell].samples is None else SEPARATED


def _place(rule: Order, cell: str) -> str:
    cells = [cell, rule.minus] if rule.minus else [cell]
    return f"{label(rule.recipe, rule.row)} on {' minus '.join(cell_label(rule.recipe, c) for c in cells)}"


# The page


def markdown(judged: Mapping[str, JudgedClaim]) -> str:
    """results/claims.md; the same records give the same bytes."""
    counts = Counter(j.verdict.word for j in judged.values())
    assert __doc__ is not None
    lines = [
        "# The paper's sentences",
        "",
        "Generated from the run records in `records/`, the measurements in `measurements/` and the rules in "
        "`reproduce/plan/claims.toml`, by `python -m reproduce.report.claims`; nothing here is typed by hand.",
        "",
        f"{len(judged)} claims: " + ", ".join(f"{counts[w]} {w}" for w in reversed(PRECEDENCE)) + ".",
        "",
        "| claim | section | verdict | judged at |",
        "|---|---|---|---|",
        *(
            f"| [{n}](#{n}) | {j.claim.section} | {j.verdict.word} | {'; '.join(j.where) or '–'} |"
            for n, j in judged.items()
        ),
        "",
        "## How they are judged",
        "",
        __doc__.split("\n\n", 1)[1].strip(),
        "",
    ]
    for one in judged.values():
        lines += [*_section(one), ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(judged: JudgedClaim) -> list[str]:
    claim = judged.claim
    where = f", at: {'; '.join(judged.where)}" if judged.where and judged.where != (COMPUTED,) else ""
    lines = [f"## {judged.name}", "", f"> {claim.text} ({claim.section})", ""]
    lines += [f"**{judged.verdict.word}** ({judged.verdict.reason}{where})"]
    lines += ["", f"*{claim.note}*"] if claim.note else []
    lines.append("")
    lines += [f"- {line}" for line in _grouped(judged.findings)]
    lines += [f"- printed: {line}" for line in judged.printed]
    lines += [f"- {judged.older} records of an older recipe were left aside"] if judged.older else []
    lines += [f"- would decide: {line}" for line in judged.missing]
    return lines


def _grouped(findings: tuple[Finding, ...]) -> list[str]:
    """One line per part with evidence, those that decide first; parts without any share a line by their reason."""
    told = [f for word in PRECEDENCE for f in findings if f.verdict.word == word]
    lines = [_line(f) for f in told if f.where]
    bare: dict[str, list[str]] = {}
    for finding in told:
        if not finding.where and not (finding.missing and finding.missing.other):
            reason = "no runs" if finding.without else finding.verdict.reason
            bare.setdefault(reason, []).extend(finding.without or [finding.says])
    return lines + [f"undecided, {reason}: {'; '.join(dict.fromkeys(said))}" for reason, said in bare.items()]


def _line(finding: Finding) -> str:
    where = "" if finding.where == COMPUTED else f" [{finding.where}]"
    text = f"{finding.verdict.word}: {finding.says}{where} – {finding.verdict.reason}"
    sides = [f"{s.label}: {', '.join(s.numbers)} ({', '.join(s.runs)})" for s in finding.sides]
    return text + "".join(f"; {side}" for side in sides)


if __name__ == "__main__":
    known = run_records.read_all(ROOT / "results" / "records").good
    write_atomic(FILE, markdown(judge_all(known, measured.read_all())).encode())
    print(FILE)
