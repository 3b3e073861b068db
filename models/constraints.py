"""Projections onto the constraint sets of the paper, in place and never differentiated through."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

FEASIBLE = 5e-6
"""Relative slack within which a matrix counts as feasible; a clipped matrix lies well inside it."""

NARROW, WIDE = 96, 256
"""Units below which the whole decomposition is the fastest, and from which arithmetic costs more than calls."""

VECTORS, ONE_IN = 16, 20
"""The search for the largest singular values takes one vector for so many units, and at least so many vectors."""

CUT, DEGREE, ROUNDS = 0.93, 24, 3
"""Of that search: the squares below this part of the bound's are damped, by a polynomial of this degree, so often."""

FAR = 1.2
"""Square, relative to the bound's, above which a singular value would drown the others in that search."""


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
    limit = (bound * (1 + FEASIBLE)) ** 2
    G = _gram(W.T if W.shape[0] >= W.shape[1] else W)  # (n, n), n the smaller side
    found = _largest(G, bound**2, limit) if len(G) >= NARROW else None
    if found is not None and _all_below(limit, G, *found, bound**2):
        return _shorten_(W, *found, bound)
    if not math.isfinite(G.diagonal().sum().item()):  # the squared lengths of all columns, or rows
        return W
    squares, V = torch.linalg.eigh(G)  # ascending
    largest = squares[-1].item()
    if largest <= limit:
        return W
    if largest > 4 * bound**2 and W.dtype != torch.float64:
        # Far outside, the rounding of WᵀW would cost digits of the values near the bound.
        return W.copy_(clip_singular_(W.double(), bound))
    above = squares > bound**2
    return _shorten_(W, squares[above], V[:, above], bound)


def _shorten_(W: Tensor, squares: Tensor, V: Tensor, bound: float) -> Tensor:
    """Clip the singular values of these squares, (k,), given their vectors on the smaller side of W, (n, k)."""
    if not len(squares):
        return W
    excess = 1 - bound * squares.rsqrt()  # by how much to shorten each direction
    if W.shape[0] >= W.shape[1]:
        return W.addmm_((W @ V) * excess, V.T, alpha=-1)
    return W.addmm_(V * excess, V.T @ W, alpha=-1)


def _all_below(limit: float, G: Tensor, squares: Tensor, V: Tensor, bound: float) -> bool:
    """Whether all eigenvalues of G are below a limit once these, (k,), of the vectors (n, k), are lowered to a bound.

    They are exactly if the difference is positive definite, that is if it has a Cholesky factor.
    """
    slack = torch.addmm(G, V * (squares - bound), V.T, beta=-1)
    slack.diagonal().add_(limit)
    return torch.linalg.cholesky_ex(slack, upper=True).info.item() == 0


def _largest(G: Tensor, bound: float, limit: float) -> tuple[Tensor, Tensor] | None:
    """The eigenvalues of G above a bound, (k,), and their vectors, (n, k); none if no eigenvalue is above the limit.

    They are looked for in a subspace of a few vectors, in which a polynomial of G has damped all the others. What is
    found is as accurate as the clip needs it: the nearer to the bound, the less. Whether it is all there is, is for the
    caller to check. None if the subspace does not hold them all, or not accurately.
    """
    n, damped = len(G), CUT * bound
    Q = _random(n, max(VECTORS, n // ONE_IN), G.dtype, G.device)
    for _ in range(ROUNDS):
        Q = torch.linalg.qr(_amplify(G, Q, damped)).Q  # (n, p)
        images = _product(G, Q)
        projected = Q.T @ images
        if not math.isfinite(projected.sum().item()):
            return None  # G is not finite, or an eigenvalue so far above the bound that its power overflows
        values, Y = torch.linalg.eigh(projected)  # ascending
        above = [value for value in values.tolist() if value > bound]
        if not above or above[-1] <= limit:
            return values[:0], Q[:, :0]
        if above[-1] > FAR * bound or len(above) > 0.75 * len(values):
            return None
        values, Y = values[-len(above) :], Y[:, -len(above) :]
        V = Q @ Y
        residuals = torch.addmm(V * values, images, Y, beta=-1)
        # What is missing of a vector, its residual by the distance from the damped eigenvalues, counts by how much the
        # vector is shortened: an error of the clipped matrix, relative to the bound.
        weights = values.new_tensor([(1 - math.sqrt(bound / value)) / (value - damped) for value in above])
        if (residuals * weights).norm().item() <= torch.finfo(G.dtype).eps * n**0.5:
            return values, V
    return None


def _amplify(G: Tensor, X: Tensor, damped: float) -> Tensor:
    """``T(G) X``, T the Chebyshev polynomial of the interval [0, damped]: at most 1 there, and growing fast above."""
    steps, twice = DEGREE, G * (4 / damped)
    twice.diagonal().sub_(2)  # 2 T₁
    if len(G) <= WIDE:  # fewer calls
        for _ in range(2):
            steps, twice = steps // 2, twice @ twice
            twice.diagonal().sub_(2)  # 2 T₂ₖ = (2 Tₖ)² − 2
    last, X = X, _product(twice, X).mul_(0.5)
    for _ in range(steps - 1):
        last, X = X, _product(twice, X, minus=last)  # Tᵢ₊₁ = 2 T₁ Tᵢ − Tᵢ₋₁
    return X


@functools.lru_cache(maxsize=8)
def _random(n: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same random matrix every time."""
    return torch.randn(n, columns, generator=torch.Generator(device).manual_seed(0), dtype=dtype, device=device)


def _gram(rows: Tensor) -> Tensor:
    """``rows rowsᵀ``; of a wide one, one triangle is computed and mirrored."""
    n = len(rows)
    if n <= WIDE:
        return rows @ rows.T
    rows, G = rows.contiguous(), rows.new_empty(n, n)
    for start in range(0, n, WIDE):
        stop = min(start + WIDE, n)
        G[start:stop, :stop] = _product(rows[start:stop], rows[:stop].T)
        G[:start, start:stop] = G[start:stop, :start].T
    return G


def _product(a: Tensor, b: Tensor, minus: Tensor | None = None) -> Tensor:
    """``a b − minus``; wide ones by oneDNN, which is up to twice as fast as the usual BLAS of torch, MKL."""
    if a.shape[1] > WIDE and a.dtype == torch.float32 and a.is_cpu and torch.backends.mkldnn.is_available():
        product = torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")
        return product if minus is None else product.sub_(minus)
    return a @ b if minus is None else torch.addmm(minus, a, b, beta=-1)


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
