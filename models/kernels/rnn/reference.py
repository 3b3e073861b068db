"""``rnn_scan`` in plain torch: slow, readable, and the ground truth of its fused forms.

Shapes: T steps, B samples, N units. Sequences are time-major, ``(T, B, N)``. ``u`` is the part of the
pre-activation that does not depend on the recurrence, computed beforehand by one large GEMM.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rnn_scan(u: Tensor, W_rec: Tensor, h0: Tensor, activation: str = "relu") -> tuple[Tensor, Tensor]:
    """``h_t = act(u_t + W_rec h_{t-1})``, act one of relu, tanh.

    u: (T, B, N), W_rec: (N, N), h0: (B, N) -> all h (T, B, N), the last one (B, N)
    """
    act = {"relu": torch.relu, "tanh": torch.tanh}[activation]
    h, states = h0, []
    for u_t in u:
        h = act(u_t + h @ W_rec.T)  # (B, N)
        states.append(h)
    return torch.stack(states), h


def projected_rnn_scan(
    x: Tensor, W_in: Tensor, b: Tensor, W_rec: Tensor, h0: Tensor, activation: str = "relu"
) -> tuple[Tensor, Tensor]:
    """``h_t = act(W_in x_t + b + W_rec h_{t-1})``, act one of relu, tanh.

    x: (T, B, I), W_in: (N, I), b: (N,), W_rec: (N, N), h0: (B, N) -> all h (T, B, N), the last one (B, N)
    """
    return rnn_scan(F.linear(x, W_in, b), W_rec, h0, activation)
