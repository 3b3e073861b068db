"""Metrics as accumulators: `meter.update(outputs, y)` per batch, `meter.value()` at the end.

Every sample (or character) weighs the same, whatever batch it came in. A NaN among the outputs makes the
value NaN.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

IGNORE = -100  # label of a padded position; the default `ignore_index` of torch's cross entropy


class Meter(ABC):
    """A mean over everything that was passed to `update`; `count` is over how many samples (characters of a text)."""

    higher_is_better = False

    def __init__(self) -> None:
        self.count = 0
        self._total = 0.0

    @torch.no_grad()
    def update(self, outputs: Tensor, y: Tensor) -> None:
        """Add a batch: `outputs` of the network and the task's `y` that belongs to it."""
        total, count = self._sum(outputs.detach(), y)
        self._total += float(total)
        self.count += count

    def value(self) -> float:
        if self.count == 0:
            raise ValueError("a meter has no value before its first update")
        return self._finish(self._total / self.count)

    @abstractmethod
    def _sum(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, int]:
        """The sum of the quantity over a batch, and over how many samples it was taken."""

    def _finish(self, mean: float) -> float:
        return mean


class MeanSquaredError(Meter):
    """outputs (B, 1), y (B, 1)."""

    def _sum(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, int]:
        if outputs.shape != y.shape:
            raise ValueError(f"outputs {tuple(outputs.shape)} and targets {tuple(y.shape)} differ in shape")
        return (outputs.double() - y.double()).square().sum(), y.numel()


class Accuracy(Meter):
    """Per cent right; outputs (..., classes), y (...)."""

    higher_is_better = True

    def _sum(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, int]:
        if outputs.shape[:-1] != y.shape:
            raise ValueError(f"outputs {tuple(outputs.shape)} do not fit labels {tuple(y.shape)}")
        right = (outputs.argmax(-1) == y).sum().double()
        if outputs.isnan().any():
            right = right * math.nan
        return right, int((y != IGNORE).sum())

    def _finish(self, mean: float) -> float:
        return 100.0 * mean


class AveragedAccuracy(Accuracy):
    """Per cent right when the outputs of several samplings of a sample are added up; outputs (B, classes), y (B,).

    A label is followed by IGNORE for the further samplings of its sample, which therefore counts once.
    """

    def _sum(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, int]:
        if outputs.shape[:-1] != y.shape or y.ndim != 1 or y[0] == IGNORE:
            raise ValueError(f"outputs {tuple(outputs.shape)} do not fit labels {tuple(y.shape)} of whole clips")
        sample = (y != IGNORE).cumsum(0) - 1  # (B,) which sample a row belongs to
        added = outputs.new_zeros(int(sample[-1]) + 1, outputs.shape[-1])
        added.index_add_(0, sample.to(outputs.device), outputs)
        return super()._sum(added, y[y != IGNORE])


class Error(Accuracy):
    """Per cent wrong; outputs (..., classes), y (...)."""

    higher_is_better = False

    def _finish(self, mean: float) -> float:
        return 100.0 * (1.0 - mean)


class BitsPerCharacter(Meter):
    """Mean negative log2 likelihood; outputs (T, B, symbols), y (T, B)."""

    def _sum(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, int]:
        if outputs.shape[:-1] != y.shape:
            raise ValueError(f"outputs {tuple(outputs.shape)} do not fit labels {tuple(y.shape)}")
        # fp32 log-likelihoods, summed in fp64: a split has up to five million of them
        each = functional.cross_entropy(
            outputs.flatten(0, -2).float(), y.flatten(), ignore_index=IGNORE, reduction="none"
        )
        return each.double().sum(), int((y != IGNORE).sum())

    def _finish(self, mean: float) -> float:
        return mean / math.log(2.0)


def constant_answer(metric: str, targets: Tensor) -> float:
    """What the best answer that is always the same scores on targets; without IGNORE among them."""
    if metric == "mse":
        return float(targets.double().var(correction=0))
    shares = torch.bincount(targets.flatten()).double() / targets.numel()
    if metric == "bits_per_character":
        return float(-(shares * shares.clamp(min=1e-300).log2()).sum())
    best = 100.0 * float(shares.max())
    return 100.0 - best if metric == "error_percent" else best


METERS: dict[str, type[Meter]] = {
    "mse": MeanSquaredError,
    "error_percent": Error,
    "accuracy_percent": Accuracy,
    "bits_per_character": BitsPerCharacter,
}
