"""Figures from records and weights, as SVG and PNG. A model has the same colour in all of them, a variant that of its
model, dashed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reproduce.plan.experiments import Experiment
from reproduce.report import tables
from reproduce.report.selection import Block, Line, most_telling
from suite.files import write_atomic

_PALETTE = sns.color_palette("colorblind", 10)
COLOURED = (
    "durnn", "indrnn-2", "lstm", "irnn", "rnn-tanh", "durnn-no-selection", "durnn-independent-short", "durnn-delta-1",
    "rnn-relu", "indrnn-1",
)  # fmt: skip
COLOURS = dict(zip(COLOURED, _PALETTE, strict=True))
VARIANTS = {"durnn-uncut": "durnn", "durnn-rate-10": "durnn", "irnn-rate-10": "irnn", "rnn-tanh-rate-10": "rnn-tanh"}
CHANCE = 1 / 6  # mean squared error of always answering the mean


def save(figure: Any, folder: Path, name: str, title: str, facts: list[str]) -> list[Path]:
    """Both formats, with the provenance in their metadata and nothing in them that changes from run to run."""
    folder.mkdir(parents=True, exist_ok=True)
    about: dict[str, str | None] = {"Title": title, "Description": "; ".join(facts)}
    svg, png = folder / f"{name}.svg", folder / f"{name}.png"
    with matplotlib.rc_context({"svg.hashsalt": name}):
        write_atomic(svg, _drawn(figure, "svg", about | {"Date": None}))
    write_atomic(png, _drawn(figure, "png", about))
    plt.close(figure)
    return [svg, png]


def _drawn(figure: Any, form: str, metadata: dict[str, str | None]) -> bytes:
    """The bytes of the figure's file."""
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=150, bbox_inches="tight", metadata=metadata)
    return out.getvalue()


def curves(experiment: Experiment, blocks: list[Block], folder: Path) -> list[Path]:
    """Validation error over updates, one panel and one budget per length; bands span the seeds."""
    sns.set_theme(style="whitegrid", context="paper")
    cells = experiment.all_cells
    columns = min(2, len(cells))
    rows = -(-len(cells) // columns)
    size = (4.75 * max(columns, 1.5), 3.25 * max(rows, 1.3))
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    drawn: dict[str, Any] = {}
    labels = experiment.load_recipe().cells
    for axis, cell in zip(axes.flat, cells, strict=True):
        block = most_telling(blocks, cell)
        lines = block.lines if block else ()
        missing = [line for line in lines if not line.group or not any(r.curve for r in line.group.records)]
        for line in lines:
            _draw_curve(axis, line, drawn)
        axis.axhline(CHANCE, color="0.4", linewidth=0.9, linestyle=":")
        absent = "" if len(missing) == len(lines) else _named("not run", [m for m in missing if not m.group])
        absent += _named("diverged before the first evaluation", [m for m in missing if m.group])
        title = f"{labels[cell].label}{_weight(block)}"
        axis.set(yscale="log", title=title, xlabel=f"updates{absent}", ylabel="mean squared error (validation)")
        axis.set_xlim(left=0)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        if len(missing) == len(lines):
            axis.text(0.5, 0.4, "not run", transform=axis.transAxes, ha="center", va="center", color="0.35")
            axis.set(xticks=[], ylim=(1e-4, 1.0))
    handles = [*drawn.values(), plt.Line2D([], [], color="0.4", linewidth=0.9, linestyle=":")]
    figure.legend(
        handles, [*drawn, "learning nothing, 1/6"], loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    figure.suptitle(experiment.title)
    return save(figure, folder, experiment.name, experiment.title, tables.provenance(blocks))


def _weight(block: Block | None) -> str:
    """What stands behind a panel: budget, and how many seeds its curves have."""
    counts = sorted({len(line.group.records) for line in block.lines if line.group} if block else ())
    if not block or not counts:
        return ""
    few, many = counts[0], counts[-1]
    seeds = f"{few} to {many} seeds" if few < many else "1 seed" if many == 1 else f"{many} seeds"
    return f" ({block.budget} budget, {seeds})"


def _named(why: str, lines: list[Line]) -> str:
    return f"\n{why}: {', '.join(line.label for line in lines)}" if lines else ""


def _draw_curve(axis: Any, line: Line, drawn: dict[str, Any]) -> None:
    records = line.group.records if line.group else ()
    points = [{"step": p.step, "valid": p.valid} for r in records for p in r.curve if p.valid is not None]
    if not points:
        return
    colour = COLOURS.get(VARIANTS.get(line.row, line.row), "0.5")
    style: Literal["-", "--"] = "--" if line.row in VARIANTS else "-"
    sns.lineplot(
        pd.DataFrame(points), x="step", y="valid", ax=axis, color=colour, linestyle=style, linewidth=1.4, legend=False,
        errorbar=lambda values: (values.min(), values.max()),
    )  # fmt: skip
    drawn.setdefault(line.label, plt.Line2D([], [], color=colour, linestyle=style, linewidth=1.6))
    for r in records:
        if r.status == "diverged" and r.curve:
            axis.plot([r.diverged_at], [r.curve[-1].valid], marker="x", color=colour, markersize=6)


def activations(experiment: Experiment, panels: list[tuple[str, Any]], folder: Path, facts: list[str]) -> list[Path]:
    """One panel per layer: what each unit puts out over one sequence. ``panels``: (title, array (T, N))."""
    sns.set_theme(style="whitegrid", context="paper")
    columns = 2 if len(panels) % 2 == 0 else 1
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.8 * columns, 2.6 * rows), layout="constrained", squeeze=False
    )  # fmt: skip
    for axis, (title, values) in zip(axes.flat, panels, strict=True):
        shades = sns.color_palette("viridis", values.shape[1])
        for unit in range(values.shape[1]):
            # rasterised: over thousands of steps hundreds of vector lines would fill megabytes
            axis.plot(values[:, unit], color=shades[unit], linewidth=0.6, alpha=0.7, rasterized=True)
        axis.set(title=title, xlabel="time step", ylabel="activation", xlim=(0, len(values) - 1))
    figure.suptitle(experiment.title)
    return save(figure, folder, experiment.name, experiment.title, facts)
