"""Simple recurrent networks: ``h_t = act(W_in x_t + W_rec h_{t-1} + b)``."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from models.base import RecurrentLayer, RecurrentNet, SharedOptions
from models.kernels import rnn_scan
from models.registry import register


class RNNLayer(RecurrentLayer):
    def __init__(self, input_size: int, hidden_size: int, net: RNN, generator: Generator | None) -> None:
        super().__init__(input_size, hidden_size, net)
        self.nonlinearity = net.nonlinearity
        self.W_in = self.matrix(hidden_size, input_size, net.W_in_init, generator, "W_in_init")
        self.W_rec = self.matrix(hidden_size, hidden_size, net.W_rec_init, generator, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, x: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        h = rnn_scan(self.project(x, self.W_in, self.b), self.W_rec, state[0], self.nonlinearity, backend=self.backend)
        return self.finish(h), (h[-1],)


@register("rnn-tanh", nonlinearity="tanh")
@register("rnn-relu", nonlinearity="relu", W_rec_init="orthogonal-0.9")
class RNN(RecurrentNet):
    """Elman network with one bias.

    nonlinearity: "tanh" or "relu".
    W_in_init: "glorot", the common choice where a cited row states none.
    W_rec_init: "orthogonal"; with relu "orthogonal-0.9", which keeps an unconstrained network from exploding at once.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "tanh",
        W_in_init: str = "glorot",
        W_rec_init: str = "orthogonal",
        **shared: Unpack[SharedOptions],
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity={nonlinearity!r} is not known; allowed are 'tanh' and 'relu'.")
        self.nonlinearity, self.W_in_init, self.W_rec_init = nonlinearity, W_in_init, W_rec_init
        super().__init__(input_size, hidden_size, num_layers, **shared)

    def make_layer(self, input_size: int, index: int, generator: Generator | None) -> RNNLayer:
        return RNNLayer(input_size, self.hidden_size, self, generator)


@register("irnn")
class IRNN(RNN):
    """Le, Jaitly, Hinton 2015: a relu RNN whose W_rec starts as the identity and W_in as N(0, 0.001²)."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, **shared: Unpack[SharedOptions]) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            nonlinearity="relu",
            W_in_init="normal-0.001",
            W_rec_init="identity",
            **shared,
        )
