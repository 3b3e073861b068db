"""GRU with gates in torch's order r, z, n."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from models.base import RecurrentLayer, RecurrentNet, SharedOptions
from models.kernels import gru_scan
from models.registry import register


class GRULayer(RecurrentLayer):
    def __init__(self, input_size: int, hidden_size: int, net: GRU, generator: Generator | None) -> None:
        super().__init__(input_size, hidden_size, net)
        self.W_in = self.matrix(3 * hidden_size, input_size, net.W_in_init, generator, "W_in_init")
        self.W_rec = self.matrix(3 * hidden_size, hidden_size, net.W_rec_init, generator, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(3 * hidden_size))
        self.b_new = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, x: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        u = self.project(x, self.W_in, self.b)
        h = gru_scan(u, self.W_rec, self.b_new, state[0], backend=self.backend)
        return self.finish(h), (h[-1],)


@register("gru")
class GRU(RecurrentNet):
    """Cho et al. 2014 in torch's form, the reset gate acting after the recurrent product."""

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        W_in_init: str = "glorot",
        W_rec_init: str = "orthogonal",
        **shared: Unpack[SharedOptions],
    ) -> None:
        self.W_in_init, self.W_rec_init = W_in_init, W_rec_init
        super().__init__(input_size, hidden_size, num_layers, **shared)

    def make_layer(self, input_size: int, index: int, generator: Generator | None) -> GRULayer:
        return GRULayer(input_size, self.hidden_size, self, generator)
