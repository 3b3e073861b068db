"""Where a trained HM-LSTM puts the boundaries of its layers on a text, drawn and counted:

    python -m reproduce.report.boundaries --line 3

takes the newest run of an HM-LSTM whose weights are on this machine, reads the test text up to that line, and writes
``figures/boundaries.svg`` and ``.png`` beside the records.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from torch import Tensor

from models.hm_lstm import HMLSTM
from reproduce.plan.runs import ROOT
from reproduce.report import records
from reproduce.report.activations import run_of
from reproduce.report.records import Record
from reproduce.train.loop import weights_of
from reproduce.train.network import Network
from reproduce.train.outcome import Place
from tasks.ptb import EOS, SYMBOLS

CHARACTERS = 5000  # over which boundaries are counted
PER_ROW = 80  # of the picture


@dataclass(frozen=True)
class Statistic:
    """One layer's boundaries over a text."""

    layer: int
    share: float  # of the steps
    length: float  # mean characters from one boundary to the next
    at_ends: float  # share of the boundaries that fall on the end of a word, a space or a newline
    ends: float  # share of all steps that are one: what boundaries by chance would have

    def __str__(self) -> str:
        return (
            f"layer {self.layer}: a boundary at {self.share:.1%} of the characters, {self.length:.1f} apart, "
            f"{self.at_ends:.1%} of them at the end of a word ({self.ends:.1%} by chance)"
        )


@torch.no_grad()
def boundaries_of(network: Network, symbols: Tensor) -> np.ndarray:
    """z of every layer but the top one while the network reads symbols (T,): (layers − 1, T)."""
    if not isinstance(network.model, HMLSTM):
        raise ValueError(f"{type(network.model).__name__} has no boundaries; an HM-LSTM has.")
    network.eval()
    x = symbols.unsqueeze(1)  # (T, 1)
    return network.model.boundaries(network.input(x) if network.input else x)[:, :, 0].numpy()


def statistics(z: np.ndarray, symbols: np.ndarray) -> list[Statistic]:
    """z (layers − 1, T) and what was read (T,), one entry per layer."""
    ends = (symbols == EOS) | (symbols == SYMBOLS.index(" "))
    found = []
    for layer, fires in enumerate(z > 0.5, 1):
        count = int(fires.sum())
        length = fires.size / count if count else float("inf")
        at_ends = float(ends[fires].mean()) if count else float("nan")
        found.append(Statistic(layer, float(fires.mean()), length, at_ends, float(ends.mean())))
    return found


def draw(z: np.ndarray, symbols: np.ndarray, folder: Path, title: str, facts: list[str]) -> list[Path]:
    """The characters in rows, above each a mark for every layer whose segment ends there, the lowest layer nearest."""
    from reproduce.report import figures  # late: plotting libraries are slow to load

    plt: Any = figures.plt
    rows = -(-len(symbols) // PER_ROW)
    figure, axes = plt.subplots(rows, 1, figsize=(11, (0.5 + 0.16 * len(z)) * rows + 0.6), squeeze=False)
    shades = figures.sns.color_palette("colorblind", len(z))
    for row, axis in enumerate(axes[:, 0]):
        part = slice(row * PER_ROW, (row + 1) * PER_ROW)
        for column, symbol in enumerate(symbols[part]):
            shown = {"\n": "¶", " ": "␣"}.get(SYMBOLS[symbol], SYMBOLS[symbol])
            axis.text(column, 0, shown, ha="center", va="center", family="monospace", fontsize=9, parse_math=False)
        for layer, fires in enumerate(z[:, part]):
            at = np.flatnonzero(fires > 0.5)
            axis.plot(at, np.full(len(at), layer + 1.0), "s", color=shades[layer], markersize=4.5)
        axis.set(xlim=(-0.8, PER_ROW - 0.2), ylim=(-0.7, len(z) + 0.6))
        axis.set_yticks(range(1, len(z) + 1), [f"layer {layer}" for layer in range(1, len(z) + 1)], fontsize=7)
        axis.set_xticks([])
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    figure.suptitle(title, fontsize=10)
    return figures.save(figure, folder, "boundaries", title, facts)


def text_of(task: Any, line: int, count: int) -> tuple[Tensor, slice]:
    """The test text up to the end of a line (from 0), at least ``count`` symbols (T,) of it, and where the line is."""
    read: list[Tensor] = []
    symbols, ends = torch.empty(0, dtype=torch.long), [-1]
    for batch in task.batches("test", 1):
        read.append(batch[0][:, 0])
        symbols = torch.cat(read)
        ends = [-1, *torch.nonzero(symbols[1:] == EOS).flatten().add(1).tolist()]  # the first symbol starts the text
        if len(symbols) >= count and len(ends) > line + 1:
            break
    if len(ends) <= line + 1:
        raise ValueError(f"the test text of {task.name} has {len(ends) - 1} lines, and no line {line}")
    return symbols, slice(max(1, ends[line] + 1), ends[line + 1] + 1)


def newest(folders: list[Path], place: Place) -> tuple[Record, dict[str, Tensor]] | None:
    """The HM-LSTM run that ended last and whose weights are on this machine."""
    found = [r for folder in folders for r in records.read_all(folder).good if r.settings.model.name == "hm-lstm"]
    for r in sorted(found, key=lambda r: r.finished, reverse=True):
        weights = weights_of(r, run_of(r), place) if r.status == "completed" else None
        if weights is not None:
            return r, weights
    return None


@dataclass
class Arguments:
    line: int = 0
    """Which line of the test text is drawn, from 0."""

    results: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = ROOT / "runs"
    """Where your records are and the figure goes."""

    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = ROOT / "runs"
    """Where the weights are."""


def main(argv: list[str] | None = None) -> int:
    arguments = tyro.cli(Arguments, args=argv, prog="python -m reproduce.report.boundaries", description=__doc__)
    chosen = newest([arguments.results / "records", ROOT / "results" / "records"], Place(runs=arguments.runs))
    if chosen is None:
        print("no weights of an HM-LSTM here; python reproduce/table2.py --rows hm-lstm-ln trains one", file=sys.stderr)
        return 2
    r, weights = chosen
    run = run_of(r)
    task = run.build_task()
    network = Network(run.settings, task)
    network.load_state_dict(weights)
    try:
        symbols, where = text_of(task, arguments.line, CHARACTERS)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    z, read = boundaries_of(network, symbols), symbols.numpy()
    title = (
        f"{r.row}, {r.budget} budget, seed {r.seed}: where its layers end a segment, line {arguments.line} of the test"
    )
    for path in draw(z[:, where], read[where], arguments.results / "figures", title, [f"run {r.run[:12]}", task.name]):
        print(path)
    for statistic in statistics(z, read):
        print(statistic)
    return 0


if __name__ == "__main__":
    sys.exit(main())
