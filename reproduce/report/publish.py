"""Everything that is made from records: tables, figures and the overview in results/README.md."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from reproduce.plan.experiments import Experiment
from reproduce.report import records, tables
from reproduce.report.overview import overview
from reproduce.report.selection import Entry, collect
from reproduce.train.outcome import Place
from suite.files import write_atomic


def publish(experiment: Experiment, place: Place, console: Console) -> list[Path]:
    """Write and show what belongs to one experiment, and bring the overview up to date."""
    results = place.records.parent
    found = records.read_all(place.records)
    for problem in found.problems:
        console.print(f"skipped record: {problem}", style="yellow", highlight=False, soft_wrap=True)
    entries = collect(experiment, found.good)
    written = [
        _write(results / f"{experiment.name}.md", tables.markdown(experiment, entries)),
        _write(results / f"{experiment.name}.csv", tables.comma_separated(experiment, entries)),
        _write(results / f"{experiment.name}.tex", tables.latex(experiment, entries)),
    ]
    if experiment.kind == "curves":
        from reproduce.report import figures  # late: plotting libraries are slow to load

        written += figures.curves(experiment, entries, results / "figures")
    if experiment.kind == "activations":
        written += _activations(experiment, entries, place, results, console)
    written.append(_write(results / "README.md", overview(found, results)))
    console.print(tables.terminal(experiment, entries))
    for line in tables.order_lines(entries) if experiment.kind == "curves" else []:
        console.print(line, highlight=False, soft_wrap=True)
    shown = ", ".join(path.name for path in written)
    console.print(f"written to {results}: {shown}", highlight=False, soft_wrap=True)
    return written


def _activations(
    experiment: Experiment, entries: list[Entry], place: Place, results: Path, console: Console
) -> list[Path]:
    from reproduce.report import activations, figures

    layers = []
    for entry in entries:
        mine = activations.layers_of(entry, place)
        if not mine:
            console.print(f"no trained weights of {entry.label} on this machine; run without --report-only")
        layers += mine
    if not layers:
        return []
    panels = [(layer.title, layer.values) for layer in layers]
    table = _write(results / f"{experiment.name}-activations.csv", activations.table(layers))
    return [*figures.activations(experiment, panels, results / "figures", tables.provenance(entries)), table]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())
    return path
