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

    Takes a whole sequence (T, B, N); inside a recurrence, ``begin`` before the first step and then frame by frame,
    (B, N). Steps past ``length`` reuse the statistics of the last step in evaluation and are refused in training.

    scale: where the scale starts, for all units. shift: False for none.
    """

    def __init__(
        self, units: int, length: int, *, scale: float = 1.0, shift: bool = True, momentum: float = 0.1
    ) -> None:
        super().__init__(length * units, affine=False, momentum=momentum)
        self.units, self.length = units, length
        self.weight = nn.Parameter(torch.full((units,), float(scale)))
        if shift:
            self.bias = nn.Parameter(torch.zeros(units))
        self._step: int | None = None  # of the next frame
        self._momentum = 0.0  # of the sequence that has begun

    def forward(self, x: Tensor) -> Tensor:
        return self._frame(x) if x.dim() == 2 else self._sequence(x)

    def begin(self, T: int, B: int) -> None:
        """Called before the first of T frames (B, N)."""
        self._step = 0
        if self.training:
            self._momentum = self._count(T, B)

    def statistics(self, T: int) -> Tensor:
        """Mean and variance by which evaluation normalises each of T frames: (T, 2, N)."""
        return torch.cat([_per_step(s, T, self.units) for s in (self.running_mean, self.running_var)], dim=1)

    def learn(self, statistics: Tensor, B: int) -> None:
        """Take up what a kernel has seen of the batch that has begun, mean and variance of its frames: (T, 2, N)."""
        T, _, N = statistics.shape
        assert self.running_mean is not None
        assert self.running_var is not None
        mean, var = statistics.unbind(1)  # each (T, N)
        self.running_mean[: T * N].lerp_(mean.flatten(), self._momentum)
        self.running_var[: T * N].lerp_(var.flatten() * (B / (B - 1)), self._momentum)

    def _frame(self, x: Tensor) -> Tensor:
        if self._step is None:
            raise RuntimeError("FrameNorm does not know which frame this is; call begin(T, B) before the first one.")
        N, slot = self.units, min(self._step, self.length - 1)
        self._step += 1
        assert self.running_mean is not None
        assert self.running_var is not None
        return F.batch_norm(
            x,
            self.running_mean[slot * N : (slot + 1) * N],
            self.running_var[slot * N : (slot + 1) * N],
            self.weight,
            self.bias,
            training=self.training,
            momentum=self._momentum,
            eps=self.eps,
        )

    def _sequence(self, x: Tensor) -> Tensor:
        T, B, N = x.shape
        if not self.training:
            mean, var = (_per_step(s, T, N) for s in (self.running_mean, self.running_var))  # (T, 1, N)
            return self._affine((x - mean) * torch.rsqrt(var + self.eps))
        momentum = self._count(T, B)
        assert self.running_mean is not None
        assert self.running_var is not None
        frames = x.transpose(0, 1).reshape(B, T * N)
        normed = F.batch_norm(
            frames,
            self.running_mean[: T * N],
            self.running_var[: T * N],
            training=True,
            momentum=momentum,
            eps=self.eps,
        )
        return self._affine(normed.view(B, T, N).transpose(0, 1))

    def _affine(self, normed: Tensor) -> Tensor:
        scaled = normed * self.weight
        return scaled if self.bias is None else scaled + self.bias

    def _count(self, T: int, B: int) -> float:
        """Count a training batch, and give the weight of its statistics in the running ones."""
        if self.length < T:
            raise ValueError(
                f"FrameNorm was built for length={self.length} steps and got {T}; build the model with length={T}."
            )
        if B == 1:
            raise ValueError("FrameNorm cannot train on a batch of one sample; give a larger batch.")
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        return self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)

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
