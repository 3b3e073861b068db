"""``lstm_scan`` as an operator."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from models.kernels.lstm import reference
from models.kernels.recurrence import Recurrence


@Recurrence(
    reference.lstm_scan,
    outputs={"y": "T B N", "y_last": "B N", "c_last": "B N"},
    residuals={"gates": "T B 4N", "cells": "T B N"},
    saved=("W_rec", "h0", "c0", "y", "gates", "cells", "noise", "rates"),
    products=(4, 8),
)
def lstm_scan(
    u: Annotated[Tensor, "T B 4N"],
    W_rec: Annotated[Tensor, "4N N"],
    h0: Annotated[Tensor, "B N"],
    c0: Annotated[Tensor, "B N"],
    noise: Annotated[Tensor | None, "T B N", torch.uint8] = None,
    rates: Annotated[Tensor | None, "3"] = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """``[i f g o] = u_t + W_rec y_{t-1}``, ``c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g)``, ``y_t = σ(o) ∘ tanh(c_t)``;
    returns y, its last step and the last cell.

    With noise, ``c~_t = σ(f) ∘ c_{t-1} + m ∘ σ(i) ∘ tanh(g)``, ``y~_t = σ(o) ∘ tanh(c~_t)``,
    ``c_t = d_c ∘ c_{t-1} + (1 − d_c) ∘ c~_t``, ``y_t = d_h ∘ y_{t-1} + (1 − d_h) ∘ y~_t``. noise: bits of each unit and
    step, 1 for d_c = 1, 2 for d_h = 1, 4 for m = 0. rates: without noise, d_c, d_h and 1 − m for all of them.

    The fused forward also returns ``gates``, σ(i), σ(f), tanh(g), σ(o) in this order, and ``cells``, all c_t.

    Backward, from grad_y_last and grad_c_last on:
    ``dy_t = grad_y_t + W_recᵀ grad_u_{t+1} + d_h,{t+1} ∘ dy_{t+1}``,
    ``dc~_t = (1 − d_c) ∘ dc_t + (1 − d_h) ∘ dy_t ∘ σ(o) ∘ (1 − tanh² c~_t)``,
    ``dc_{t-1} = d_c ∘ dc_t + σ(f) ∘ dc~_t``, grad_u_t by the derivatives of the gates;
    grad_W_rec = Σ grad_u_t y_{t-1}ᵀ, grad_h0 = dy_{-1}, grad_c0 = dc_{-1}.
    """


@Recurrence(
    reference.projected_lstm_scan,
    outputs={"y": "T B N", "y_last": "B N", "c_last": "B N"},
    residuals={"gates": "T B 4N", "cells": "T B N"},
    saved=("x", "W_in", "W_rec", "h0", "c0", "y", "gates", "cells", "noise", "rates"),
    products=(4, 8),
)
def projected_lstm_scan(
    x: Annotated[Tensor, "T B I"],
    W_in: Annotated[Tensor, "4N I"],
    b: Annotated[Tensor, "4N"],
    W_rec: Annotated[Tensor, "4N N"],
    h0: Annotated[Tensor, "B N"],
    c0: Annotated[Tensor, "B N"],
    noise: Annotated[Tensor | None, "T B N", torch.uint8] = None,
    rates: Annotated[Tensor | None, "3"] = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """``lstm_scan`` with ``u = W_in x + b``; neither u nor its gradient g is stored.

    grad_x = W_inᵀ g where it is wanted, grad_W_in = Σ g_t x_tᵀ, grad_b = Σ g_t.
    """
