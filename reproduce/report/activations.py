"""What the units of a trained network put out over one test sequence (Figures 4 to 6)."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tasks
from reproduce.plan.runs import Run
from reproduce.report.records import Record
from reproduce.report.selection import Line
from reproduce.train.loop import weights_of
from reproduce.train.network import Network
from reproduce.train.outcome import Place


@dataclass(frozen=True)
class Layer:
    """``values`` (T, N): the outputs of a layer, or of one half of a DuRNN layer, for one sequence."""

    row: str
    title: str
    values: np.ndarray

    @property
    def active(self) -> float:
        """Share of units that are positive in more than half of the steps."""
        return float(((self.values > 0).mean(0) > 0.5).mean())

    @property
    def roughness(self) -> float:
        """Mean step-to-step change of all units over their mean activation; small is smooth."""
        level = np.abs(self.values).mean()
        return float(np.abs(np.diff(self.values, axis=0)).mean() / level) if level > 0 else float("nan")


def run_of(r: Record) -> Run:
    """The run that a record came from."""
    standin = tasks.standin_of(r.task.requested) if r.task.is_standin else None
    return Run(
        recipe=r.recipe, row=r.row, cell=r.cell, budget=r.budget, seed=r.seed, task=standin or r.task.requested,
        requested=r.task.requested, fingerprint=r.task.fingerprint, settings=r.settings, sources=r.sources,
    )  # fmt: skip


def trained(line: Line, place: Place) -> tuple[Network, Any, Record] | None:
    """Network, task and record of the first seed whose weights are on this machine."""
    for r in line.group.records if line.group else ():
        run = run_of(r)
        weights = weights_of(r, run, place)
        if weights is not None:
            task = run.build_task()
            network = Network(run.settings, task, place.backend)
            network.load_state_dict(weights)
            return network.eval(), task, r
    return None


def layers_of(line: Line, place: Place) -> list[Layer]:
    """The layers of the first seed whose weights are on this machine; empty if there is none."""
    found = trained(line, place)
    if found is None:
        return []
    network, task, r = found
    x, _ = next(iter(task.batches("test", 1)))
    return capture(network, x, line.row, _title(line, r))


def _title(line: Line, r: Record) -> str:
    return line.label if r.budget == "paper" else f"{line.label} [{r.budget} budget]"


@torch.no_grad()
def capture(network: Network, x: torch.Tensor, row: str, title: str) -> list[Layer]:
    """Run one sequence (T, 1, input) and keep what every layer puts out."""
    found: list[Layer] = []
    network.eval()
    seen = network.input(x, None) if network.input else x
    for index, traces in enumerate(network.model.traces(seen), 1):
        for name, values in traces.items():
            part = "" if len(traces) == 1 else f", {name}"
            found.append(Layer(row, f"{title}: layer {index}{part}", values[:, 0].cpu().numpy()))
    return found


def table(layers: list[Layer]) -> str:
    """Two numbers per panel, so that "active" and "smooth" can be compared."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "panel", "units", "share_active", "roughness"])
    for layer in layers:
        writer.writerow(
            [layer.row, layer.title, layer.values.shape[1], round(layer.active, 4), round(layer.roughness, 5)]
        )
    return out.getvalue()


def rows_of(path: Path) -> set[str]:
    """The rows of a table that was written before; none where there is no file."""
    if not path.exists():
        return set()
    return {line["row"] for line in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))}
