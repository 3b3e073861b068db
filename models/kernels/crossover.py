"""``python -m models.kernels.crossover``: the fused recurrences against the reference on this CPU, as Markdown.

Shows whether ``backend="auto"`` takes the faster form, which is what ``recurrence.fused_is_faster`` is set by.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
import tyro

from models import kernels
from models.kernels.checks import Letters, letter_sizes, shape_of
from models.kernels.measure import interleaved
from models.kernels.recurrence import RECURRENCES, fused_is_faster


def call(name: str, T: int, B: int, N: int, backend: str, train: bool) -> Callable[[], None]:
    """A declared recurrence, forward alone or with gradients for all of its arguments."""
    declared, generator, sizes = RECURRENCES[name], torch.Generator().manual_seed(0), letter_sizes(T, B, N)

    def draw(letters: Letters) -> torch.Tensor:
        scale = N**-0.5 if len(letters) == 2 and letters[0] != "B" else 0.5  # matrices; the rest
        return (scale * torch.randn(shape_of(letters, sizes), generator=generator)).requires_grad_(train)

    leaves = [draw(declared.tensors[tensor]) for tensor in declared.differentiable]
    weight = torch.randn(T, B, N, generator=generator)

    def step() -> None:
        output = getattr(kernels, f"{name}_scan")(*leaves, backend=backend)
        if train:
            torch.autograd.grad(output if isinstance(output, torch.Tensor) else output[0], leaves, weight)

    return step


def table(
    names: tuple[str, ...], T: tuple[int, ...], B: tuple[int, ...], N: tuple[int, ...], train: bool
) -> Iterator[str]:
    """Lines of Markdown, each as soon as it is measured."""
    yield "| recurrence | T, B, N | fused, ms | reference, ms | auto | slower than the better by |"
    yield "|---|---|---|---|---|---|"
    for name, t, b, n in itertools.product(names, T, B, N):
        forms = {backend: call(name, t, b, n, backend, train) for backend in ("fused", "reference")}
        best = interleaved(forms, seconds=0.1)
        auto = "fused" if fused_is_faster(t, b, n) else "reference"
        yield (
            f"| {name} | {t}, {b}, {n} | {1e3 * best['fused']:.2f} | {1e3 * best['reference']:.2f} | {auto} "
            f"| {best[auto] / min(best.values()) - 1:.0%} |"
        )


def main(
    recurrences: tuple[str, ...] = ("rnn", "select", "lstm", "gru"),
    T: tuple[int, ...] = (20, 100, 1000),
    B: tuple[int, ...] = (8, 32, 128),
    N: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048),
    threads: int = 2,
    train: bool = True,
) -> None:
    """Time both forms of the recurrences over a grid of shapes, subnormal numbers flushed.

    Args:
        recurrences: which of them.
        T: numbers of steps.
        B: numbers of samples.
        N: numbers of units.
        threads: for both forms.
        train: forward and backward, or forward alone.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    for line in table(recurrences, T, B, N, train):
        print(line, flush=True)


if __name__ == "__main__":
    tyro.cli(main)
