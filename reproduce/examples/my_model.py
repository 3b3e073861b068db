"""A model of one's own: a leaky integrator. Nothing in this repository imports it; ``my_row.toml`` names it."""

import torch
from torch import Tensor, nn

import models
from models.base import Cell, Slot
from models.nets import Stack
from models.states import LayerState


class LeakyCell(Cell):
    """``h_t = (1 − α) h_{t-1} + α relu(W_in x_t + b)``, with ``leak`` for α."""

    decayed = ("W_in",)

    def __init__(self, slot: Slot, *, leak: float = 0.1) -> None:
        super().__init__(slot)
        self.leak = leak
        self.W_in = slot.matrix(slot.hidden_size, slot.input_size, "glorot")
        self.b = nn.Parameter(torch.zeros(slot.hidden_size))

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h,) = state
        h = (1 - self.leak) * h + self.leak * torch.relu(u_t)  # (B, N)
        return h, (h,)


@models.register("my-leaky")
class Leaky(Stack):
    cell = LeakyCell
