"""What the Triton kernels could reach at best on one GPU, computed and not measured.

``python -m models.kernels.roofline`` prints the page ``roofline.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from models.kernels.measure import flops
from suite.shapes import SHAPES, Shape

SAMPLES = 16  # per program of a resident kernel, BLOCK_B of triton_common.py


@dataclass(frozen=True)
class GPU:
    name: str
    flops: float  # per second, float32 without tensor cores
    bandwidth: float  # bytes per second
    processors: int
    launch: float  # seconds that a small kernel takes at least, an assumption


A100 = GPU("NVIDIA A100 SXM4, 40 GB", 19.5e12, 1.555e12, 108, 4e-6)


@dataclass(frozen=True)
class Recurrence:
    """chained: products with an (N, N) matrix per step that wait for the step before, forward and backward.

    sequences: of T·B·N numbers, each written once and read once. resident: the largest N whose weights stay on chip.
    launches: kernels per step, forward and backward, where they do not.
    """

    chained: int
    sequences: int
    resident: float
    launches: int


RECURRENCES = {
    "durnn": Recurrence(chained=4, sequences=10, resident=128, launches=8),
    "lstm": Recurrence(chained=8, sequences=15, resident=64, launches=4),
    "indrnn": Recurrence(chained=0, sequences=4, resident=math.inf, launches=0),
}
ROWS = (
    ("durnn", "mnist-784"),
    ("durnn", "adding-1000"),
    ("durnn", "adding-100"),
    ("durnn", "ntu-20"),
    ("durnn", "ptb-c-50-n2000"),
    ("lstm", "mnist-784"),
    ("lstm", "ptb-c-50-n2000"),
    ("indrnn", "mnist-784"),
)


def bounds(model: str, shape: Shape, gpu: GPU = A100) -> dict[str, float]:
    """Seconds that a train step takes at least, by each of the things that limit it."""
    kind = RECURRENCES[model]
    work = flops(model, shape)
    memory = 2.0 * kind.sequences * 4 * shape.T * shape.B * shape.N / gpu.bandwidth
    if kind.resident < shape.N:
        return {"arithmetic": work / gpu.flops, "memory": memory, "launches": shape.T * kind.launches * gpu.launch}
    chained = 2.0 * shape.T * shape.B * kind.chained * shape.N**2
    busy = min(gpu.processors, math.ceil(shape.B / SAMPLES))
    arithmetic = (work - chained) / gpu.flops + chained / (gpu.flops * busy / gpu.processors)
    return {"arithmetic": arithmetic, "memory": memory, "launches": 0.0}


def page(gpu: GPU = A100) -> Iterator[str]:
    yield f"# A roofline on paper: {gpu.name}"
    yield ""
    yield (
        "**Computed, not measured: none of these kernels has run on a GPU.** "
        "`python -m models.kernels.roofline` prints this page."
    )
    yield ""
    yield (
        f"Taken from the data sheet: {gpu.flops / 1e12:g} TFLOP/s in float32 without tensor cores, "
        f"{gpu.bandwidth / 1e9:,.0f} GB/s, {gpu.processors} multiprocessors. Assumed: a small kernel takes "
        f"{1e6 * gpu.launch:g} µs. Milliseconds of a train step at least:"
    )
    yield ""
    yield "| model | T, B, N | GFLOP | arithmetic | memory | launches | at least | limited by | share of peak |"
    yield "|---|---|---:|---:|---:|---:|---:|---|---:|"
    for model, name in ROWS:
        shape = SHAPES[name]
        found = bounds(model, shape, gpu)
        limit = max(found, key=lambda what: found[what])
        work = flops(model, shape)
        times = " | ".join(f"{1e3 * seconds:.2f}" for seconds in found.values())
        share = f"{work / found[limit] / gpu.flops:.0%}" if model != "indrnn" else "–"
        yield f"| {model} | {shape} | {work / 1e9:.1f} | {times} | {1e3 * found[limit]:.2f} | {limit} | {share} |"
    yield ""
    yield (
        f"Where a layer's weights stay on chip, one program carries {SAMPLES} samples through all steps. What "
        "waits for the step before (4 of DuRNN's 10 products) then runs on ⌈B/16⌉ multiprocessors only: at B = 32 "
        "on two of them, and this is the limit, not the GPU's peak. Fewer samples per program, or several layers "
        "and runs at once, would use more of it. Wider layers start one product and one pointwise kernel per "
        "step, and short ones of them are limited by launches; a CUDA graph would help there. TF32 raises the "
        "arithmetic limits by up to eight times, and changes numbers. Not counted: the latency of steps that wait "
        "for each other."
    )


if __name__ == "__main__":
    print("\n".join(page()))
