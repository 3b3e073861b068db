"""``python -m models.kernels.report``: the fused recurrences against torch.nn on this machine, as Markdown.

``--figure`` draws time and memory against T and N into results/figures instead. Numbers are compared with the
float64 reference first, and no speed-up is printed while that check fails. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import tyro

from models import kernels
from models.kernels import cpu
from models.kernels.measure import (
    cost_in_new_process,
    flops,
    interleaved,
    network,
    saved_bytes,
    sgemm_peak,
    train_step,
)
from suite.machine import commit, cpu_name
from suite.shapes import SHAPES, Shape

TOLERANCE = 1e-5


class Row(NamedTuple):
    """A model of the zoo on a task's shape, what it is compared with, and the ratio aimed at."""

    model: str
    shape: str
    against: str
    target: float | None = None


ROWS = (
    Row("durnn", "mnist-784", "nn.LSTM", 20),
    Row("durnn", "adding-1000", "nn.LSTM", 15),
    Row("durnn", "adding-100", "nn.LSTM", 3),
    Row("durnn", "ntu-20", "nn.LSTM", 1.3),
    Row("durnn", "ptb-c-50-n2000", "nn.LSTM"),
    Row("indrnn", "mnist-784", "nn.LSTM", 60),
    Row("rnn-relu", "mnist-784", "nn.RNN", 3),
    Row("irnn", "mnist-784", "nn.RNN", 3),
    Row("lstm", "mnist-784", "nn.LSTM", 8),
    Row("lstm", "ntu-20", "nn.LSTM"),
    Row("lstm", "ptb-c-50-n2000", "nn.LSTM"),
)


def numerics() -> dict[str, float]:
    """Largest relative deviation of every fused operator, outputs and gradients, from the float64 reference."""
    T, B, N = 50, 16, 128
    g = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    W, V, h0, u, U = normal(N, N) / N**0.5, normal(N, N) / N**0.5, normal(B, N), normal(T, B, N), normal(N) / 3
    arguments = {
        "rnn": (u, W, h0),
        "indrnn": (u, U, h0),
        "select": (u, V, normal(N), V, W, U, torch.tensor(0.2, dtype=torch.float64), normal(N), h0),
        "lstm": (normal(T, B, 4 * N), normal(4 * N, N) / N**0.5, h0, h0),
        "gru": (normal(T, B, 3 * N), normal(3 * N, N) / N**0.5, normal(N), h0),
    }
    worst = {}
    for name, inputs in arguments.items():
        results = []
        for backend, dtype in (("fused", torch.float32), ("reference", torch.float64)):
            leaves = [tensor.to(dtype, copy=True).requires_grad_() for tensor in inputs]
            output = getattr(kernels, f"{name}_scan")(*leaves, backend=backend)
            y = output[0] if isinstance(output, tuple) else output
            weights = torch.rand(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
            results.append([y.detach(), *torch.autograd.grad(y, leaves, weights)])
        pairs = zip(*results, strict=True)
        worst[f"{name}_scan"] = max(((found - right).abs().max() / right.abs().max()).item() for found, right in pairs)
    return worst


def machine() -> str:
    """CPU, versions and commit, in one line."""
    head, changed = commit(Path(__file__).parent, ".")
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return (
        f"{cpu_name()}, {torch.get_num_threads()} threads, {versions}, commit {head[:12]}"
        f"{' with changes' if changed else ''}"
    )


def speed_lines(peak: float) -> Iterator[str]:
    yield "| model | T, B, N | ms | against | its ms | ratio | target | share of peak | ratio, loss on every step |"
    yield "|---|---|---|---|---|---|---|---|---|"
    lost = []
    for row in ROWS:
        shape = SHAPES[row.shape]
        best, every = (
            interleaved(
                {
                    "ours": train_step(row.model, shape, "fused", last_step),
                    "theirs": train_step(row.against, shape, last_step=last_step),
                }
            )
            for last_step in (not shape.every_step, False)
        )
        ratio, share = best["theirs"] / best["ours"], flops(row.model, shape) / best["ours"] / peak
        if ratio < 1 or (row.target is not None and ratio < row.target):
            lost.append(f"{row.model} at {shape} ({ratio:.2f}× {row.against}, aim {row.target or 1:g}×)")
        target = f"≥ {row.target:g}×" if row.target is not None else "–"
        yield (
            f"| {row.model} | {shape} | {1e3 * best['ours']:.1f} | {row.against} | {1e3 * best['theirs']:.1f} "
            f"| {ratio:.1f}× | {target} | {f'{share:.0%}' if row.model != 'indrnn' else '–'} "
            f"| {every['theirs'] / every['ours']:.1f}× |"
        )
    yield ""
    yield (
        "The loss looks at the last step, as in adding, MNIST and NTU (PTB-c: at every step). In torch.nn its "
        "gradient fades into subnormal numbers, which a CPU multiplies slowly; the fused loops flush them to zero. The "
        "last column has no such numbers, as torch.nn has none after torch.set_flush_denormal(True)."
    )
    yield ""
    yield "Below its aim or slower than torch.nn: " + ("; ".join(lost) if lost else "none") + "."


def memory_lines() -> Iterator[str]:
    yield "| train step | T, B, N | saved for backward, MB | peak, MB |"
    yield "|---|---|---|---|"
    shape = SHAPES["mnist-784"]
    for name in ("durnn", "lstm", "indrnn", "nn.LSTM"):
        peak = cost_in_new_process(name, shape, repeats=1).peak_bytes
        yield f"| {name} | {shape} | {saved_bytes(name, shape) / 1e6:.0f} | {_megabytes(peak)} |"
    long = Shape(5000, 50, 128, 2)
    yield f"| durnn | {long} | – | {_megabytes(cost_in_new_process('durnn', long, repeats=1).peak_bytes)} |"


def growth_lines() -> Iterator[str]:
    short, long = (cost_in_new_process("durnn", Shape(T, 50, 128, 2), repeats=5) for T in (500, 5000))
    memory = f"{long.peak_bytes / short.peak_bytes:.1f}×" if long.peak_bytes and short.peak_bytes else "unknown"
    yield (
        f"DuRNN with B = 50, N = 128, T = 5000 over T = 500: time {long.seconds / short.seconds:.1f}×, "
        f"CPU time {long.cpu_seconds / short.cpu_seconds:.1f}×, peak memory {memory}."
    )


def constraint_lines() -> Iterator[str]:
    for name in ("adding-100", "ptb-c-50-n2000"):
        shape = SHAPES[name]
        net = network("durnn", shape)
        steps = {"constrain_": lambda net=net: net.constrain_(), "step": train_step("durnn", shape)}  # type: ignore[misc]
        best = interleaved(steps)
        yield (
            f"DuRNN `constrain_()` at {shape}: {1e3 * best['constrain_']:.2f} ms, "
            f"{best['constrain_'] / best['step']:.1%} of a train step."
        )


def _megabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:.0f}"


def report() -> Iterator[str]:
    """The lines of the report, each as soon as it is measured."""
    yield machine()
    if hasattr(os, "getloadavg"):
        yield f"Load average before the run {os.getloadavg()[0]:.1f}: above 0.5, other work distorts what follows."
    yield ""
    worst = numerics()
    for name, error in worst.items():
        yield f"- {name}: largest relative deviation from the float64 reference {error:.1e}"
    if not max(worst.values()) < TOLERANCE:
        yield f"\nNumerics are red (allowed: {TOLERANCE:g}); no speed-up is reported."
        raise SystemExit(1)
    peak = sgemm_peak()
    yield f"- measured sgemm peak (2048³): {peak / 1e9:.0f} GFLOP/s"
    for part in (speed_lines(peak), memory_lines(), growth_lines(), constraint_lines()):
        yield ""
        yield from part


def main(figure: bool = False, threads: int = 2, folder: Path = Path("results/figures")) -> None:
    """Compare the fused recurrences with torch.nn on this machine.

    Args:
        figure: draw time and memory against T and N instead of printing the tables.
        threads: number of threads for all contenders.
        folder: where the figure goes.
    """
    torch.set_num_threads(threads)
    if not cpu.available():
        sys.exit(f"Nothing to report: {cpu.problem()}")
    if figure:
        from models.kernels.growth import draw, measure_growth  # plotting libraries only where they are used

        draw(measure_growth(), folder)
        return
    for line in report():
        print(line, flush=True)


if __name__ == "__main__":
    tyro.cli(main)
