"""IndRNN (Li et al. 2018): ``h_t = relu(W_in x_t + U ∘ h_{t-1} + b)``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.constraints import per_layer, recurrent_interval
from models.kernels import indrnn_scan, projected_indrnn_scan
from models.nets import Stack
from models.registry import register
from models.states import LayerState


class IndRNNCell(Cell):
    """Options, with the reason for each default:

    gamma: 2, the CVPR paper's value (its later releases use 5).
    epsilon: 0.5; the last layer's U starts in [ε^(1/L), γ^(1/L)], all others in [0, γ^(1/L)], as the authors' code.
    u_max: replaces the upper bound γ^(1/L), one number or one per layer; 1 where state is carried between segments.
    W_in_init: "kaiming-8", as the authors' PyTorch release; "normal-0.001" is their choice for adding.
    """

    decayed = ("W_in",)
    scans_to_h = True

    def __init__(
        self,
        slot: Slot,
        *,
        gamma: float = 2.0,
        epsilon: float = 0.5,
        u_max: float | list[float] | None = None,
        W_in_init: str = "kaiming-8",
    ) -> None:
        super().__init__(slot)
        N = slot.hidden_size
        low, high = recurrent_interval(slot.needed_length(self), epsilon, gamma)
        self.u_max = per_layer("u_max", u_max, high, slot.index, slot.count)
        self.W_in = slot.matrix(N, slot.input_size, W_in_init, "W_in_init")
        self.U = slot.uniform(N, min(low, self.u_max) if slot.is_last else 0.0, self.u_max)
        self.b = nn.Parameter(torch.zeros(N))

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h,) = state  # (B, N)
        h = torch.relu(u_t + self.U * h)
        return h, (h,)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, h_last = indrnn_scan(u, self.U, state[0], backend=self.backend)
        return h, (h_last,)

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if not self.projects_inside:
            return super().run(x, state)
        h, h_last = projected_indrnn_scan(x, self.W_in, self.b, self.U, state[0], backend=self.backend)
        return h, (h_last,)

    @torch.no_grad()
    def constrain_(self) -> None:
        self.U.clamp_(-self.u_max, self.u_max)


@register("indrnn", needs=["length"], paper="Li, Li, Cook, Zhu, Gao 2018")
class IndRNN(Stack):
    """Independently recurrent network; ``constrain_`` keeps ``|U| <= γ^(1/L)``."""

    cell = IndRNNCell
