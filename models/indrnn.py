"""IndRNN (Li et al. 2018): ``h_t = relu(W_in x_t + U ∘ h_{t-1} + b)``."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from models.base import RecurrentLayer, RecurrentNet, SharedOptions
from models.constraints import per_layer, recurrent_interval
from models.kernels import indrnn_scan
from models.registry import register


class IndRNNLayer(RecurrentLayer):
    def __init__(self, input_size: int, hidden_size: int, net: IndRNN, index: int, generator: Generator | None) -> None:
        super().__init__(input_size, hidden_size, net)
        assert net.length is not None
        low, high = recurrent_interval(net.length, net.epsilon, net.gamma)
        self.u_max = per_layer(net.u_max, high, index, net.num_layers)
        start = min(low, self.u_max) if index == net.num_layers - 1 else 0.0
        self.W_in = self.matrix(hidden_size, input_size, net.W_in_init, generator, "W_in_init")
        self.U = nn.Parameter(torch.empty(hidden_size).uniform_(start, self.u_max, generator=generator))
        self.b = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, x: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        h = indrnn_scan(self.project(x, self.W_in, self.b), self.U, state[0], backend=self.backend)
        return self.finish(h), (h[-1],)

    @torch.no_grad()
    def constrain_(self) -> None:
        self.U.clamp_(-self.u_max, self.u_max)


@register("indrnn")
class IndRNN(RecurrentNet):
    """Independently recurrent network; ``constrain_`` keeps ``|U| <= γ^(1/L)``.

    gamma: 2, the CVPR paper's value (its later releases use 5).
    epsilon: 0.5; the last layer's U starts in [ε^(1/L), γ^(1/L)], all others in [0, γ^(1/L)], as the authors' code.
    u_max: replaces the upper bound γ^(1/L), one number or one per layer; 1 where state is carried between segments.
    W_in_init: "kaiming-8", as the authors' PyTorch release; "normal-0.001" is their choice for adding.
    """

    needs_length = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        gamma: float = 2.0,
        epsilon: float = 0.5,
        u_max: float | list[float] | None = None,
        W_in_init: str = "kaiming-8",
        **shared: Unpack[SharedOptions],
    ) -> None:
        self.gamma, self.epsilon, self.u_max, self.W_in_init = gamma, epsilon, u_max, W_in_init
        super().__init__(input_size, hidden_size, num_layers, **shared)

    def make_layer(self, input_size: int, index: int, generator: Generator | None) -> IndRNNLayer:
        return IndRNNLayer(input_size, self.hidden_size, self, index, generator)
