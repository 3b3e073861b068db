"""The multiplicative RNN (Sutskever, Martens, Hinton 2011): the input chooses the recurrent matrix.

    (1)  f_t = (W_fx x_t) ∘ (W_fh h_{t-1})           K factors
    (2)  h_t = tanh(W_hf f_t + W_hx x_t + b)         N units

So the recurrent matrix of a step is W_hf diag(W_fx x_t) W_fh. Where W_fx x ≡ 1 this is a tanh RNN.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.nets import Stack
from models.registry import register
from models.states import LayerState


class MRNNCell(Cell):
    """Options, with the reason for each default:

    factors: None, as many as units.
    W_fx_init: "normal-1", so that on one-hot vectors the factors neither grow nor shrink a state on average.
    W_fh_init, W_hf_init: "orthogonal", as the W_rec of "rnn-tanh".
    W_hx_init: "glorot", as the W_in of "rnn-tanh".
    """

    decayed = ("W_hx",)

    def __init__(
        self,
        slot: Slot,
        *,
        factors: int | None = None,
        W_fx_init: str = "normal-1",
        W_fh_init: str = "orthogonal",
        W_hf_init: str = "orthogonal",
        W_hx_init: str = "glorot",
    ) -> None:
        N, M = slot.hidden_size, slot.input_size
        K = N if factors is None else factors
        if isinstance(K, bool) or not isinstance(K, int) or K < 1:
            raise ValueError(f"factors={factors!r} is not a positive whole number.")
        super().__init__(slot, projected=K + N)
        self.factors = K
        self.W_fx = slot.matrix(K, M, W_fx_init, "W_fx_init")
        self.W_fh = slot.matrix(K, N, W_fh_init, "W_fh_init")
        self.W_hf = slot.matrix(N, K, W_hf_init, "W_hf_init")
        self.W_hx = slot.matrix(N, M, W_hx_init, "W_hx_init")
        self.b = nn.Parameter(torch.zeros(N))

    def project(self, x: Tensor) -> Tensor:
        W = torch.cat([self.W_fx, self.W_hx])  # (K + N, M)
        b = torch.cat([self.b.new_zeros(self.factors), self.b])
        return self.affine(x, W, b)  # [W_fx x; W_hx x + b], (T, B, K + N)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h,) = state  # (B, N)
        chosen, driven = u_t.split([self.factors, self.hidden_size], dim=-1)  # (B, K), (B, N)
        f = chosen * (h @ self.W_fh.T)  # (B, K)
        h = torch.tanh(f @ self.W_hf.T + driven)
        return h, (h,)


@register("mrnn", paper="Sutskever, Martens, Hinton 2011")
class MRNN(Stack):
    """Multiplicative RNN with factored recurrent matrices."""

    cell = MRNNCell
