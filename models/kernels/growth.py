"""Time and memory of a train step against the number of steps and of units, as a figure.

Time is CPU time on one thread: it hardly depends on what else the machine does, and shows the work, not the cores.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import pandas as pd
import seaborn as sns

from models.kernels.measure import cost_in_new_process
from suite.shapes import Shape

LENGTHS = (100, 500, 1000, 2000, 5000)
UNITS = (64, 128, 512, 1024, 2048)
CONTENDERS = (
    ("DuRNN fused", "durnn", "fused"),
    ("DuRNN reference", "durnn", "reference"),
    ("LSTM fused", "lstm", "fused"),
    ("nn.LSTM", "nn.LSTM", "auto"),
)
AXES = {"steps T (B = 32, N = 128)": "T", "units N (T = 50, B = 32)": "N"}
MEASURES = {"seconds": "train step on one thread [s]", "megabytes": "peak memory of a step [MB]"}


def measure_growth(lengths: tuple[int, ...] = LENGTHS, units: tuple[int, ...] = UNITS) -> pd.DataFrame:
    """One row per contender and size; every point is measured in a process of its own."""
    rows = []
    over_steps, over_units = AXES
    points = [(over_steps, T, Shape(T, 32, 128, 2)) for T in lengths]
    points += [(over_units, N, Shape(50, 32, N, 2)) for N in units]
    for axis, size, shape in points:
        for label, name, backend in CONTENDERS:
            cost = cost_in_new_process(name, shape, backend, threads=1)
            megabytes = None if cost.peak_bytes is None else cost.peak_bytes / 1e6
            rows.append(
                {"axis": axis, "size": size, "contender": label, "seconds": cost.cpu_seconds, "megabytes": megabytes}
            )
            print(f"{label}, {shape}: {cost.cpu_seconds:.3f} s", file=sys.stderr)
    return pd.DataFrame(rows)


def draw(data: pd.DataFrame, folder: Path) -> None:
    """Write kernel_growth.csv, .svg and .png into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data.to_csv(folder / "kernel_growth.csv", index=False, float_format="%.6g")
    long = data.melt(["axis", "size", "contender"], list(MEASURES), "measure").dropna()
    sns.set_theme(style="whitegrid", context="paper")
    grid = sns.relplot(
        long, x="size", y="value", hue="contender", style="contender", col="axis", row="measure", kind="line",
        markers=True, dashes=False, height=2.9, aspect=1.35,
        facet_kws={"sharex": "col", "sharey": "row", "margin_titles": False},
    )  # fmt: skip
    grid.set(xscale="log", yscale="log")
    for (measure, axis), ax in grid.axes_dict.items():
        sizes = sorted(data.loc[data["axis"] == axis, "size"].unique())
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
        ax.set_title("")
        ax.set_xlabel(axis)
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel(MEASURES[measure])
    grid.legend.set_title("")
    for suffix, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 160})):
        grid.savefig(folder / f"kernel_growth.{suffix}", **options)
