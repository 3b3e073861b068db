"""What the report on the recurrences measures, and what is aimed at in each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.kernels.measure import flops
from suite.shapes import SHAPES, Shape

NOISY = Shape(784, 100, 100, input_size=1, output_size=10)
"""MNIST in the batches and the width of Krueger et al. 2017 (zoneout)."""


@dataclass(frozen=True)
class Row:
    """A train step of a model on a task's shape, beside that of another model.

    share: least share of the sgemm peak, or of memory bandwidth for an elementwise recurrence. ratio: least ratio of
    the other's time to ours. slower: largest ratio of our time to the other's. Those that are None are not aimed at.
    """

    label: str
    model: str
    shape: Shape
    against: str
    share: float | None = None
    ratio: float | None = None
    slower: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_elementwise(self) -> bool:
        return self.model == "indrnn"

    @property
    def compares_torch(self) -> bool:
        return self.against.startswith("nn.")

    @property
    def work(self) -> float:
        """Floating-point operations of a step; bytes for an elementwise recurrence."""
        return unavoidable_bytes(self.shape) if self.is_elementwise else flops(self.model, self.shape)


def unavoidable_bytes(shape: Shape) -> float:
    """Memory traffic that no implementation of an elementwise recurrence saves, its input aside.

    Twice a sequence of T·B·N float32: the output is written, and read again by backward. The loss looks at the last
    step, so that there is no sequence of gradients.
    """
    return 2.0 * 4.0 * shape.T * shape.B * shape.N


@dataclass(frozen=True)
class Clip:
    """DuRNN's ``constrain_()`` where it has to clip, as part of a train step of the shape."""

    label: str
    shape: Shape
    most: float = 0.10


_MNIST, _WIDE = SHAPES["mnist-784"], SHAPES["ptb-c-50-n2000"]

ROWS = {
    "durnn-mnist": Row("DuRNN", "durnn", _MNIST, "nn.LSTM", share=0.75, ratio=4.0),
    "durnn-adding-1000": Row("DuRNN", "durnn", SHAPES["adding-1000"], "nn.LSTM", share=0.70, ratio=3.5),
    "durnn-adding-100": Row("DuRNN", "durnn", SHAPES["adding-100"], "nn.LSTM", share=0.65, ratio=2.7),
    "durnn-ntu": Row("DuRNN", "durnn", SHAPES["ntu-20"], "nn.LSTM", share=0.80, ratio=1.7),
    "durnn-wide": Row("DuRNN", "durnn", _WIDE, "nn.LSTM", share=0.80, ratio=1.25),
    "lstm-mnist": Row("LSTM", "lstm", _MNIST, "nn.LSTM", ratio=3.0),
    "lstm-wide": Row("LSTM", "lstm", _WIDE, "nn.LSTM", ratio=1.1),
    "indrnn-mnist": Row("IndRNN", "indrnn", _MNIST, "nn.LSTM", share=0.60),
    "rnn-mnist": Row("RNN", "rnn-relu", _MNIST, "nn.RNN", share=0.70),
    "irnn-mnist": Row("IRNN", "irnn", _MNIST, "nn.RNN", share=0.70),
    "gru-mnist": Row("GRU", "gru", _MNIST, "nn.GRU", ratio=3.0),
    "lstm-zoneout": Row(
        "LSTM + zoneout", "lstm", NOISY, "lstm", slower=1.3, options={"zoneout": (0.15, 0.15)}
    ),
    "lstm-recurrent-dropout": Row(
        "LSTM + recurrent dropout", "lstm", NOISY, "lstm", slower=1.3, options={"recurrent_dropout": 0.25}
    ),
}  # fmt: skip
"""Key in a saved measurement -> row, in the order of the table."""

CLIPS = {
    "constrain-128": Clip("DuRNN `constrain_()` that clips", SHAPES["adding-100"]),
    "constrain-2000": Clip("DuRNN `constrain_()` that clips", _WIDE),
}
