"""``python -m models.kernels.report``: the fused recurrences on this machine, beside torch.nn, as Markdown.

Leads with the share of the machine's sgemm peak and the ratio to torch.nn with subnormal numbers flushed on both
sides, for each instruction set of the CPU. Numbers are compared with the float64 reference first, and no speed is
printed while that check fails. Run it on an otherwise idle machine, for about five minutes; rows that were disturbed
say so.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from models.kernels import availability
from models.kernels.measure import cost_in_new_process, saved_bytes
from models.kernels.rows import CLIPS, ROWS
from models.kernels.session import AS_ON_AVX2, Request, in_new_process, with_one_bandwidth
from models.kernels.tables import Speed, report_lines
from suite.machine import commit, cores, cpu_name
from suite.shapes import SHAPES, Shape


def measure(device: str = "cpu", threads: int = 2) -> Speed:
    """Every row under every instruction set of this CPU, or on this GPU; no other ratios while numerics are red."""
    facts = machine(device, threads)
    everything = (*ROWS, *CLIPS)
    if device == "cuda":
        return Speed(facts, [in_new_process(Request(everything, device, threads))])
    sessions = [in_new_process(Request(everything, device, threads))]
    if sessions[0].is_red:
        return Speed(facts, sessions)
    raw = in_new_process(Request(fading(), device, threads, flush=False, limit=3.0))
    beside_torch = tuple(key for key, row in ROWS.items() if row.compares_torch)
    kept = in_new_process(Request(beside_torch, device, threads, keep=True, limit=3.0))
    if sessions[0].instructions == "AVX512":
        sessions.append(in_new_process(Request(tuple(ROWS), device, threads), AS_ON_AVX2))
    return Speed(facts, with_one_bandwidth([*sessions, raw, kept])[: len(sessions)], raw, kept)


def fading() -> tuple[str, ...]:
    """The rows whose gradients fade into subnormal numbers: those with a loss on the last step only."""
    return tuple(key for key, row in ROWS.items() if row.compares_torch and not row.shape.every_step)


def machine(device: str, threads: int) -> dict[str, Any]:
    head, changed = commit(Path(__file__).parent, ".")
    return {
        "processor": cpu_name() if device == "cpu" else f"{torch.cuda.get_device_name()} beside {cpu_name()}",
        "cores": cores(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": head,
        "changed": changed,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan"),
    }


def file_name(facts: dict[str, Any]) -> str:
    """What a machine's measurement is called."""
    words = re.sub(r"\(\w+\)|@.*", "", facts["processor"]).lower()
    return f"{'-'.join(re.findall(r'[a-z0-9]+', words))}-{facts['cores']}core.json"


def memory_lines() -> Iterator[str]:
    yield "| train step | T, B, N | saved for backward, MB | peak, MB |"
    yield "|---|---|---|---|"
    shape = SHAPES["mnist-784"]
    for name in ("durnn", "lstm", "indrnn", "nn.LSTM"):
        peak = cost_in_new_process(name, shape, repeats=1).peak_bytes
        yield f"| {name} | {shape} | {saved_bytes(name, shape) / 1e6:.0f} | {_megabytes(peak)} |"
    short, long = (cost_in_new_process("durnn", Shape(T, 50, 128, 2), repeats=5) for T in (500, 5000))
    yield f"| durnn | 5000, 50, 128 | – | {_megabytes(long.peak_bytes)} |"
    memory = f"{long.peak_bytes / short.peak_bytes:.1f}×" if long.peak_bytes and short.peak_bytes else "unknown"
    yield ""
    yield (
        f"DuRNN with B = 50, N = 128, T = 5000 over T = 500: time {long.seconds / short.seconds:.1f}×, "
        f"CPU time {long.cpu_seconds / short.cpu_seconds:.1f}×, peak memory {memory}."
    )


def _megabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:.0f}"


def main(
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int = 2,
    save: Path | None = None,
    memory: bool = False,
    figure: bool = False,
    folder: Path = Path("results/figures"),
) -> None:
    """Measure the fused recurrences on this machine, beside torch.nn.

    Args:
        device: cuda measures the Triton kernels beside cuDNN. Nobody has run it yet.
        threads: number of threads for all contenders.
        save: a file for the measurement, as JSON.
        memory: print memory and growth with T instead.
        figure: draw time and memory against T and N instead.
        folder: where the figure goes.
    """
    if (problem := availability.problem(device)) is not None:
        sys.exit(f"Nothing to report: {problem}")
    torch.set_num_threads(threads)
    if figure:
        from models.kernels.growth import draw, measure_growth  # plotting libraries only where they are used

        draw(measure_growth(), folder)
        return
    if memory:
        for line in memory_lines():
            print(line, flush=True)
        return
    speed = measure(device, threads)
    for line in report_lines(speed):
        print(line)
    if any(session.is_red for session in speed.sessions):
        sys.exit(1)
    if save:
        speed.save(save)


if __name__ == "__main__":
    tyro.cli(main)
