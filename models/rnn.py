"""Simple recurrent networks: ``h_t = act(W_in x_t + W_rec h_{t-1} + b)``.

act is tanh, relu, or the thresholded relu of Konda, Memisevic, Krueger 2015, ``TRec(a) = a if a > θ else 0``. Any of
them can be held to a steady norm by the penalty of Krueger, Memisevic 2016 (``norm_stabiliser`` below).
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.base import Cell, Slot
from models.kernels import projected_rnn_scan, rnn_scan
from models.nets import Stack
from models.registry import register
from models.states import LayerState

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}
NONLINEARITIES = (*ACTIVATIONS, "trec")


class RNNCell(Cell):
    """Options, with the reason for each default:

    nonlinearity: "tanh", "relu" or "trec", the relu with a threshold.
    theta: 1, the threshold θ of "trec", as its paper; the others have none.
    bias: True; False leaves b out, which is how "trec" was published.
    norm_stabiliser: False; True collects the penalty "norm-stabiliser" in training, see ``norm_stabiliser``.
    W_in_init: "glorot", the common choice where a cited row states none.
    W_rec_init: "orthogonal"; with relu "orthogonal-0.9" keeps an unconstrained network from exploding at once.
    """

    decayed = ("W_in",)
    scans_to_h = True

    def __init__(
        self,
        slot: Slot,
        *,
        nonlinearity: str = "tanh",
        theta: float = 1.0,
        bias: bool = True,
        norm_stabiliser: bool = False,
        W_in_init: str = "glorot",
        W_rec_init: str = "orthogonal",
    ) -> None:
        super().__init__(slot)
        if nonlinearity not in NONLINEARITIES:
            raise ValueError(f"nonlinearity={nonlinearity!r} is not known; allowed are 'tanh', 'relu' and 'trec'.")
        if not theta >= 0:
            raise ValueError(f"theta={theta!r} is not a threshold, a number from 0 up.")
        N = slot.hidden_size
        self.nonlinearity, self.theta = nonlinearity, float(theta)
        if norm_stabiliser:
            self.penalty_names = ("norm-stabiliser",)
        self.W_in = slot.matrix(N, slot.input_size, W_in_init, "W_in_init")
        self.W_rec = slot.matrix(N, N, W_rec_init, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(N)) if bias else None

    def project(self, x: Tensor) -> Tensor:
        if self.b is None:
            return self.before(F.linear(x, self.W_in))
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h,) = state  # (B, N)
        a = u_t + h @ self.W_rec.T
        h = F.threshold(a, self.theta, 0.0) if self.nonlinearity == "trec" else ACTIVATIONS[self.nonlinearity](a)
        return h, (h,)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if self.activation is None:
            return super().scan(u, state)
        h, h_last = rnn_scan(u, self.W_rec, state[0], self.activation, backend=self.backend)
        return h, (h_last,)

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if self.activation is None or self.b is None or not self.projects_inside:
            return super().run(x, state)
        h, h_last = projected_rnn_scan(
            x, self.W_in, self.b, self.W_rec, state[0], self.activation, backend=self.backend
        )
        return h, (h_last,)

    @property
    def activation(self) -> str | None:
        """What the kernels call the nonlinearity; None for a threshold, which they do not know."""
        if self.nonlinearity == "trec":
            return None if self.theta > 0 else "relu"
        return self.nonlinearity

    def finish(self, y: Tensor) -> Tensor:
        if self.training and self.penalty_names:
            self.collect("norm-stabiliser", norm_stabiliser(y))
        return super().finish(y)


def norm_stabiliser(h: Tensor) -> Tensor:
    """``1/T Σ_{t=2}^T (‖h_t‖ − ‖h_{t-1}‖)²``, averaged over samples: (T, B, N) -> scalar.

    The pair of the initial and the first state is left out: it would hold the first state to the norm 0.
    """
    norms = torch.linalg.vector_norm(h, dim=-1)  # (T, B)
    return norms.diff(dim=0).square().sum(0).mean() / len(h)


class IRNNCell(RNNCell):
    """Options, with the reason for each default:

    W_in_init: "normal-0.001", as the paper.
    W_rec_init: "identity", as the paper.
    """

    def __init__(self, slot: Slot, *, W_in_init: str = "normal-0.001", W_rec_init: str = "identity") -> None:
        super().__init__(slot, nonlinearity="relu", W_in_init=W_in_init, W_rec_init=W_rec_init)


@register("rnn-tanh", paper="Elman 1990", fixed=["nonlinearity", "theta"], nonlinearity="tanh")
@register(
    "rnn-relu",
    paper="Elman 1990",
    fixed=["nonlinearity", "theta"],
    nonlinearity="relu",
    W_rec_init="orthogonal-0.9",
)
@register(
    "rnn-trec",
    paper="Krueger, Memisevic 2016",
    fixed=["nonlinearity"],
    nonlinearity="trec",
    bias=False,
    norm_stabiliser=True,
    W_in_init="normal-1",
    W_rec_init="identity",
)
class RNN(Stack):
    """Elman network with one bias."""

    cell: ClassVar[type[Cell]] = RNNCell


@register("irnn", paper="Le, Jaitly, Hinton 2015")
class IRNN(RNN):
    """A relu RNN whose W_rec starts as the identity and W_in as N(0, 0.001²)."""

    cell = IRNNCell
