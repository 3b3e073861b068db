"""``indrnn_scan`` in plain torch: slow, readable, and the ground truth of its fused forms.

Shapes: T steps, B samples, N units. Sequences are time-major, ``(T, B, N)``. ``u`` is the part of the
pre-activation that does not depend on the recurrence, computed beforehand by one large GEMM.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def indrnn_scan(u: Tensor, U: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
    """``h_t = relu(u_t + U ∘ h_{t-1})``.

    u: (T, B, N), U: (N,), h0: (B, N) -> all h (T, B, N), the last one (B, N)
    """
    h, states = h0, []
    for u_t in u:
        h = torch.relu(u_t + U * h)  # (B, N)
        states.append(h)
    return torch.stack(states), h


def projected_indrnn_scan(x: Tensor, W_in: Tensor, b: Tensor, U: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
    """``h_t = relu(W_in x_t + b + U ∘ h_{t-1})``.

    x: (T, B, I), W_in: (N, I), b: (N,), U: (N,), h0: (B, N) -> all h (T, B, N), the last one (B, N)
    """
    return indrnn_scan(F.linear(x, W_in, b), U, h0)
