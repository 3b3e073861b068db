"""What `python -m tasks info NAME --picture FILE` saves."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_adding(path: str | Path, title: str, x: np.ndarray, y: np.ndarray) -> None:
    """Three sequences x (T, 3, 2) with their marked steps and sums y (3, 1)."""
    figure = _figure(8, 4.5)
    for row, axes in enumerate(figure.subplots(3, 1, sharex=True)):
        marked = np.flatnonzero(x[:, row, 1])
        axes.plot(x[:, row, 0], color="0.6", linewidth=0.8)
        axes.plot(marked, x[marked, row, 0], "o", color="tab:red")
        axes.set_ylim(-0.05, 1.05)
        axes.set_ylabel(f"sum {y[row, 0]:.3f}")
    figure.axes[-1].set_xlabel("step")
    _save(figure, path, title)


def save_digits(path: str | Path, title: str, images: np.ndarray, labels: np.ndarray, order: np.ndarray) -> None:
    """Images (n, 784) as stored above, and below as they are read, 28 steps per line."""
    figure = _figure(10, 4.2)
    columns = min(10, len(images))
    grid = figure.subplots(4, columns)
    for panel, axes in enumerate(grid.flat):
        row, column = divmod(panel, columns)
        index = column + columns * (row // 2)
        axes.set_axis_off()
        if index >= len(images):
            continue
        pixels = images[index] if row % 2 == 0 else images[index][order]
        axes.imshow(pixels.reshape(28, 28), cmap="gray_r", vmin=0, vmax=255)
        if row % 2 == 0:
            axes.set_title(str(labels[index]), fontsize=8)
    _save(figure, path, f"{title}: as stored, and in reading order")


def save_text(path: str | Path, title: str, sizes: dict[str, int], excerpt: str, counts: dict[str, int]) -> None:
    """A stretch of text, the sizes of the splits, and how often each symbol occurs."""
    figure = _figure(10, 5.5)
    words, bars = figure.subplots(2, 1, height_ratios=(2, 1))
    words.set_axis_off()
    line = "   ".join(f"{split}: {size:,} characters" for split, size in sizes.items())
    words.text(0, 1, line + "\n\n" + excerpt.replace("$", r"\$"), va="top", family="monospace", fontsize=8)
    bars.bar(range(len(counts)), list(counts.values()), color="0.4")
    bars.set_yscale("log")
    bars.set_xticks(range(len(counts)), [symbol.replace("$", r"\$") for symbol in counts], fontsize=7)
    bars.set_ylabel("in train")
    _save(figure, path, title)


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: str | Path, title: str) -> None:
    figure.suptitle(title, fontsize=10)
    figure.savefig(Path(path), dpi=130)
