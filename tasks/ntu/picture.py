"""Clips as strips of stick figures."""

from pathlib import Path
from typing import Any

import numpy as np

from tasks.ntu.clip import JOINTS, PARENTS
from tasks.ntu.preprocessing import present

_FIGURES = 12  # in a strip
_RIGHT = (8, 9, 10, 11, 16, 17, 18, 19, 23, 24)
_OTHERS = tuple(joint for joint in range(JOINTS) if joint not in _RIGHT)
COLOURS = ("tab:blue", "tab:orange")


def draw_body(axes: Any, places: np.ndarray, colour: str) -> None:
    """The bones of one body, right limbs lighter; places: where each joint is on the page, (25, 2)."""
    gap = np.full((1, 2), np.nan)  # between two bones of one line; a line for each bone would take long to draw
    for alpha, joints in ((1.0, _OTHERS), (0.45, _RIGHT)):
        bones = np.concatenate([part for joint in joints for part in (places[[joint, PARENTS[joint]]], gap)])
        axes.plot(*bones.T, color=colour, alpha=alpha, linewidth=1.5, solid_capstyle="round")


def save_strips(path: str | Path, title: str, clips: dict[str, np.ndarray]) -> None:
    """One strip per clip (T, 2, 25, 3), x to the right and y up; right limbs are drawn lighter."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.4 * len(clips)), layout="constrained")
    for axes, (name, frames) in zip(figure.subplots(len(clips), 1, squeeze=False).flat, clips.items(), strict=True):
        there = present(frames)
        shown = frames[there]
        middle = shown[..., 0].mean() if len(shown) else 0.0
        width = max(1.0, 1.1 * float(np.ptp(shown[..., 0]))) if len(shown) else 1.0
        chosen = np.linspace(0, len(frames) - 1, _FIGURES).round().astype(int)
        for figure_number, frame in enumerate(chosen):
            for body in np.flatnonzero(there[frame]):
                draw_body(axes, frames[frame, body][:, :2] + (figure_number * width - middle, 0.0), COLOURS[body])
        axes.set_aspect("equal")
        axes.set_xticks(
            [figure_number * width for figure_number in range(_FIGURES)], [f"{frame}" for frame in chosen], fontsize=7
        )
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.set_title(f"{name}, frame number of {len(frames)}", fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(Path(path), dpi=110)
