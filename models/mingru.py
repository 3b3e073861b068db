"""minGRU (Feng et al. 2024), a GRU whose gates do not look at the state, so that the recurrence is linear:

    z_t  = σ(W_z x_t + b_z)
    h~_t = g(W_h x_t + b_h)
    h_t  = (1 − z_t) ∘ h_{t-1} + z_t ∘ h~_t

``W_in`` holds W_z over W_h. g is the identity, or the authors' ``g(v) = v + 1/2 for v ≥ 0, σ(v) below``, which keeps h
positive for their scan in log space. Our scan is linear and needs no logarithms: the factors lie in (0, 1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.linear_scan import linear_scan
from models.nets import Stack
from models.registry import register
from models.states import LayerState

CANDIDATES = ("linear", "positive")


class MinGRUCell(Cell):
    """Options, with the reason for each default:

    candidate: "positive", the g of the authors' experiments; "linear" is the form of their main text.
    chrono: 0, b_z starts at 0; a number of steps from 3 up spreads the memories over it, b_z = −log U(1, chrono − 1),
        as Tallec and Ollivier 2018 do for other gates.
    W_in_init: "glorot", as our GRU.
    """

    decayed = ("W_in",)

    def __init__(self, slot: Slot, *, candidate: str = "positive", chrono: int = 0, W_in_init: str = "glorot") -> None:
        N = slot.hidden_size
        super().__init__(slot, projected=2 * N)
        if candidate not in CANDIDATES:
            raise ValueError(f"candidate={candidate!r} is not known; allowed are 'linear' and 'positive'.")
        self.candidate = candidate
        self.W_in = slot.matrix(2 * N, slot.input_size, W_in_init, "W_in_init")
        self.b = nn.Parameter(torch.zeros(2 * N))
        if chrono:
            with torch.no_grad():
                self.b[:N] = -slot.memories(N, chrono)

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h,) = state  # (B, N)
        k, v = u_t.chunk(2, dim=-1)  # each (B, N)
        z = torch.sigmoid(k)
        h = (1 - z) * h + z * self._g(v)
        return h, (h,)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if self.backend == "reference":
            return super().scan(u, state)
        k, v = u.chunk(2, dim=-1)  # each (T, B, N)
        z = torch.sigmoid(k)
        h = linear_scan(1 - z, z * self._g(v), state[0])
        return h, (h[-1],)

    def _g(self, v: Tensor) -> Tensor:
        return v if self.candidate == "linear" else torch.where(v >= 0, v + 0.5, torch.sigmoid(v))


@register("mingru", paper="Feng, Tung, Ahmed, Bengio, Hajimirsadeghi 2024")
class MinGRU(Stack):
    """A GRU cut down to what a linear recurrence can do."""

    cell = MinGRUCell
