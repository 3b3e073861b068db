"""One clip of the stand-in as the skeleton systems of Table III see it: coordinates, learned view, learned attention.

Drawn from the trained weights of STA-LSTM and, where there are some, of VA-RNN; never from NTU's clips, which may not
be passed on.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reproduce.report import figures
from reproduce.report.activations import trained
from reproduce.report.selection import Block, Line
from reproduce.train.outcome import Place
from suite.files import write_atomic
from tasks.ntu.picture import COLOURS, draw_body
from tasks.ntu.preprocessing import present

NAME = "table3-clip"
TITLE = "One clip of the stand-in, as the skeleton systems of Table III see it"
ATTENTION, VIEW = "sta-lstm", ("va-rnn", "va-rnn-aug")  # rows
SHOWN = 9  # frames
JOINT_NAMES = (
    "spine base", "spine mid", "neck", "head", "left shoulder", "left elbow", "left wrist", "left hand",
    "right shoulder", "right elbow", "right wrist", "right hand", "left hip", "left knee", "left ankle", "left foot",
    "right hip", "right knee", "right ankle", "right foot", "spine shoulder", "left hand tip", "left thumb",
    "right hand tip", "right thumb",
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """``views``: title -> the clip, (T, 2, 25, 3). ``joints``: α (T, 2, 25), ``times``: β (T,), of ``attended``."""

    clip: str
    views: dict[str, np.ndarray]
    attended: np.ndarray
    joints: np.ndarray
    times: np.ndarray
    facts: list[str]


def draw(shown: list[Block], place: Place, results: Path) -> list[Path]:
    """The figure and its numbers; nothing where no block on the stand-in has trained attention on this machine."""
    seen = look(shown, place)
    if seen is None:
        return []
    table = results / f"{NAME}.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(table, numbers(seen).encode())
    return [*figures.save(figure_of(seen), results / "figures", NAME, TITLE, seen.facts), table]


def look(shown: list[Block], place: Place) -> Seen | None:
    """The first clip of the test split, through the first block on the stand-in that has what it takes; the cell that
    tests a new view comes first."""
    on_standin = [block for block in shown if block.data == "stand-in"]
    for block in sorted(on_standin, key=lambda block: block.cell, reverse=True):
        lines = {line.row: line for line in block.lines}
        found = trained(lines[ATTENTION], place) if ATTENTION in lines else None
        if found is None:
            continue
        network, task, record = found
        number = _with_one_body(task)
        views = {
            "raw: the camera's coordinates": task.packed.clip("raw", number),
            "S-trans: one translation of the clip": task.packed.clip("s-trans", number),
            "S-rota: and one rotation of the clip": task.packed.clip("s-rota", number),
        }
        facts = [f"{lines[ATTENTION].label}, {block.label}, {block.budget} budget, run {record.run[:12]}"]
        adapted = _adapted(lines, place, number)
        if adapted:
            views[f"{adapted[0].label}: a learned view for each frame"] = adapted[1]
            facts.append(f"{adapted[0].label}, {block.label}, {block.budget} budget, run {adapted[2][:12]}")
        attended = task.packed.clip(task.preprocessing, number)
        joints, times = attention(network, attended)
        return Seen(task.packed.names[number], views, attended, joints, times, facts)
    return None


def _with_one_body(task: Any) -> int:
    """The first test clip that shows one person, in every frame; one picture is then easy to read."""
    for number in task.members["test"]:
        there = present(task.packed.clip("raw", int(number)))
        if there[:, 0].all() and not there[:, 1].any():
            return int(number)
    return int(task.members["test"][0])


def _adapted(lines: dict[str, Line], place: Place, number: int) -> tuple[Line, np.ndarray, str] | None:
    """A line with a trained view, the clip seen from it, and the run."""
    for row in VIEW:
        found = trained(lines[row], place) if row in lines else None
        if found is not None:
            network, task, record = found
            frames = task.packed.clip(task.preprocessing, number)
            return lines[row], adapt(network, frames), record.run
    return None


@torch.no_grad()
def adapt(network: Any, frames: np.ndarray) -> np.ndarray:
    """What the input part of a network makes of a clip (T, 2, 25, 3), of the same shape."""
    return network.input(_batch(frames), None).view(frames.shape).numpy()


@torch.no_grad()
def attention(network: Any, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """α (T, 2, 25) and β (T,) of a network for a clip (T, 2, 25, 3)."""
    x = _batch(frames)
    alpha = network.input.weights(x)
    beta = network.readout.weights(network.input(x, None))
    return alpha.view(frames.shape[:3]).numpy(), beta.flatten().numpy()


def _batch(frames: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(frames)).reshape(len(frames), 1, -1)


def numbers(seen: Seen) -> str:
    """The attention of the figure: of each joint of the main actor, mean over time, and of each frame."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["clip", "of", "which", "attention"])
    for joint in np.argsort(-seen.joints[:, 0].mean(0), kind="stable"):
        writer.writerow([seen.clip, "joint", JOINT_NAMES[joint], f"{seen.joints[:, 0, joint].mean():.4f}"])
    for frame, value in enumerate(seen.times):
        writer.writerow([seen.clip, "frame", frame, f"{value:.4f}"])
    return out.getvalue()


def figure_of(seen: Seen) -> Any:
    """A row for each view, from the front and, its first frame, from above; then attention on joints and on time."""
    rows = len(seen.views) + 2
    figure = figures.plt.figure(figsize=(10.5, 1.9 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, 2, width_ratios=[6, 1], height_ratios=[*[1.0] * (rows - 1), 0.55])
    chosen = np.linspace(0, len(seen.attended) - 1, SHOWN).round().astype(int)
    for row, (title, frames) in enumerate(seen.views.items()):
        front, above = figure.add_subplot(grid[row, 0]), figure.add_subplot(grid[row, 1])
        _strip(front, frames, chosen)
        front.set_title(title, fontsize=9, loc="left")
        for body in np.flatnonzero(present(frames)[chosen[0]]):
            draw_body(above, frames[chosen[0], body][:, [0, 2]], COLOURS[body])
        above.plot(0, 0, marker="+", color="0.3")
        above.set_title("from above" if row == 0 else "", fontsize=9)
        above.set_aspect("equal", adjustable="datalim")
        above.tick_params(labelsize=6)
    joints = figure.add_subplot(grid[-2, :])
    _strip(joints, seen.attended, chosen, seen.joints)
    most = f"STA-LSTM: attention on joints, 1 on average; the largest and darkest has {seen.joints.max():.1f}"
    joints.set_title(most, fontsize=9, loc="left")
    times = figure.add_subplot(grid[-1, :])
    times.bar(range(len(seen.times)), seen.times, color="0.6", width=0.9)
    times.bar(chosen, seen.times[chosen], color="0.3", width=0.9)
    times.set_title("STA-LSTM: attention on time; dark: the frames above", fontsize=9, loc="left")
    times.set_xlabel("frame", fontsize=8)
    times.tick_params(labelsize=7)
    figure.suptitle(f"{TITLE}\n{seen.clip}; " + "; ".join(seen.facts), fontsize=8)
    return figure


def _strip(axes: Any, frames: np.ndarray, chosen: np.ndarray, weights: np.ndarray | None = None) -> None:
    """Some frames side by side, a cross where the origin is; weights (T, 2, 25) become the sizes of the joints."""
    shown = frames[present(frames)]  # (bodies, 25, 3)
    width = max(1.2 * float(np.ptp(shown[..., 0])), 0.6 * float(np.ptp(shown[..., 1])))
    for place, frame in enumerate(chosen):
        axes.plot(place * width, 0, marker="+", color="0.3", markersize=7)
        for body in np.flatnonzero(present(frames)[frame]):
            places = frames[frame, body][:, :2] + (place * width, 0.0)
            draw_body(axes, places, COLOURS[body] if weights is None else "0.8")
            if weights is not None:
                level = weights[frame, body]
                size, most = 14 * np.clip(level, 0.05, 8), max(2.0, weights.max())
                axes.scatter(*places.T, s=size, c=level, cmap="viridis_r", vmin=0, vmax=most, zorder=3)
    axes.set_aspect("equal", anchor="W")
    axes.set_xticks([place * width for place in range(len(chosen))], [f"{frame}" for frame in chosen], fontsize=7)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
