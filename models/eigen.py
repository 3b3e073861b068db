"""The eigenvalues of a symmetric matrix above a bound, and their vectors, faster than by the whole decomposition."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from models.kernels import availability, cpu

WIDE = 256
"""Rows up to which a matrix fits into a processor's cache."""

VECTORS, ONE_IN = 16, 20
"""The search in a wide matrix takes one vector for so many rows, and at least so many vectors."""

CUT, DEGREE, ROUNDS = 0.93, 24, 3
"""Of that search: eigenvalues below this part of the bound are damped, by a polynomial of this degree, so often."""

FAR = 1.2
"""Of that search: times the bound, where an eigenvalue drowns the others."""

Pairs = tuple[Tensor, Tensor]
"""Eigenvalues, (k,), and their vectors, (n, k)."""


def largest(G: Tensor, bound: float, limit: float) -> Pairs:
    """The eigenvalues of G above a bound, if one is above the limit, which is a little higher; else none.

    G: positive semi-definite, float32 or float64; there are none if it is not finite. Up to a quarter of the values of
    a narrow matrix are found by compiled loops, where there are any, and a few of a wide one, near the bound, by
    ``by_filter``. For all else there is the whole decomposition.
    """
    found = None
    if len(G) > WIDE:
        found = by_filter(G, bound, limit)
    elif G.abs().sum(0).max().item() <= limit:  # Gershgorin: so a model that starts feasible needs no compiler
        return G.new_empty(0), G.new_empty(len(G), 0)
    elif G.is_cpu and availability.problem("cpu") is None:
        found = cpu.largest(G, bound, limit)
    return found or by_decomposition(G, bound, limit)


def by_decomposition(G: Tensor, bound: float, limit: float) -> Pairs:
    if not math.isfinite(G.diagonal().sum().item()):  # of a semi-definite matrix, its largest entry
        return G.new_empty(0), G.new_empty(len(G), 0)
    slack = -G
    slack.diagonal().add_(limit)  # eigenvalues near the limit become small, and lose fewer digits
    room, V = torch.linalg.eigh(slack)  # ascending
    values = limit - room
    above = int((values > bound).sum()) if values[0] > limit else 0
    return values[:above], V[:, :above]


def by_filter(G: Tensor, bound: float, limit: float) -> Pairs | None:
    """As ``largest``, or None; the nearer to the bound, the less accurate.

    They are looked for in the span of a few vectors in which a polynomial of G has damped all others. They must be
    accurate enough to lower them to the bound in ``√G``, and a Cholesky factorisation of what that leaves has to show
    that none was missed.
    """
    damped = CUT * bound
    Q = _random(len(G), max(VECTORS, len(G) // ONE_IN), G.dtype, G.device)
    for _ in range(ROUNDS):
        Q = torch.linalg.qr(_amplify(G, Q, damped)).Q  # (n, p)
        images = product(G, Q)
        projected = Q.T @ images
        if not math.isfinite(projected.sum().item()):
            return None  # G is not finite, or has an eigenvalue so far above the bound that its power overflows
        values, Y = torch.linalg.eigh(projected)  # ascending
        above = [value for value in values.tolist() if value > bound]
        if above and (above[-1] > FAR * bound or len(above) > 0.9 * len(values)):
            return None
        first = len(values) - len(above) if above and above[-1] > limit else len(values)
        values, Y = values[first:], Y[:, first:]
        V = Q @ Y
        residuals = torch.addmm(V * values, images, Y, beta=-1)
        # What is missing of a vector, its residual by the distance from the damped eigenvalues, counts by how much the
        # vector is shortened.
        weights = (1 - (bound / values).sqrt()) / (values - damped)
        if (residuals * weights).norm().item() <= torch.finfo(G.dtype).eps * len(G) ** 0.5:
            return (values, V) if _all_below(limit, G, values, V, bound) else None
    return None


def _amplify(G: Tensor, X: Tensor, damped: float) -> Tensor:
    """``T(G) X``, T the Chebyshev polynomial of the interval [0, damped]: at most 1 there, and growing fast above."""
    twice = G * (4 / damped)
    twice.diagonal().sub_(2)  # 2 T₁
    last, X = X, product(twice, X).mul_(0.5)
    for _ in range(DEGREE - 1):
        last, X = X, product(twice, X).sub_(last)  # Tᵢ₊₁ = 2 T₁ Tᵢ − Tᵢ₋₁
    return X


def _all_below(limit: float, G: Tensor, values: Tensor, V: Tensor, bound: float) -> bool:
    """Whether all eigenvalues of G are below a limit once these are lowered to a bound.

    They are exactly if the difference is positive definite, that is if it has a Cholesky factor.
    """
    slack = torch.addmm(G, V * (values - bound), V.T, beta=-1)
    slack.diagonal().add_(limit)
    return torch.linalg.cholesky_ex(slack).info.item() == 0


@functools.lru_cache(maxsize=8)
def _random(n: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same random matrix every time."""
    return torch.randn(n, columns, generator=torch.Generator(device).manual_seed(0), dtype=dtype, device=device)


def gram(rows: Tensor) -> Tensor:
    """``rows rowsᵀ``; of a wide one, one triangle is computed and mirrored."""
    n = len(rows)
    if n <= WIDE:
        return rows @ rows.T
    rows, G = rows.contiguous(), rows.new_empty(n, n)
    for start in range(0, n, WIDE):
        stop = min(start + WIDE, n)
        G[start:stop, :stop] = product(rows[start:stop], rows[:stop].T)
        G[:start, start:stop] = G[start:stop, :start].T
    return G


def product(a: Tensor, b: Tensor) -> Tensor:
    """``a b``, by oneDNN where there is one: it is up to twice as fast as the usual BLAS of torch, MKL."""
    if a.is_cpu and a.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        return torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")
    return a @ b
