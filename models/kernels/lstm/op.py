"""``lstm_scan`` as an operator."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from models.kernels.lstm import reference
from models.kernels.recurrence import Recurrence


@Recurrence(
    reference.lstm_scan,
    outputs={"y": "T B N", "c_last": "B N"},
    residuals={"gates": "T B 4N", "cells": "T B N"},
    saved=("W_rec", "h0", "c0", "y", "gates", "cells"),
    products=(4, 4),
    by_blas={"W_rec": "u"},
)
def lstm_scan(
    u: Annotated[Tensor, "T B 4N"],
    W_rec: Annotated[Tensor, "4N N"],
    h0: Annotated[Tensor, "B N"],
    c0: Annotated[Tensor, "B N"],
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """``[i f g o] = u_t + W_rec y_{t-1}``, ``c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g)``, ``y_t = σ(o) ∘ tanh(c_t)``;
    returns y and the last cell.

    The fused forward also returns ``gates``, σ(i), σ(f), tanh(g), σ(o) in this order, and ``cells``, all c_t.

    Backward, from grad_c_last on: ``dy_t = grad_y_t + W_recᵀ grad_u_{t+1}``,
    ``dc_t = σ(f)_{t+1} ∘ dc_{t+1} + dy_t ∘ σ(o) ∘ (1 − tanh² c_t)``, grad_u_t by the derivatives of the gates;
    grad_W_rec = Σ grad_u_t y_{t-1}ᵀ, grad_h0 = W_recᵀ grad_u_0, grad_c0 = σ(f)_0 ∘ dc_0.
    """
