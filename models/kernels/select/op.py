"""``select_scan`` as an operator."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from models.kernels.recurrence import Recurrence
from models.kernels.select import reference


@Recurrence(
    reference.select_scan,
    outputs={"y": "T B N", "y_last": "B N"},
    residuals={"S": "T B N", "scale": "T B"},
    saved=("h_short", "W_s", "U", "h0", "y", "S", "scale"),
    products=(3, 4),
    constants=(reference.MM_FLOOR,),
    reference_only=("exact_minmax",),
)
def select_scan(
    h_short: Annotated[Tensor, "T B N"],
    W_ss: Annotated[Tensor, "N N"],
    b_s: Annotated[Tensor, "N"],
    W_ls: Annotated[Tensor, "N N"],
    W_s: Annotated[Tensor, "N N"],
    U: Annotated[Tensor, "N"],
    b_thre: Annotated[Tensor, ""],
    b_long: Annotated[Tensor, "N"],
    h0: Annotated[Tensor, "B N"],
    exact_minmax: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """``S_t = relu(mm(v_t) − b_thre)`` with ``v_t = W_ss h~_t + W_ls y_{t-1} + b_s``,
    ``y_t = relu(W_s (S_t ∘ h~_t) + U ∘ y_{t-1} + b_long)``, ``y_{-1} = h0``.

    ``exact_minmax=True`` differentiates through the minimum and maximum of mm; only the reference can do that.
    The fused forward also returns S and ``scale = mm' = 1/max(max v − min v, MM_FLOOR)``.

    Backward, with ∂S_t/∂h~_t and ∂S_t/∂y_{t-1} cut: an elementwise reverse scan
    ``g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1})``, then products over many steps at once: ``d_t = W_sᵀ g_t``,
    ``e_t = [S_t > 0] ∘ h~_t ∘ d_t``, ``c_t = scale ∘ e_t``; grad_h_short = S ∘ d, grad_W_ss = Σ c_t h~_tᵀ,
    grad_b_s = Σ c_t, grad_W_ls = Σ c_t y_{t-1}ᵀ, grad_W_s = Σ g_t (S_t ∘ h~_t)ᵀ, grad_U = Σ g_t ∘ y_{t-1},
    grad_b_thre = −Σ e, grad_b_long = Σ g_t, grad_h0 = U ∘ g_0.
    """
