"""What stands behind a recurrent model: ``outputs = readout(y, x, mask, last)``.

y: (T, B, hidden_size) from the model, x: (T, B, input_size) what the model saw, mask: (T, B) bool, True at real steps,
or None where all are, last: (B, hidden_size), the last step of y where the caller has it by itself. What stands at
padded steps has no influence on anything. Padding follows the real steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.base import Part
from models.lstm import LSTM
from models.registry import Registry


class Readout(Part, ABC):
    """A linear head, and what is done with its logits over time."""

    every_step: ClassVar[bool] = False
    """Gives outputs (T, B, output_size) instead of (B, output_size)."""
    log_probabilities: ClassVar[bool] = False
    """Gives log-probabilities, for ``nll_loss``, instead of logits."""
    decayed: tuple[str, ...] = ("head.weight",)

    def __init__(self, hidden_size: int, output_size: int, input_size: int | None = None) -> None:
        super().__init__()
        self.hidden_size, self.output_size, self.input_size = hidden_size, output_size, input_size
        self.head = nn.Linear(hidden_size, output_size)

    def forward(
        self, y: Tensor, x: Tensor | None = None, mask: Tensor | None = None, last: Tensor | None = None
    ) -> Tensor:
        if mask is not None:
            _check_mask(mask, y)
            y = y.masked_fill(~mask.unsqueeze(-1), 0.0)  # also NaN, which would survive a product with 0
            x = x if x is None else x.masked_fill(~mask.unsqueeze(-1), 0)
        return self.read(y, x, mask)

    @abstractmethod
    def read(self, y: Tensor, x: Tensor | None, mask: Tensor | None) -> Tensor:
        """Outputs from y and x, both zero at padded steps."""


READOUTS: Registry[Readout] = Registry("readout")
register = READOUTS.register


def build(name: str, hidden_size: int, output_size: int, input_size: int | None = None, **options: Any) -> Readout:
    """Build a readout; ``input_size``, the width of what the model saw, is for those that look at x themselves."""
    return READOUTS.build(name, hidden_size, output_size, input_size, **options)


def names() -> list[str]:
    """Everything that ``build`` knows."""
    return READOUTS.names()


def options(name: str) -> dict[str, Any]:
    """The options of a readout with their defaults."""
    return READOUTS.options(name)


@register("last")
class Last(Readout):
    """Logits of the last real step."""

    def forward(
        self, y: Tensor, x: Tensor | None = None, mask: Tensor | None = None, last: Tensor | None = None
    ) -> Tensor:
        return self.head(last) if mask is None and last is not None else super().forward(y, x, mask)

    def read(self, y: Tensor, x: Tensor | None, mask: Tensor | None) -> Tensor:
        return self.head(y[-1] if mask is None else _at_last(y, mask))  # (B, out)


@register("every")
class Every(Readout):
    """Logits of each step; those of padded steps are 0 and carry no gradient."""

    every_step = True

    def read(self, y: Tensor, x: Tensor | None, mask: Tensor | None) -> Tensor:
        return _zero_padding(self.head(y), mask)  # (T, B, out)


@register("masked-mean")
class MaskedMean(Readout):
    """Mean of the logits over the real steps.

    padding: "ignore"; "release" is (Σ over real steps + number of padded steps · logits of the last real step) /
        number of real steps, which is what the released code of VA-RNN computes.
    steps: with "release", how many steps every sample is padded to, 300 in that code; None for those of the batch.
    """

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        input_size: int | None = None,
        *,
        padding: str = "ignore",
        steps: int | None = None,
    ) -> None:
        super().__init__(hidden_size, output_size, input_size)
        if padding not in ("ignore", "release"):
            raise ValueError(f"padding={padding!r} is not known; allowed are 'ignore' and 'release'.")
        if steps is not None and padding != "release":
            raise ValueError(f"steps={steps!r} is for padding='release' alone.")
        self.padding, self.steps = padding, steps

    def read(self, y: Tensor, x: Tensor | None, mask: Tensor | None) -> Tensor:
        if mask is None:
            mask = y.new_ones(y.shape[:2], dtype=torch.bool)
        count = mask.sum(0).unsqueeze(-1).to(y.dtype)  # (B, 1)
        total = y.sum(0)  # (B, hidden), of real steps, for y is 0 at the others
        if self.padding == "release":
            steps = self.steps or len(y)
            total = total + (steps - count) * _at_last(y, mask)
            return F.linear(total / count, self.head.weight) + steps / count * self.head.bias
        return self.head(total / count)  # the mean of the logits is the logits of the mean


@register("attention-sum", paper="Song et al. 2017")
class AttentionSum(Readout):
    """``Σ_t β_t z_t`` over the real steps, z_t the logits, ``β_t = relu(w·h_t + b)``, h_t of an LSTM over x.

    size: 100, the units of that LSTM, as STA-LSTM.
    dropout: 0, of that LSTM.
    uniform: True sets β ≡ 1 and leaves the attention unused.

    w starts at 0 and b at 1, so that β = 1; β = 0 would pass no gradient. The penalty "temporal-attention" is the mean
    of β over the real steps of a sample, averaged over samples.
    """

    decayed = ("head.weight", "beta.weight")
    penalty_names = ("temporal-attention",)

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        input_size: int | None = None,
        *,
        size: int = 100,
        dropout: float = 0.0,
        uniform: bool = False,
    ) -> None:
        super().__init__(hidden_size, output_size, input_size)
        if input_size is None:
            raise ValueError("AttentionSum looks at what the model saw and needs its width, input_size.")
        self.uniform = uniform
        self.attention = LSTM(input_size, size, dropout=dropout)
        self.beta = nn.Linear(size, 1)
        nn.init.zeros_(self.beta.weight)
        nn.init.ones_(self.beta.bias)

    def read(self, y: Tensor, x: Tensor | None, mask: Tensor | None) -> Tensor:
        logits = _zero_padding(self.head(y), mask)  # (T, B, out)
        if self.uniform:
            return logits.sum(0)
        if x is None:
            raise ValueError("AttentionSum needs x, what the model saw.")
        beta = _zero_padding(self.weights(x), mask)  # (T, B, 1)
        if self.training:
            steps = len(beta) if mask is None else mask.sum(0).unsqueeze(-1)
            self.collect("temporal-attention", (beta.sum(0) / steps).mean())
        return (beta * logits).sum(0)  # (B, out)

    def weights(self, x: Tensor) -> Tensor:
        """β, (T, B, 1)."""
        return torch.relu(self.beta(self.attention(x)[0]))


@register("mean-log-probabilities", paper="Liu et al. 2016")
class MeanLogProbabilities(Readout):
    """Mean over the real steps of the log-probabilities of each step; not normalised again."""

    log_probabilities = True

    def read(self, y: Tensor, x: Tensor | None, mask: Tensor | None) -> Tensor:
        log_p = _zero_padding(F.log_softmax(self.head(y), dim=-1), mask)  # (T, B, out)
        return log_p.mean(0) if mask is None else log_p.sum(0) / mask.sum(0).unsqueeze(-1)


def _zero_padding(values: Tensor, mask: Tensor | None) -> Tensor:
    return values if mask is None else values.masked_fill(~mask.unsqueeze(-1), 0.0)


def _at_last(values: Tensor, mask: Tensor) -> Tensor:
    """(T, B, N) -> (B, N), at the last real step of each sample."""
    steps = torch.arange(len(mask), device=mask.device).unsqueeze(-1)  # (T, 1)
    last = (mask * steps).amax(0)  # (B,)
    return values[last, torch.arange(mask.shape[1], device=mask.device)]


def _check_mask(mask: Tensor, y: Tensor) -> None:
    if mask.dtype != torch.bool or mask.shape != y.shape[:2]:
        raise ValueError(
            f"A readout takes a mask (T, B) = {tuple(y.shape[:2])} of torch.bool and got {tuple(mask.shape)} "
            f"of {mask.dtype}."
        )
    if mask.device.type == "cpu" and not mask.any(0).all():  # elsewhere the look would wait for the device
        raise ValueError("A readout needs at least one real step in every sample, and the mask has a sample without.")
