"""``gru_scan`` in plain torch: slow, readable, and the ground truth of its fused forms.

Shapes: T steps, B samples, N units. Sequences are time-major, ``(T, B, N)``. ``u`` is the part of the
pre-activation that does not depend on the recurrence, computed beforehand by one large GEMM.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gru_scan(u: Tensor, W_rec: Tensor, b_new: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
    """GRU with gates in torch's order r, z, n; ``b_new`` is the recurrent bias inside the reset product.

    u: (T, B, 3N), W_rec: (3N, N), b_new: (N,), h0: (B, N) -> all h (T, B, N), the last one (B, N)
    """
    h, states = h0, []
    for u_t in u:
        u_r, u_z, u_n = u_t.chunk(3, dim=-1)
        v_r, v_z, v_n = (h @ W_rec.T).chunk(3, dim=-1)
        r, z = torch.sigmoid(u_r + v_r), torch.sigmoid(u_z + v_z)
        n = torch.tanh(u_n + r * (v_n + b_new))
        h = (1 - z) * n + z * h
        states.append(h)
    return torch.stack(states), h
