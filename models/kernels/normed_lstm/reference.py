"""``normed_lstm_scan`` in plain torch: slow, readable, and the ground truth of its fused form.

Shapes as in ``lstm/reference.py``; a step's statistics are (2, 9N), mean and variance of what N_x (4N), N_h (4N) and
N_c (N) normalise, in this order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.kernels.lstm.reference import factors

EPSILON = 1e-5
"""Beside the variance, as torch's batch normalisation."""


def normed_lstm_scan(
    u: Tensor,
    W_rec: Tensor,
    b: Tensor,
    scales: Tensor,
    shift: Tensor,
    h0: Tensor,
    c0: Tensor,
    noise: Tensor | None = None,
    rates: Tensor | None = None,
    given: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """LSTM with ``[i f g o] = N_x(u_t) + N_h(W_rec h_{t-1}) + b`` and ``h~_t = σ(o) tanh(N_c(c~_t))``.

    u: (T, B, 4N), W_rec: (4N, N), b: (4N,), scales: (9N,) of N_x, N_h, N_c, shift: (N,) of N_c, h0, c0: (B, N)
    -> all h (T, B, N), the last h and c (B, N), the statistics (T, 2, 9N)
    noise, rates: as ``lstm_scan`` takes them. given: (T, 2, 9N), statistics in the place of the batch's own.
    """
    N = h0.shape[1]
    parts = [4 * N, 4 * N, N]
    scale_x, scale_h, scale_c = scales.split(parts)
    h, c, states, seen = h0, c0, [], []
    for t, u_t in enumerate(u):
        known = [None] * 3 if given is None else given[t].split(parts, dim=1)  # each (2, 4N) or (2, N)
        d_c, d_h, dropped = factors(noise, rates, t, u)
        x, of_x = _normalised(u_t, known[0])
        v, of_h = _normalised(h @ W_rec.T, known[1])
        i, f, g, o = (scale_x * x + scale_h * v + b).chunk(4, dim=-1)  # each (B, N)
        c_new = torch.sigmoid(f) * c + (1 - dropped) * torch.sigmoid(i) * torch.tanh(g)
        n, of_c = _normalised(c_new, known[2])
        h_new = torch.sigmoid(o) * torch.tanh(scale_c * n + shift)
        c, h = d_c * c + (1 - d_c) * c_new, d_h * h + (1 - d_h) * h_new
        states.append(h)
        seen.append(torch.cat([of_x, of_h, of_c], dim=1))
    return torch.stack(states), h, c, torch.stack(seen).detach()


def _normalised(x: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor]:
    """x (B, M) with mean 0 and variance 1 over the batch or by known statistics, and the statistics (2, M)."""
    if known is None:
        known = torch.stack([x.mean(0), x.var(0, unbiased=False)])
    return (x - known[0]) * torch.rsqrt(known[1] + EPSILON), known
