"""Layers without recurrence: ``y_t = relu(W_in x_t + b)``, for what is compared with recurrent models and is none."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.nets import Stack
from models.registry import register
from models.states import LayerState


class FeedForwardCell(Cell):
    """Each step by itself. The state, the last output, is there for the interface and is never read.

    W_in_init: "kaiming", the usual one before a ReLU.
    """

    decayed = ("W_in",)
    noisy = ()
    unlearned = ("h",)

    def __init__(self, slot: Slot, *, W_in_init: str = "kaiming") -> None:
        super().__init__(slot)
        self.W_in = slot.matrix(slot.hidden_size, slot.input_size, W_in_init, "W_in_init")
        self.b = nn.Parameter(torch.zeros(slot.hidden_size))

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h = torch.relu(u_t)  # (B, N)
        return h, (h,)


@register("feed-forward", paper="Baradel, Wolf, Mille 2017: the dense layer of its pose stream")
class FeedForward(Stack):
    """Dense layers that look at one step at a time; not a recurrent model."""

    cell = FeedForwardCell
