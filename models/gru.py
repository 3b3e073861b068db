"""GRU with gates in torch's order r, z, n."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.kernels import gru_scan
from models.nets import Stack
from models.registry import register
from models.states import LayerState


class GRUCell(Cell):
    """``[r z] = σ(W_in x_t + W_rec h_{t-1} + b)``, ``n = tanh(W_in x_t + b + r (W_rec h_{t-1} + b_new))``,
    ``h_t = (1 − z) n + z h_{t-1}``, with the rows of W_in, W_rec and b that belong to each gate.

    Options, with the reason for each default:

    chrono: 0; a number of steps from 3 up spreads the memories over it, b_z = log U(1, chrono − 1) (Tallec and Ollivier
        2018).
    W_in_init, W_rec_init: "glorot" and "orthogonal" per gate, as our LSTM.
    """

    decayed = ("W_in",)
    scans_to_h = True

    def __init__(
        self, slot: Slot, *, chrono: int = 0, W_in_init: str = "glorot", W_rec_init: str = "orthogonal"
    ) -> None:
        N = slot.hidden_size
        super().__init__(slot, projected=3 * N)
        self.W_in = slot.matrix(3 * N, slot.input_size, W_in_init, "W_in_init")
        self.W_rec = slot.matrix(3 * N, N, W_rec_init, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(3 * N))
        if chrono:
            with torch.no_grad():
                self.b[N : 2 * N] = slot.memories(N, chrono)
        self.b_new = nn.Parameter(torch.zeros(N))

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h,) = state  # (B, N)
        u_r, u_z, u_n = u_t.chunk(3, dim=-1)  # each (B, N)
        v_r, v_z, v_n = (h @ self.W_rec.T).chunk(3, dim=-1)
        r, z = torch.sigmoid(u_r + v_r), torch.sigmoid(u_z + v_z)
        n = torch.tanh(u_n + r * (v_n + self.b_new))
        h = (1 - z) * n + z * h
        return h, (h,)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, h_last = gru_scan(u, self.W_rec, self.b_new, state[0], backend=self.backend)
        return h, (h_last,)


@register("gru", paper="Cho et al. 2014")
class GRU(Stack):
    """Gated recurrent units in torch's form, the reset gate acting after the recurrent product."""

    cell = GRUCell
