"""The recurrences in plain torch: slow, readable, and the ground truth of every fused path.

Shapes: T steps, B samples, N units. Sequences are time-major, ``(T, B, N)``. ``u`` is the part of the
pre-activation that does not depend on the recurrence, computed beforehand by one large GEMM.
"""

from __future__ import annotations

import torch
from torch import Tensor

MM_FLOOR = 1e-6
"""Smallest denominator of ``mm``: above it the paper's formula is exact, below it ``max == min`` gives 0, not NaN."""


def rnn_scan(u: Tensor, W_rec: Tensor, h0: Tensor, activation: str = "relu") -> Tensor:
    """``h_t = act(u_t + W_rec h_{t-1})``, act one of relu, tanh.

    u: (T, B, N), W_rec: (N, N), h0: (B, N) -> (T, B, N)
    """
    act = {"relu": torch.relu, "tanh": torch.tanh}[activation]
    h, states = h0, []
    for u_t in u:
        h = act(u_t + h @ W_rec.T)  # (B, N)
        states.append(h)
    return torch.stack(states)


def indrnn_scan(u: Tensor, U: Tensor, h0: Tensor) -> Tensor:
    """``h_t = relu(u_t + U ∘ h_{t-1})``.

    u: (T, B, N), U: (N,), h0: (B, N) -> (T, B, N)
    """
    h, states = h0, []
    for u_t in u:
        h = torch.relu(u_t + U * h)  # (B, N)
        states.append(h)
    return torch.stack(states)


def min_max(v: Tensor, exact_gradient: bool = False) -> Tensor:
    """Eq. (5), ``mm(v) = (v − min v) / (max v − min v)`` over the last axis.

    The paper multiplies by ``mm'`` element by element, that is ``mm' = 1/(max − min)`` with min and max held
    constant; ``exact_gradient=True`` differentiates through them as well.
    """
    low, high = v.amin(-1, keepdim=True), v.amax(-1, keepdim=True)
    if not exact_gradient:
        low, high = low.detach(), high.detach()
    return (v - low) / (high - low).clamp(min=MM_FLOOR)


def select_scan(
    h_short: Tensor,
    W_ss: Tensor,
    b_s: Tensor,
    W_ls: Tensor,
    W_s: Tensor,
    U: Tensor,
    b_thre: Tensor,
    b_long: Tensor,
    h0: Tensor,
    exact_minmax: bool = False,
) -> Tensor:
    """Selection and long half of DuRNN, Eqs. (4), (2), (3), for a given short-term memory.

    ``S_t = relu(mm(W_ss h~_t + W_ls h_{t-1} + b_s) − b_thre)``,
    ``h_t = relu(W_s (S_t ∘ h~_t) + U ∘ h_{t-1} + b_long)``; ``∂S_t/∂h~_t`` and ``∂S_t/∂h_{t-1}`` are cut.

    h_short: (T, B, N), W_ss, W_ls, W_s: (N, N), b_s, U, b_long: (N,), b_thre: (), h0: (B, N) -> (T, B, N)
    """
    h, states = h0, []
    for h_short_t in h_short:
        v_t = h_short_t.detach() @ W_ss.T + h.detach() @ W_ls.T + b_s  # (B, N)
        S_t = torch.relu(min_max(v_t, exact_minmax) - b_thre)  # (B, N)
        i_t = S_t * h_short_t  # (B, N)
        h = torch.relu(i_t @ W_s.T + U * h + b_long)  # (B, N)
        states.append(h)
    return torch.stack(states)


def lstm_scan(u: Tensor, W_rec: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor]:
    """LSTM with gates in torch's order i, f, g, o: ``[i f g o] = u_t + W_rec h_{t-1}``.

    u: (T, B, 4N), W_rec: (4N, N), h0, c0: (B, N) -> outputs (T, B, N), last cell (B, N)
    """
    h, c, states = h0, c0, []
    for u_t in u:
        i, f, g, o = (u_t + h @ W_rec.T).chunk(4, dim=-1)  # each (B, N)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states), c


def gru_scan(u: Tensor, W_rec: Tensor, b_new: Tensor, h0: Tensor) -> Tensor:
    """GRU with gates in torch's order r, z, n; ``b_new`` is the recurrent bias inside the reset product.

    u: (T, B, 3N), W_rec: (3N, N), b_new: (N,), h0: (B, N) -> (T, B, N)
    """
    h, states = h0, []
    for u_t in u:
        u_r, u_z, u_n = u_t.chunk(3, dim=-1)
        v_r, v_z, v_n = (h @ W_rec.T).chunk(3, dim=-1)
        r, z = torch.sigmoid(u_r + v_r), torch.sigmoid(u_z + v_z)
        n = torch.tanh(u_n + r * (v_n + b_new))
        h = (1 - z) * n + z * h
        states.append(h)
    return torch.stack(states)
