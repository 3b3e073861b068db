"""``rnn_scan`` as an operator."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from models.kernels.recurrence import Recurrence
from models.kernels.rnn import reference


@Recurrence(reference.rnn_scan, outputs={"y": "T B N", "y_last": "B N"}, saved=("W_rec", "h0", "y"), products=(1, 2))
def rnn_scan(
    u: Annotated[Tensor, "T B N"],
    W_rec: Annotated[Tensor, "N N"],
    h0: Annotated[Tensor, "B N"],
    activation: Annotated[str, "relu", "tanh"] = "relu",
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """``y_t = act(u_t + W_rec y_{t-1})``, ``y_{-1} = h0``.

    Backward: ``g_t = act'(y_t) ∘ (grad_y_t + W_recᵀ g_{t+1})``, where relu' is 1 for y > 0 and tanh' is 1 − y²;
    grad_u = g, grad_W_rec = Σ g_t y_{t-1}ᵀ, grad_h0 = W_recᵀ g_0.
    """


@Recurrence(
    reference.projected_rnn_scan,
    outputs={"y": "T B N", "y_last": "B N"},
    saved=("x", "W_in", "W_rec", "h0", "y"),
    products=(1, 2),
)
def projected_rnn_scan(
    x: Annotated[Tensor, "T B I"],
    W_in: Annotated[Tensor, "N I"],
    b: Annotated[Tensor, "N"],
    W_rec: Annotated[Tensor, "N N"],
    h0: Annotated[Tensor, "B N"],
    activation: Annotated[str, "relu", "tanh"] = "relu",
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """``y_t = act(W_in x_t + b + W_rec y_{t-1})``, ``y_{-1} = h0``: ``rnn_scan`` with its projection.

    ``u = W_in x + b`` and its gradient g are never stored; grad_x = W_inᵀ g where it is wanted, grad_W_in = Σ g_t x_tᵀ,
    grad_b = Σ g_t.
    """
