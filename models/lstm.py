"""LSTM with gates in torch's order i, f, g, o and one bias."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from models.base import RecurrentLayer, RecurrentNet, SharedOptions
from models.kernels import lstm_scan
from models.registry import register


class LSTMLayer(RecurrentLayer):
    states = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int, net: LSTM, generator: Generator | None) -> None:
        super().__init__(input_size, hidden_size, net)
        self.W_in = self.matrix(4 * hidden_size, input_size, net.W_in_init, generator, "W_in_init")
        self.W_rec = self.matrix(4 * hidden_size, hidden_size, net.W_rec_init, generator, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(4 * hidden_size))
        with torch.no_grad():
            self.b[hidden_size : 2 * hidden_size] = net.forget_bias

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c_last = lstm_scan(self.project(x, self.W_in, self.b), self.W_rec, *state, backend=self.backend)
        return self.finish(h), (h[-1], c_last)


@register("lstm")
class LSTM(RecurrentNet):
    """Hochreiter and Schmidhuber 1997, with a forget gate; ``state = (h, c)``.

    W_in_init: "glorot", as the LSTM behind Table I (Arjovsky et al. 2016).
    W_rec_init: "orthogonal" per gate, as Cooijmans et al. 2017.
    forget_bias: 1, without which 784 steps are not learned.
    """

    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        W_in_init: str = "glorot",
        W_rec_init: str = "orthogonal",
        forget_bias: float = 1.0,
        **shared: Unpack[SharedOptions],
    ) -> None:
        self.W_in_init, self.W_rec_init, self.forget_bias = W_in_init, W_rec_init, forget_bias
        super().__init__(input_size, hidden_size, num_layers, **shared)

    def make_layer(self, input_size: int, index: int, generator: Generator | None) -> LSTMLayer:
        return LSTMLayer(input_size, self.hidden_size, self, generator)
