"""``lstm_scan`` in plain torch: slow, readable, and the ground truth of its fused forms.

Shapes: T steps, B samples, N units. Sequences are time-major, ``(T, B, N)``. ``u`` is the part of the
pre-activation that does not depend on the recurrence, computed beforehand by one large GEMM.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def lstm_scan(
    u: Tensor, W_rec: Tensor, h0: Tensor, c0: Tensor, noise: Tensor | None = None, rates: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """LSTM with gates in torch's order i, f, g, o: ``[i f g o] = u_t + W_rec h_{t-1}``.

    u: (T, B, 4N), W_rec: (4N, N), h0, c0: (B, N) -> all h (T, B, N), the last h and c (B, N)
    noise: (T, B, N) uint8, the sum of 1 where c keeps its value, 2 where h does, 4 where c is not added to; or else
    rates: (3,), how often each of these is the case, for the expectation over a step's noise.
    """
    h, c, states = h0, c0, []
    for t, u_t in enumerate(u):
        i, f, g, o = (u_t + h @ W_rec.T).chunk(4, dim=-1)  # each (B, N)
        if noise is None and rates is None:
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        else:
            d_c, d_h, dropped = factors(noise, rates, t, u)
            c_new = torch.sigmoid(f) * c + (1 - dropped) * torch.sigmoid(i) * torch.tanh(g)
            h_new = torch.sigmoid(o) * torch.tanh(c_new)
            c, h = d_c * c + (1 - d_c) * c_new, d_h * h + (1 - d_h) * h_new
        states.append(h)
    return torch.stack(states), h, c


def factors(noise: Tensor | None, rates: Tensor | None, t: int, like: Tensor) -> tuple[Tensor, ...]:
    """d_c, d_h and 1 − m of a step, each (B, N) or a number."""
    if noise is not None:
        return tuple((noise[t] & bit).ne(0).to(like.dtype) for bit in (1, 2, 4))
    return tuple(like.new_zeros(3) if rates is None else rates)


def projected_lstm_scan(
    x: Tensor,
    W_in: Tensor,
    b: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    c0: Tensor,
    noise: Tensor | None = None,
    rates: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``lstm_scan`` with ``u = W_in x + b``; x: (T, B, I), W_in: (4N, I), b: (4N,)."""
    return lstm_scan(F.linear(x, W_in, b), W_rec, h0, c0, noise, rates)
