"""Blocks as LaTeX, ready to \\input; they need \\usepackage{booktabs,amssymb}."""

from __future__ import annotations

from reproduce.plan.experiments import Experiment
from reproduce.report.selection import Block
from reproduce.report.tables import Footnotes, cells, columns, explanations, facts, heading, provenance

_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "−": "$-$", "≤": r"$\leq$",
    "<": r"$<$", ">": r"$>$", "“": "``", "”": "''", "·": r"$\cdot$", "§": r"\S", "×": r"$\times$", "≲": r"$\lesssim$",
    "’": "'", "…": r"\dots{}", "δ": r"$\delta$", "ε": r"$\epsilon$", "γ": r"$\gamma$", "≥": r"$\geq$", "é": r"\'e",
}  # fmt: skip


def escape(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def latex(experiment: Experiment, blocks: list[Block], with_yours: bool = False) -> str:
    """One table environment per block."""
    head = ("Generated from run records, not typed.", r"Preamble: \usepackage{booktabs,amssymb}", *provenance(blocks))
    lines = [f"% {line}" for line in head]
    for number, block in enumerate(blocks, 1):
        lines += _table(experiment, block, number, with_yours)
    return "\n".join([*lines, ""])


def _table(experiment: Experiment, block: Block, number: int, with_yours: bool) -> list[str]:
    notes, names = Footnotes(), columns(block, with_yours)
    rows = [" & ".join(map(escape, cells(block, line, names, notes))) + r" \\" for line in block.lines]
    caption = " ".join([f"{experiment.title}: {heading(block)}.", *facts(block), *explanations([block])])
    shape = "".join("l" if name in ("model", "verdict") else "r" for name in names)
    label = f"tab:durnn-{experiment.name.replace('_', '-')}-{number}"
    lines = [
        r"\begin{table}", r"\centering\footnotesize", rf"\caption{{{escape(caption)}}}",
        rf"\label{{{label}}}", rf"\begin{{tabular}}{{{shape}}}", r"\toprule",
        " & ".join(map(escape, names)) + r" \\", r"\midrule", *rows, r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip
    lines += [rf"\par\raggedright {escape(text)}" for text in notes.lines()]
    return [*lines, r"\end{table}"]
