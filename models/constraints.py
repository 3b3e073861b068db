"""Projections onto the constraint sets of the paper, in place and never differentiated through."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models import eigen

FEASIBLE = 5e-6
"""Relative slack within which a matrix counts as feasible; a clipped matrix lies well inside it."""


@torch.no_grad()
def clip_singular_(W: Tensor, bound: float, method: str = "auto") -> Tensor:
    """``C_δ``: replace every singular value of ``W`` above ``bound`` by ``bound``, in place.

    This is the projection onto the spectral-norm ball in the Frobenius norm. A matrix that is feasible already is
    returned untouched, bit by bit; one that is not finite is left as it is, for the caller's divergence check.

    method: "auto" (from the largest eigenvalues of the Gram matrix) or "svd" (the reference).
    """
    if W.dim() != 2:
        raise ValueError(f"clip_singular_ takes a matrix and got a tensor of shape {tuple(W.shape)}.")
    if not bound > 0:
        raise ValueError(f"bound={bound!r} is not a positive number.")
    if method == "svd":
        left, values, right = torch.linalg.svd(W, full_matrices=False)
        return W if values[0] <= bound * (1 + FEASIBLE) else W.copy_((left * values.clamp(max=bound)) @ right)
    if method != "auto":
        raise ValueError(f"method={method!r} is not known; allowed are 'auto' and 'svd'.")
    if W.is_meta:
        return W  # no numbers to clip
    if W.dtype not in (torch.float32, torch.float64):
        return W.copy_(clip_singular_(W.float(), bound, method))  # there are no factorisations in half precision
    limit = (bound * (1 + FEASIBLE)) ** 2
    G = eigen.gram(W.T if W.shape[0] >= W.shape[1] else W)  # (n, n), n the smaller side
    squares, V = eigen.largest(G, bound**2, limit)
    if not len(squares):
        return W
    if W.dtype != torch.float64 and squares.max().item() > 4 * bound**2:
        # Far outside, the rounding of WᵀW would cost digits of the values near the bound.
        return W.copy_(clip_singular_(W.double(), bound))
    return _shorten_(W, squares, V, bound)


def _shorten_(W: Tensor, squares: Tensor, V: Tensor, bound: float) -> Tensor:
    """Clip the singular values of these squares, (k,), given their vectors on the smaller side of W, (n, k)."""
    excess = 1 - bound * squares.rsqrt()  # by how much to shorten each direction
    if W.shape[0] >= W.shape[1]:
        return W.addmm_((W @ V) * excess, V.T, alpha=-1)
    return W.addmm_(V * excess, V.T @ W, alpha=-1)


def recurrent_interval(length: int, epsilon: float, gamma: float) -> tuple[float, float]:
    """``[ε^(1/L), γ^(1/L)]``, within which ``|∂h_t/∂h_{t-L}|`` of an active unit stays in ``[ε, γ]`` (§IV-B)."""
    if not 0 <= epsilon < 1 < gamma:
        raise ValueError(f"epsilon={epsilon!r} and gamma={gamma!r} do not satisfy 0 <= epsilon < 1 < gamma.")
    return epsilon ** (1 / length), gamma ** (1 / length)


def per_layer(
    argument: str, value: float | list[float] | tuple[float, ...] | None, default: float, index: int, num_layers: int
) -> float:
    """Bound of layer ``index`` from an option that is None (the default), one number, or one number per layer."""
    if value is None:
        return default
    entries = list(value) if isinstance(value, list | tuple) else [value] * num_layers
    if len(entries) != num_layers:
        raise ValueError(
            f"{argument}={value!r} has {len(entries)} entries for num_layers={num_layers}; give one per layer."
        )
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int | float) or not 0 <= entry < math.inf:
            raise ValueError(f"{argument}={value!r} is not an upper bound, a number from 0 up for each layer.")
    return float(entries[index])
