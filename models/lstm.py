"""LSTM with gates in torch's order i, f, g, o and one bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.kernels import lstm_scan
from models.nets import Stack
from models.registry import register
from models.states import LayerState


class LSTMCell(Cell):
    """``[i f g o] = W_in x_t + W_rec h_{t-1} + b``, ``c_t = σ(f) c_{t-1} + σ(i) tanh(g)``, ``h_t = σ(o) tanh(c_t)``.

    Options, with the reason for each default:

    W_in_init: "glorot", as the LSTM behind Table I (Arjovsky et al. 2016).
    W_rec_init: "orthogonal" per gate, as Cooijmans et al. 2017.
    forget_bias: 1, without which 784 steps are not learned.
    """

    decayed = ("W_in",)

    def __init__(
        self,
        slot: Slot,
        *,
        W_in_init: str = "glorot",
        W_rec_init: str = "orthogonal",
        forget_bias: float = 1.0,
    ) -> None:
        N = slot.hidden_size
        super().__init__(slot, states={"h": N, "c": N}, projected=4 * N)
        self.W_in = slot.matrix(4 * N, slot.input_size, W_in_init, "W_in_init")
        self.W_rec = slot.matrix(4 * N, N, W_rec_init, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(4 * N))
        with torch.no_grad():
            self.b[N : 2 * N] = forget_bias

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, c = state  # each (B, N)
        i, f, g, o = (u_t + h @ self.W_rec.T).chunk(4, dim=-1)  # each (B, N)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h0, c0 = state
        h, c_last = lstm_scan(u, self.W_rec, h0, c0, backend=self.backend)
        return h, (h[-1], c_last)


@register("lstm", paper="Hochreiter, Schmidhuber 1997")
class LSTM(Stack):
    """LSTM with a forget gate; ``state = (h, c)``."""

    cell = LSTMCell
