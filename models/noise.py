"""Noise that trains: dropout between layers, and masks inside a recurrence. Sequences are ``(T, B, N)``.

A mask inside a recurrence is drawn for the whole sequence before its first step, by a seed from torch's global
generator, so that a kernel can take it as one tensor and a training that is continued draws the same.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.kernels import bernoulli

PER = ("step", "sequence")


class TimeSharedDropout(nn.Module):
    """Dropout that keeps one mask per sample over all time steps ("over time" in the paper)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout={p!r} is not a probability in [0, 1).")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        return x * F.dropout(x.new_ones(1, *x.shape[1:]), self.p)  # mask (1, B, N)


class PerStepDropout(TimeSharedDropout):
    """Dropout with a fresh mask at each step."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        kept = bernoulli(tuple(x.shape), 1 - self.p, x.device)
        return x * torch.where(kept, 1 / (1 - self.p), 0.0).to(x.dtype)


def dropout_between(p: float, per: str) -> TimeSharedDropout:
    """Dropout of the outputs of a layer; ``per``: "sequence", one mask over time, or "step"."""
    return PerStepDropout(p) if per == "step" else TimeSharedDropout(p)


class StepNoise(nn.Module):
    """Masks for a recurrence of ``units``: ``begin`` before the first step, then one call of the module per step.

    p: probability of True for each unit and sample. 0 draws nothing and changes nothing.
    per: "step" for a fresh mask at each step, "sequence" for one that holds over time.
    mask: what the last ``begin`` in training mode drew, bool (T, B, N); None in evaluation.
    """

    def __init__(self, p: float, units: int, per: str = "step") -> None:
        super().__init__()
        self.p, self.units, self.per = p, units, per
        self.mask: Tensor | None = None
        self._step = 0

    def begin(self, T: int, B: int, device: torch.device | None = None, backend: str = "auto") -> None:
        self._step = 0
        self.mask = None
        if self.training and self.p > 0:
            drawn = bernoulli((T if self.per == "step" else 1, B, self.units), self.p, device, backend)
            self.mask = drawn.expand(T, B, self.units)

    def next_mask(self) -> Tensor:
        """The mask of the next step, (B, N)."""
        if self.mask is None:
            raise RuntimeError(f"{type(self).__name__} has no mask; call begin(T, B) before the first step.")
        self._step += 1
        return self.mask[self._step - 1]

    def extra_repr(self) -> str:
        return f"{self.p}, per={self.per!r}"


class Zoneout(StepNoise):
    """``s_t = d ∘ s_{t-1} + (1 − d) ∘ s~_t`` with d ~ Bernoulli(p); evaluation puts p in the place of d."""

    def forward(self, previous: Tensor, new: Tensor) -> Tensor:
        """s_{t-1} and s~_t, each (B, N), -> s_t."""
        if self.p == 0:
            return new
        if self.training:
            return torch.where(self.next_mask(), previous, new)
        return self.p * previous + (1 - self.p) * new


class UpdateDropout(StepNoise):
    """``m ∘ update`` with m = 0 at probability p; evaluation multiplies by 1 − p, training scales nothing."""

    def forward(self, update: Tensor) -> Tensor:
        """What a step would add to a memory, (B, N), -> what it adds."""
        if self.p == 0:
            return update
        if self.training:
            return update.masked_fill(self.next_mask(), 0.0)
        return (1 - self.p) * update


def nonzero_noise(x: Tensor, deviation: float) -> Tensor:
    """x with independent Gaussian noise on its values that are not 0."""
    if deviation == 0:
        return x
    return torch.addcmul(x, torch.randn_like(x), (x != 0).to(x.dtype), value=deviation)


def check_probability(argument: str, p: object, *, one: bool = False) -> float:
    """p as a probability in [0, 1), or in [0, 1] if ``one``."""
    if isinstance(p, bool) or not isinstance(p, int | float) or not (0 <= p < 1 or (one and p == 1)):
        raise ValueError(f"{argument}={p!r} is not a probability in [0, 1{']' if one else ')'}.")
    return float(p)


def check_deviation(argument: str, deviation: object) -> float:
    """A standard deviation, a number from 0 up."""
    if isinstance(deviation, bool) or not isinstance(deviation, int | float) or not 0 <= deviation < float("inf"):
        raise ValueError(f"{argument}={deviation!r} is not a standard deviation, a number from 0 up.")
    return float(deviation)
