"""``indrnn_scan`` as an operator."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from models.kernels.indrnn import reference
from models.kernels.recurrence import Recurrence


@Recurrence(reference.indrnn_scan, outputs={"y": "T B N", "y_last": "B N"}, saved=("U", "h0", "y"))
def indrnn_scan(
    u: Annotated[Tensor, "T B N"],
    U: Annotated[Tensor, "N"],
    h0: Annotated[Tensor, "B N"],
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """``y_t = relu(u_t + U ∘ y_{t-1})``, ``y_{-1} = h0``.

    Backward: ``g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1})``; grad_u = g, grad_U = Σ g_t ∘ y_{t-1}, grad_h0 = U ∘ g_0.
    """


@Recurrence(
    reference.projected_indrnn_scan, outputs={"y": "T B N", "y_last": "B N"}, saved=("x", "W_in", "U", "h0", "y")
)
def projected_indrnn_scan(
    x: Annotated[Tensor, "T B I"],
    W_in: Annotated[Tensor, "N I"],
    b: Annotated[Tensor, "N"],
    U: Annotated[Tensor, "N"],
    h0: Annotated[Tensor, "B N"],
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """``y_t = relu(W_in x_t + b + U ∘ y_{t-1})``, ``y_{-1} = h0``: ``indrnn_scan`` with its projection.

    ``u = W_in x + b`` and its gradient g are never stored; grad_x = W_inᵀ g where it is wanted, grad_W_in = Σ g_t x_tᵀ,
    grad_b = Σ g_t.
    """
