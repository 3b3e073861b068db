"""``lstm_scan`` in plain torch: slow, readable, and the ground truth of its fused forms.

Shapes: T steps, B samples, N units. Sequences are time-major, ``(T, B, N)``. ``u`` is the part of the
pre-activation that does not depend on the recurrence, computed beforehand by one large GEMM.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
