"""``gru_scan`` as an operator."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from models.kernels.gru import reference
from models.kernels.recurrence import Recurrence


@Recurrence(
    reference.gru_scan,
    outputs={"y": "T B N", "y_last": "B N"},
    residuals={"gates": "T B 4N"},
    saved=("W_rec", "h0", "y", "gates"),
    products=(3, 6),
)
def gru_scan(
    u: Annotated[Tensor, "T B 3N"],
    W_rec: Annotated[Tensor, "3N N"],
    b_new: Annotated[Tensor, "N"],
    h0: Annotated[Tensor, "B N"],
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """``[r z] = σ(u_t + W_rec y_{t-1})`` of the first two thirds, ``n = tanh(u_n + r ∘ a)`` with
    ``a = W_n y_{t-1} + b_new``, ``y_t = (1 − z) ∘ n + z ∘ y_{t-1}``.

    The fused forward also returns ``gates``, r, z, n and a in this order.

    Backward: ``dy_t = grad_y_t + W_recᵀ g_{t+1} + z_{t+1} ∘ dy_{t+1}`` with ``g = [dr dz da]``, where
    ``dn = dy ∘ (1 − z) ∘ (1 − n²)``, ``da = r ∘ dn``, ``dr = a ∘ dn ∘ r ∘ (1 − r)``,
    ``dz = dy ∘ (y_{t-1} − n) ∘ z ∘ (1 − z)``; grad_u = [dr dz dn], grad_W_rec = Σ g_t y_{t-1}ᵀ, grad_b_new = Σ da_t,
    grad_h0 = dy_{-1}.
    """
