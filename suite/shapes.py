"""The task shapes that speed and memory are measured on; their names are keys of the committed asv history.

Nothing beyond the standard library, and no import of the suite: asv_bench loads this file beside commits without it.
"""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """T steps of B samples, N units; a target for every step, or one for the last step only.

    has: what a model may need of the task besides, out of ``symbols`` and ``skeleton``; every task has a length.
    """

    T: int
    B: int
    N: int
    input_size: int
    output_size: int = 1
    every_step: bool = False
    has: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.T}, {self.B}, {self.N}"


SHAPES = {
    "adding-100": Shape(100, 50, 128, input_size=2, output_size=1),
    "adding-1000": Shape(1000, 50, 128, input_size=2, output_size=1),
    "mnist-784": Shape(784, 32, 128, input_size=1, output_size=10),
    "ptb-c-50-n256": Shape(50, 128, 256, input_size=50, output_size=50, every_step=True, has=("symbols",)),
    "ptb-c-50-n2000": Shape(50, 128, 2000, input_size=50, output_size=50, every_step=True, has=("symbols",)),
    "ntu-20": Shape(20, 128, 512, input_size=150, output_size=60, has=("skeleton",)),
}

TINY = Shape(2, 2, 8, input_size=150, output_size=2, has=("skeleton",))
"""For a first step of any model, which loads what is loaded lazily."""
