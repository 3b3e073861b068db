"""``normed_lstm_scan`` as an operator."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from models.kernels.normed_lstm import reference
from models.kernels.recurrence import Recurrence


@Recurrence(
    reference.normed_lstm_scan,
    outputs={"y": "T B N", "y_last": "B N", "c_last": "B N"},
    constant={"statistics": "T 2 9N"},
    residuals={"gates": "T B 4N", "recurrent": "T B 4N", "cells": "T B N"},
    saved=(
        "u", "W_rec", "scales", "shift", "h0", "c0", "y", "statistics", "gates", "recurrent", "cells", "noise",
        "rates", "given",
    ),
    products=(4, 8),
    devices=("cpu",),
)  # fmt: skip
def normed_lstm_scan(
    u: Annotated[Tensor, "T B 4N"],
    W_rec: Annotated[Tensor, "4N N"],
    b: Annotated[Tensor, "4N"],
    scales: Annotated[Tensor, "9N"],
    shift: Annotated[Tensor, "N"],
    h0: Annotated[Tensor, "B N"],
    c0: Annotated[Tensor, "B N"],
    noise: Annotated[Tensor | None, "T B N", torch.uint8] = None,
    rates: Annotated[Tensor | None, "3"] = None,
    given: Annotated[Tensor | None, "T 2 9N"] = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``lstm_scan`` with ``[i f g o] = N_x(u_t) + N_h(W_rec y_{t-1}) + b`` and ``y~_t = σ(o) ∘ tanh(N_c(c~_t))``;
    returns y, its last step, the last cell and, without a gradient, the statistics of each step.

    ``N(z) = scale ∘ z^ + shift`` with ``z^ = (z − mean) / √(variance + 10⁻⁵)`` over the batch; N_c alone has a shift.
    scales: of N_x, N_h and N_c. given: mean and variance of each step, in the place of the batch's.

    The fused forward also returns ``gates`` and ``cells`` as ``lstm_scan`` does, and ``recurrent``, z^ of N_h.

    Backward: as ``lstm_scan``, and through a norm with ``s = scale / √(variance + 10⁻⁵)``
    ``dz = s ∘ (g − mean(g) − z^ ∘ mean(g ∘ z^))``, or ``s ∘ g`` where statistics were given.
    """
