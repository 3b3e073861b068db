"""Simple recurrent networks: ``h_t = act(W_in x_t + W_rec h_{t-1} + b)``."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.kernels import rnn_scan
from models.nets import Stack
from models.registry import register
from models.states import LayerState

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


class RNNCell(Cell):
    """Options, with the reason for each default:

    nonlinearity: "tanh" or "relu".
    W_in_init: "glorot", the common choice where a cited row states none.
    W_rec_init: "orthogonal"; with relu "orthogonal-0.9" keeps an unconstrained network from exploding at once.
    """

    decayed = ("W_in",)

    def __init__(
        self,
        slot: Slot,
        *,
        nonlinearity: str = "tanh",
        W_in_init: str = "glorot",
        W_rec_init: str = "orthogonal",
    ) -> None:
        super().__init__(slot)
        if nonlinearity not in ACTIVATIONS:
            raise ValueError(f"nonlinearity={nonlinearity!r} is not known; allowed are 'tanh' and 'relu'.")
        N = slot.hidden_size
        self.nonlinearity = nonlinearity
        self.W_in = slot.matrix(N, slot.input_size, W_in_init, "W_in_init")
        self.W_rec = slot.matrix(N, N, W_rec_init, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(N))

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h,) = state  # (B, N)
        h = ACTIVATIONS[self.nonlinearity](u_t + h @ self.W_rec.T)
        return h, (h,)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h = rnn_scan(u, self.W_rec, state[0], self.nonlinearity, backend=self.backend)
        return h, (h[-1],)


class IRNNCell(RNNCell):
    """Options, with the reason for each default:

    W_in_init: "normal-0.001", as the paper.
    W_rec_init: "identity", as the paper.
    """

    def __init__(self, slot: Slot, *, W_in_init: str = "normal-0.001", W_rec_init: str = "identity") -> None:
        super().__init__(slot, nonlinearity="relu", W_in_init=W_in_init, W_rec_init=W_rec_init)


@register("rnn-tanh", paper="Elman 1990", fixed=["nonlinearity"], nonlinearity="tanh")
@register("rnn-relu", paper="Elman 1990", fixed=["nonlinearity"], nonlinearity="relu", W_rec_init="orthogonal-0.9")
class RNN(Stack):
    """Elman network with one bias."""

    cell: ClassVar[type[Cell]] = RNNCell


@register("irnn", paper="Le, Jaitly, Hinton 2015")
class IRNN(RNN):
    """A relu RNN whose W_rec starts as the identity and W_in as N(0, 0.001²)."""

    cell = IRNNCell
