"""What stands before a recurrent model: ``x = input(x, mask)``.

A network without an input hands its dense values (T, B, input_size) to the model as they are. ``mask`` (T, B) is True
at real steps, or None where all are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.base import Part
from models.noise import check_deviation, nonzero_noise
from models.registry import SKELETON_SIZE, Registry


class Input(Part, ABC):
    """``size`` is the width that it gives to the model."""

    takes_symbols: ClassVar[bool] = False
    """Reads symbols (T, B) int64 instead of values (T, B, input_size)."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.input_size, self.size = input_size, size

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(T, B, input_size), or symbols (T, B), -> (T, B, size)."""

    def mask(self, mask: Tensor | None) -> Tensor | None:
        """The mask of what ``forward`` gives; another than that of x only where an input changes the steps."""
        return mask


INPUTS: Registry[Input] = Registry("input")
register = INPUTS.register


def build(name: str, input_size: int, **options: Any) -> Input:
    """Build an input: ``build("embedding", 50, size=128)``; ``input_size`` is the number of symbols or values."""
    return INPUTS.build(name, input_size, **options)


def names() -> list[str]:
    """Everything that ``build`` knows."""
    return INPUTS.names()


def options(name: str) -> dict[str, Any]:
    """The options of an input with their defaults; ``...`` stands for one that must be given."""
    return INPUTS.options(name)


def example(name: str, input_size: int = 8, **options: Any) -> Input:
    """An input with what it needs, for checks; of another ``input_size`` where it can only read a skeleton."""
    return build(name, SKELETON_SIZE if "skeleton" in INPUTS.entry(name).needs else input_size, **options)


@register("one-hot")
class OneHot(Input):
    """One unit per symbol."""

    takes_symbols = True
    like: Tensor

    def __init__(self, input_size: int) -> None:
        super().__init__(input_size, input_size)
        self.register_buffer("like", torch.zeros(()), persistent=False)  # follows .to(dtype)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.one_hot(x, self.input_size).to(self.like.dtype)  # (T, B) -> (T, B, symbols)


@register("embedding")
class Embedding(Input):
    """A trained vector per symbol.

    size: its width.
    range: 0.04, it starts in U(−range, range), as IndRNN's released PTB script.
    """

    takes_symbols = True
    decayed = ("embedding.weight",)

    def __init__(self, input_size: int, *, size: int, range: float = 0.04) -> None:
        super().__init__(input_size, size)
        self.embedding = nn.Embedding(input_size, size)
        nn.init.uniform_(self.embedding.weight, -range, range)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.embedding(x)  # (T, B) -> (T, B, size)


@register("noise")
class Noise(Input):
    """Gaussian noise on all values that are not 0, in training; padding and absent bodies, which are 0, stay so.

    deviation: its standard deviation.
    """

    def __init__(self, input_size: int, *, deviation: float) -> None:
        super().__init__(input_size, input_size)
        self.deviation = check_deviation("deviation", deviation)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return nonzero_noise(x, self.deviation) if self.training else x
