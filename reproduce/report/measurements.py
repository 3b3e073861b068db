"""What trained weights show, as one small JSON file per run: activations (paper §V-A2), gradients (§IV-B), and the
recurrent weights of independent units (§III).

Weights stay on the machine that trained them; these numbers are what remains for everybody else. A file is tied to its
record by the hash of the weights. ``python -m reproduce.report.measurements`` measures all records whose weights are on
this machine.

Values are named ``<layer>/<statistic>``, for the halves of a DuRNN layer ``<layer>-full`` and ``<layer>-independent``,
and ``gradient/<which>`` for the last layer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from models import analysis
from models.nets import RecurrentNet
from reproduce.plan.recipe import explain
from reproduce.plan.runs import ROOT
from reproduce.report import records
from reproduce.report.records import Record
from reproduce.report.theory import gradients, line, norm, trained
from reproduce.train.network import Network
from reproduce.train.outcome import Place
from suite.files import write_atomic

FOLDER = ROOT / "results" / "measurements"
SEQUENCES = 100
MOST_STEPS = 200_000  # sequences times steps that are kept in memory at once
EDGE = 1e-6  # a weight that was clamped to the bound in float32 reaches it
SMOOTH = 0.1  # a unit is smooth if its mean step-to-step change is below this share of its mean activation
MODELS = ("indrnn", "durnn")  # models whose gradients §IV-B speaks about


class Measurement(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    run: str = Field(pattern="^[0-9a-f]{64}$")
    weights_sha256: str
    sequences: int = Field(gt=0)
    values: dict[str, float]


@torch.no_grad()
def activation_values(network: Network, x: Tensor) -> dict[str, float]:
    """Of every layer, mean over the sequences of x (T, B, M).

    ``share_active``: units that are positive in more than half of the steps. ``share_lasting``: those among them whose
    mean step-to-step change is below a tenth of their mean activation. ``roughness``: mean step-to-step change of all
    units over their mean activation; left out where a layer puts out nothing at all. A trace of a single step, of a
    model without recurrence, has none of these.
    """
    found: dict[str, float] = {}
    seen = network.input(x, None) if network.input else x
    for index, traces in enumerate(network.model.traces(seen), 1):
        for name, values in traces.items():
            if values.shape[0] == 1:
                continue
            panel = str(index) if len(traces) == 1 else f"{index}-{name.removesuffix(' half')}"
            change, level = values.diff(dim=0).abs().mean(0), values.abs().mean(0)  # (B, N)
            active = (values > 0).float().mean(0) > 0.5
            found[f"{panel}/share_active"] = float(active.float().mean())
            found[f"{panel}/share_lasting"] = float((active & (change < SMOOTH * level)).float().mean())
            if float(level.mean()) > 0:
                found[f"{panel}/roughness"] = float(change.mean() / level.mean())
    return {name: round(value, 6) for name, value in found.items()}


def gradient_values(net: RecurrentNet, x: Tensor) -> dict[str, float]:
    """Of the last layer over the first sequence of x (T, B, M), T = L.

    ``long``: ‖∂h_L/∂h_0‖. For a full DuRNN also ``short-over-bound``: the largest ‖∂h_L/∂h~_{L−k}‖ over s γ/(1 − δ),
    and ``short-after-a-tenth``: ‖∂h~_L/∂h~_{L−k}‖ for k = L/10.
    """
    T = x.shape[0]
    found = {"gradient/long": norm(analysis.jacobian(net, x, T))}
    if analysis.has_gradient_bound(net):
        lags = sorted({0, 1, T // 10, T // 2, T - 1})
        found["gradient/short-over-bound"] = max(g.short / g.bound for g in gradients(net, x, lags))
        tenth = analysis.jacobian(net, x, max(1, T // 10), of="h_short", wrt="h_short")
        found["gradient/short-after-a-tenth"] = norm(tenth)
    return {name: float(f"{value:.6g}") for name, value in found.items()}


def weight_values(net: RecurrentNet, length: int) -> dict[str, float]:
    """``weights_lasting`` of every layer of independent units: the share of U with |U| ≥ ε^(1/length)."""
    found: dict[str, float] = {}
    for index, cell in enumerate(net.cells, 1):
        panel = str(index) if len(cell.states) == 1 else f"{index}-independent"
        lasting = cast(Tensor, cell.U).abs() >= line(length).u_low * (1 - EDGE)
        found[f"{panel}/weights_lasting"] = round(float(lasting.float().mean()), 6)
    return found


def measure(record: Record, place: Place) -> Measurement | None:
    """None if the weights of the record are not on this machine."""
    count = max(1, min(SEQUENCES, MOST_STEPS // record.task.length))
    found = trained(record, place, count)
    if found is None or record.weights_sha256 is None:
        return None
    values = activation_values(found.network, found.x)
    if record.settings.model.name in MODELS and found.network.input is None:
        values |= gradient_values(found.network.model, found.x)
        values |= weight_values(found.network.model, record.task.length)
    if not all(math.isfinite(value) for value in values.values()):
        raise ValueError(f"run {record.run[:12]}: a measured value is not finite")
    return Measurement(run=record.run, weights_sha256=record.weights_sha256, sequences=count, values=values)


def write(measurement: Measurement, folder: Path = FOLDER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{measurement.run[:12]}.json"
    text = json.dumps(measurement.model_dump(), indent=1, allow_nan=False) + "\n"
    write_atomic(path, text.encode())
    return path


def read_all(folder: Path = FOLDER) -> list[Measurement]:
    """All measurements of a folder; ValueError in one sentence for a file that is none."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(Measurement.model_validate_json(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            raise ValueError(f"{path.name}: {explain(error)}") from None
    return found


def measure_all(known: Iterable[Record], place: Place, folder: Path = FOLDER) -> list[Path]:
    """Measure every record that was trained to its end and whose weights are on this machine, each once."""
    before = {(measurement.run, measurement.weights_sha256) for measurement in read_all(folder)}
    new = [r for r in known if r.status == "completed" and (r.run, r.weights_sha256) not in before]
    done = (measure(record, place) for record in new)
    return [write(measurement, folder) for measurement in done if measurement is not None]


if __name__ == "__main__":
    for path in measure_all(records.read_all(ROOT / "results" / "records").good, Place()):
        print(path)
