"""Clips as strips of stick figures."""

from pathlib import Path

import numpy as np

from tasks.ntu.clip import JOINTS, PARENTS
from tasks.ntu.preprocessing import present

_FIGURES = 12  # in a strip
_RIGHT = frozenset({8, 9, 10, 11, 16, 17, 18, 19, 23, 24})
_COLOURS = ("tab:blue", "tab:orange")


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
                joints = frames[frame, body]
                for joint in range(JOINTS):
                    bone = joints[[joint, PARENTS[joint]]]
                    axes.plot(
                        bone[:, 0] - middle + figure_number * width,
                        bone[:, 1],
                        color=_COLOURS[body],
                        alpha=0.45 if joint in _RIGHT else 1.0,
                        linewidth=1.5,
                        solid_capstyle="round",
                    )
        axes.set_aspect("equal")
        axes.set_xticks(
            [figure_number * width for figure_number in range(_FIGURES)], [f"{frame}" for frame in chosen], fontsize=7
        )
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.set_title(f"{name}, frame number of {len(frames)}", fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(Path(path), dpi=110)
