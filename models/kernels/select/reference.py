"""``select_scan`` in plain torch: slow, readable, and the ground truth of its fused forms.

Shapes: T steps, B samples, N units. Sequences are time-major, ``(T, B, N)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

MM_FLOOR = 1e-6
"""Smallest denominator of ``mm``: above it the paper's formula is exact, below it ``max == min`` gives 0, not NaN."""


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
) -> tuple[Tensor, Tensor]:
    """Selection and long half of DuRNN, Eqs. (4), (2), (3), for a given short-term memory.

    ``S_t = relu(mm(W_ss h~_t + W_ls h_{t-1} + b_s) − b_thre)``,
    ``h_t = relu(W_s (S_t ∘ h~_t) + U ∘ h_{t-1} + b_long)``; ``∂S_t/∂h~_t`` and ``∂S_t/∂h_{t-1}`` are cut.

    h_short: (T, B, N), W_ss, W_ls, W_s: (N, N), b_s, U, b_long: (N,), b_thre: (), h0: (B, N)
    -> all h (T, B, N), the last one (B, N)
    """
    h, states = h0, []
    for h_short_t in h_short:
        v_t = h_short_t.detach() @ W_ss.T + h.detach() @ W_ls.T + b_s  # (B, N)
        S_t = torch.relu(min_max(v_t, exact_minmax) - b_thre)  # (B, N)
        i_t = S_t * h_short_t  # (B, N)
        h = torch.relu(i_t @ W_s.T + U * h + b_long)  # (B, N)
        states.append(h)
    return torch.stack(states), h
