"""What a command leaves behind: tables in three formats, figures and, for published results, the pages about them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from reproduce.execute.console import say
from reproduce.plan.experiments import Experiment
from reproduce.plan.runs import ROOT
from reproduce.report import claims, latex, measurements, records, tables
from reproduce.report.overview import overview
from reproduce.report.records import Record, Records
from reproduce.report.selection import Block, blocks
from reproduce.train import lease
from reproduce.train.outcome import Place
from suite.files import sha256, write_atomic

PUBLISHED = ROOT / "results"
"""What this project publishes. A command writes here only with ``--publish``."""


def report_once(
    experiment: Experiment, place: Place, console: Console, budgets: tuple[str, ...], folder: Path, before: int
) -> None:
    """The report of a command that may be one of several over the same runs: all show it, the first to come writes it.

    They take turns by the lease of ``folder``, which had been held ``before`` times when this command began.
    """
    with lease.wait_for(folder) as turn:
        paths = sorted(place.records.glob("*.json"))
        content = sha256(*budgets, *(part for path in paths for part in (path.name, path.read_bytes())))
        last = turn.before
        is_written = last is not None and turn.state.attempt - 1 > before and last.message == content
        report(experiment, place, console, budgets, write=not is_written)
        turn.end("done", content)
    if is_written and last is not None:
        say(console, f"the tables in {place.records.parent} were written by {last.who}, of the same records")


def report(
    experiment: Experiment, place: Place, console: Console, budgets: tuple[str, ...] = (), write: bool = True
) -> list[Path]:
    """Show and write what belongs to one experiment: published runs and, if they are others, the user's beside them."""
    results = place.records.parent
    published, found = records.read_all(PUBLISHED / "records"), records.read_all(place.records)
    is_publishing = place.records == PUBLISHED / "records"
    for problem in dict.fromkeys([*published.problems, *found.problems]):
        say(console, f"skipped record: {problem}", "yellow")
    yours: list[Record] = [] if is_publishing else found.good
    shown = blocks(experiment, published.good, yours, budgets)
    show(experiment, shown, not is_publishing, console)
    if not write:
        return []
    written = _write_tables(experiment, shown, results, not is_publishing)
    written += _figures(experiment, shown, place, results, console)
    if is_publishing:
        written += measurements.measure_all(found.good, place, results / "measurements")
        written += write_pages(found, results)
    names = ", ".join(path.name for path in written)
    say(console, f"written to {results}: {names}")
    return written


def show(experiment: Experiment, shown: list[Block], with_yours: bool, console: Console) -> None:
    """The blocks in the terminal, their notes, the orders, and how the user's runs agree with the published ones."""
    notes = tables.Footnotes()
    say(console, f"\n{experiment.title}", "bold underline")
    said: list[str] = []
    for block in shown:
        table = tables.terminal(block, with_yours, notes)
        new = [fact for fact in tables.facts(block) if fact not in said]
        said += new
        for fact in new:
            say(console, f"\n{fact}", "yellow")
        say(console, f"\n{tables.heading(block)}", "bold")
        console.print(table)
        for whose in ("published", "yours") if with_yours else ("published",):
            if order := tables.order_line(block, whose):
                say(console, f"order ({whose}): {order}")
    lines = [*notes.lines(), "", *tables.explanations(shown), *tables.agreement_lines(shown)]
    say(console, "\n".join(["", *lines]))


def _write_tables(experiment: Experiment, shown: list[Block], results: Path, with_yours: bool) -> list[Path]:
    return [
        _write(results / f"{experiment.name}.md", tables.markdown(experiment, shown, with_yours)),
        _write(results / f"{experiment.name}.csv", tables.comma_separated(shown, with_yours)),
        _write(results / f"{experiment.name}.tex", latex.latex(experiment, shown, with_yours)),
    ]


def write_pages(found: Records, results: Path) -> list[Path]:
    """The pages that are made of all records together."""
    judged = claims.judge_all(found.good, measurements.read_all(results / "measurements"))
    return [
        _write(results / "README.md", overview(found)),
        _write(results / "claims.md", claims.markdown(judged)),
    ]


def _figures(experiment: Experiment, shown: list[Block], place: Place, results: Path, console: Console) -> list[Path]:
    if experiment.kind == "table":
        if experiment.recipe != "table3":
            return []
        from reproduce.report import clip_views

        return clip_views.draw(shown, place, results)
    from reproduce.report import activations, figures  # late: plotting libraries are slow to load

    if experiment.kind == "curves":
        return figures.curves(experiment, shown, results / "figures")
    layers = []
    for cell in experiment.all_cells:  # one budget in one figure: the one of which most weights are here
        drawn = [[(line, activations.layers_of(line, place)) for line in b.lines] for b in shown if b.cell == cell]
        for line, mine in max(drawn, key=lambda lines: sum(bool(mine) for _, mine in lines), default=[]):
            if not mine:
                say(console, f"no trained weights of {line.label} on this machine; a run of your own would have them")
            layers += mine
    path = results / f"{experiment.name}-activations.csv"
    if not activations.rows_of(path) <= {layer.row for layer in layers}:
        say(console, f"{experiment.name} shows more rows than there are trained weights of here; it is left as it was")
        return []
    if not layers:
        return []
    table = _write(path, activations.table(layers))
    panels = [(layer.title, layer.values) for layer in layers]
    facts = tables.provenance(shown)
    return [*figures.activations(experiment, panels, results / "figures", facts), table]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())
    return path
