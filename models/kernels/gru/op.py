"""``gru_scan`` as an operator."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from models.kernels.gru import reference
from models.kernels.recurrence import Recurrence


@Recurrence(reference.gru_scan, outputs={"y": "T B N"})
def gru_scan(
    u: Annotated[Tensor, "T B 3N"],
    W_rec: Annotated[Tensor, "3N N"],
    b_new: Annotated[Tensor, "N"],
    h0: Annotated[Tensor, "B N"],
    backend: str = "auto",
) -> Tensor:
    """``[r z] = σ(u_t + W_rec y_{t-1})`` of the first two thirds, ``n = tanh(u_n + r ∘ (W_n y_{t-1} + b_new))``,
    ``y_t = (1 − z) ∘ n + z ∘ y_{t-1}``. Has no fused form yet.
    """
