"""The paper's normalisations of a recurrence's input and output. Sequences are time-major, ``(T, B, N)``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORMS = ("after", "frame", "sequence", "frame+after", "sequence+after")


class SequenceNorm(nn.BatchNorm1d):
    """Batch normalisation with one mean and variance per unit over batch and time."""

    def forward(self, x: Tensor) -> Tensor:
        T, B, N = x.shape
        if self.training and T * B == 1:
            raise ValueError(
                "SequenceNorm cannot train on one step of one sample; give a longer sequence or a larger batch."
            )
        return super().forward(x.reshape(T * B, N)).view(T, B, N)


class FrameNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation with a mean and variance per unit and time step; scale and shift are shared over time.

    Steps past ``length`` reuse the statistics of the last step in evaluation and are refused in training.
    """

    def __init__(self, units: int, length: int) -> None:
        super().__init__(length * units, affine=False)
        self.units, self.length = units, length
        self.weight = nn.Parameter(torch.ones(units))
        self.bias = nn.Parameter(torch.zeros(units))

    def forward(self, x: Tensor) -> Tensor:
        T, B, N = x.shape
        if not self.training:
            mean, var = (_per_step(s, T, N) for s in (self.running_mean, self.running_var))  # (T, 1, N)
            return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias
        if self.length < T:
            raise ValueError(
                f"FrameNorm was built for length={self.length} steps and got {T}; build the model with length={T}."
            )
        if B == 1:
            raise ValueError("FrameNorm cannot train on a batch of one sample; give a larger batch.")
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        frames = x.transpose(0, 1).reshape(B, T * N)
        normed = F.batch_norm(
            frames,
            self.running_mean[: T * N],
            self.running_var[: T * N],
            training=True,
            momentum=momentum,
            eps=self.eps,
        )
        return normed.view(B, T, N).transpose(0, 1) * self.weight + self.bias

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def extra_repr(self) -> str:
        return f"{self.units}, length={self.length}, eps={self.eps}, momentum={self.momentum}"


def _per_step(statistics: Tensor | None, T: int, N: int) -> Tensor:
    assert statistics is not None
    slots = statistics.view(-1, 1, N)  # (length, 1, N)
    return slots[torch.arange(T, device=slots.device).clamp(max=len(slots) - 1)]


def norm_before(norm: str | None, units: int, length: int | None) -> nn.Module:
    """What ``norm`` puts on the input of a recurrence."""
    if norm in ("frame", "frame+after"):
        if length is None:
            raise ValueError(f"norm={norm!r} keeps statistics per time step and needs length, the number of steps.")
        return FrameNorm(units, length)
    return SequenceNorm(units) if norm in ("sequence", "sequence+after") else nn.Identity()


def norm_after(norm: str | None, units: int) -> nn.Module:
    """What ``norm`` puts on the output of a recurrence."""
    return SequenceNorm(units) if norm in ("after", "frame+after", "sequence+after") else nn.Identity()


class BlockNorm(nn.Module):
    """Layer normalisation of each of ``blocks`` equal parts of the units by itself, as the gates of a cell need it.

    eps: 1e-3, as the layer normalisation of Ha et al.'s released cells.
    bias: False leaves out the shift, for a cell that adds a bias of its own.
    """

    def __init__(self, blocks: int, units: int, *, eps: float = 1e-3, bias: bool = True) -> None:
        super().__init__()
        self.blocks, self.eps = blocks, eps
        self.weight = nn.Parameter(torch.ones(blocks * units))
        self.bias = nn.Parameter(torch.zeros(blocks * units)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, blocks · units) -> the same shape."""
        return F.group_norm(x, self.blocks, self.weight, self.bias, self.eps)
