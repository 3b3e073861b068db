"""Projections onto the constraint sets of the paper, in place and never differentiated through."""

from __future__ import annotations

import math

import torch
from torch import Tensor

FEASIBLE = 5e-6
"""Relative slack within which a matrix counts as feasible; a clipped matrix lies well inside it."""

WIDE = 512
"""Units from which the few largest singular values are looked for by themselves."""

BLOCK, BLOCKS, BLOCKS_PER_CHECK = 16, 24, 8
"""Of that search: vectors per block, blocks at most, and how many are added before it looks whether it is done."""


@torch.no_grad()
def clip_singular_(W: Tensor, bound: float, method: str = "auto") -> Tensor:
    """``C_δ``: replace every singular value of ``W`` above ``bound`` by ``bound``, in place.

    This is the projection onto the spectral-norm ball in the Frobenius norm. A matrix that is feasible already is
    returned untouched, bit by bit; one that is not finite is left as it is, for the caller's divergence check.

    method: "auto" (a Cholesky factorisation decides whether there is anything to do, an eigen-decomposition of the
    Gram matrix does it, a partial one if that is enough) or "svd" (the reference).
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
    tall = W.shape[0] >= W.shape[1]
    limit = (bound * (1 + FEASIBLE)) ** 2
    slack = (W.T @ W if tall else W @ W.T).neg_()  # (n, n), n the smaller side
    slack.diagonal().add_(limit)
    # limit·I − WᵀW is positive definite exactly if all singular values are below the limit.
    # One that is not finite shows on the diagonal, the squared length of its column.
    if torch.linalg.cholesky_ex(slack).info.item() == 0 or not math.isfinite(slack.diagonal().sum().item()):
        return W
    found = _largest(slack, limit, bound**2) if len(slack) >= WIDE else None
    if found is not None:
        squares, V = found
        slack.addmm_(V * (squares - bound**2), V.T)  # after the clip
        if squares.max() <= 16 * bound**2 and torch.linalg.cholesky_ex(slack).info.item() == 0:
            return _shorten_(W, squares, V, bound)
        slack.addmm_(V * (bound**2 - squares), V.T)
    room, vectors = torch.linalg.eigh(slack)  # ascending, so the largest singular values come first
    squares = limit - room
    if squares[0] > 4 * bound**2 and W.dtype != torch.float64:
        # Far outside, the rounding of WᵀW would cost digits of the values near the bound.
        return W.copy_(clip_singular_(W.double(), bound))
    above = int((squares > bound**2).sum())
    return _shorten_(W, squares[:above], vectors[:, :above], bound)


def _shorten_(W: Tensor, squares: Tensor, V: Tensor, bound: float) -> Tensor:
    """Clip the singular values of these squares, (k,), given their vectors on the smaller side of W, (n, k)."""
    excess = 1 - bound * squares.rsqrt()  # by how much to shorten each direction
    return W.sub_(((W @ V) * excess) @ V.T) if W.shape[0] >= W.shape[1] else W.sub_((V * excess) @ (V.T @ W))


def _largest(slack: Tensor, limit: float, bound: float) -> tuple[Tensor, Tensor] | None:
    """The eigenvalues of ``G = limit·I − slack`` above a bound, (k,), and their vectors, (n, k); None if a few steps
    of a block Lanczos iteration do not find them.

    What is found are eigenpairs of a matrix within the residual of G. Whether they are all there are is for the caller
    to check.
    """
    n, eps = len(slack), torch.finfo(slack.dtype).eps
    generator = torch.Generator(slack.device).manual_seed(0)
    Q = torch.randn(n, BLOCK, generator=generator, dtype=slack.dtype, device=slack.device)
    basis = images = slack.new_empty(n, 0)  # (n, m): orthonormal, and G times that
    for blocks in range(1, BLOCKS + 1):
        for _ in range(2):  # once leaves what rounding brings back
            Q = torch.linalg.qr(Q - basis @ (basis.T @ Q)).Q  # (n, BLOCK)
        image = limit * Q - slack @ Q
        basis, images, Q = torch.cat([basis, Q], 1), torch.cat([images, image], 1), image
        if blocks % BLOCKS_PER_CHECK == 0:
            values, Y = torch.linalg.eigh(basis.T @ images)
            values, Y = values[values > bound], Y[:, values > bound]
            if len(values) > 2 * BLOCK:
                return None  # many: the whole decomposition is cheaper
            V = basis @ Y
            if len(values) and torch.linalg.norm(images @ Y - V * values) <= 16 * eps * values[-1]:
                return values, V
    return None


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
