"""Noise that trains: dropout with one mask over time. Sequences are time-major, ``(T, B, N)``."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


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
