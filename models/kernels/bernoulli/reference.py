"""Random bits in plain torch that depend on a seed and their number alone.

The words are those of SplitMix64 (Steele, Lea, Flood 2014): word k is a bijection of ``seed + (k + 1) · GAMMA``.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

GAMMA, FIRST, SECOND = (ctypes.c_int64(c).value for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""SplitMix64's constants as torch has them, with a sign; products wrap around."""


def words(seed: Tensor, count: int) -> Tensor:
    """The first outputs of SplitMix64: seed () -> (count,), both int64 that stand for their unsigned values."""
    z = torch.arange(1, count + 1, device=seed.device).mul_(GAMMA).add_(seed)
    z.bitwise_xor_(_shifted(z, 30)).mul_(FIRST)
    z.bitwise_xor_(_shifted(z, 27)).mul_(SECOND)
    return z.bitwise_xor_(_shifted(z, 31))


def _shifted(z: Tensor, by: int) -> Tensor:
    return (z >> by).bitwise_and_(2 ** (64 - by) - 1)  # torch shifts copies of the sign in


def bernoulli(seed: Tensor, most: int, count: int) -> Tensor:
    """Bit k is whether half ``k % 2`` of word ``k // 2``, the low one first, is at most ``most`` as a signed number.

    seed: () int64 -> (count,) bool
    """
    return words(seed, (count + 1) // 2).view(torch.int32)[:count] <= most
