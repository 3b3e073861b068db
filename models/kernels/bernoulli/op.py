"""``bernoulli`` as an operator: the same bits whoever computes them, with however many threads."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.kernels import cpu
from models.kernels.availability import problem
from models.kernels.bernoulli import reference


def bernoulli(
    shape: tuple[int, ...], p: float, device: torch.device | str | None = None, backend: str = "auto"
) -> Tensor:
    """Independent bool values, True with probability p in (0, 1], exact to 2^-32.

    Takes one number, the seed of them all, from torch's global CPU generator, so that a saved state of that generator
    restores them. ``backend="reference"`` computes in plain torch.
    """
    seed = torch.randint(-(2**63), 2**63 - 1, (), device="cpu")
    return _draw(seed, p, list(shape), torch.device("cpu" if device is None else device), backend != "reference")


@torch.library.custom_op(
    "durnn::bernoulli",
    mutates_args=(),
    schema="(Tensor seed, float p, SymInt[] shape, Device on, bool fused) -> Tensor",
)
def _draw(seed: Tensor, p: float, shape: list[int], on: torch.device, fused: bool) -> Tensor:
    count, most = math.prod(shape), round(p * 2**32) - 2**31 - 1  # a signed word is at most this with probability p
    if fused and on.type == "cpu" and problem("cpu") is None:
        return cpu.bernoulli(int(seed), most, count).view(shape)
    return reference.bernoulli(seed.to(on), most, count).view(shape)


@_draw.register_fake
def _(seed: Tensor, p: float, shape: list[int], on: torch.device, fused: bool) -> Tensor:
    return torch.empty(shape, dtype=torch.bool, device=on)
