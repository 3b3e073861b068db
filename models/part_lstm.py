"""Part-aware LSTM: a memory for each part of the body, and one output gate for all of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.kernels import lstm_scan
from models.nets import Stack
from models.registry import SKELETON_SIZE, register
from models.states import LayerState

PARTS = {
    "torso": (0, 1, 2, 3, 20),
    "left arm": (4, 5, 6, 7, 21, 22),
    "right arm": (8, 9, 10, 11, 23, 24),
    "left leg": (12, 13, 14, 15),
    "right leg": (16, 17, 18, 19),
}
"""The joints of a Kinect skeleton, from 0, by part; each belongs to one."""


def part_of_column(slot: Slot) -> list[int]:
    """To which part each of the ``input_size`` values that a layer reads belongs.

    A part reads its joints of both bodies; in the layers above, the units of the same part below.
    """
    if slot.index > 0:
        units = slot.input_size // len(PARTS)
        return [column // units for column in range(slot.input_size)]
    if slot.input_size != SKELETON_SIZE:
        raise ValueError(
            f"PartLSTM reads the 25 joints of two bodies, input_size={SKELETON_SIZE}, and got {slot.input_size}."
        )
    of_joint = {joint: number for number, joints in enumerate(PARTS.values()) for joint in joints}
    return [of_joint[joint] for _ in range(2) for joint in sorted(of_joint) for _ in range(3)]  # bodies, x y z


class PartLSTMCell(Cell):
    """For each part p: ``[i^p f^p g^p] = W_in^p x^p_t + W_rec^p h_{t-1} + b^p``,
    ``c^p_t = σ(f^p) c^p_{t-1} + σ(i^p) tanh(g^p)``; then ``o = W_o x_t + W_rec^o h_{t-1} + b^o``,
    ``h_t = σ(o) ∘ tanh([c^1_t … c^5_t])`` (Shahroudy et al. 2016).

    ``hidden_size`` is the number of units of each part. The gates of all parts side by side are those of an LSTM
    whose input weights are 0 wherever a part would read another one, and so this runs as one.

    Options, with the reason for each default:

    W_in_init, W_rec_init, forget_bias: "glorot" for each part, "orthogonal" and 1, as our LSTM; the paper states none.
    """

    decayed = ("W_in", "W_o")
    scans_to_h = True
    belongs: Tensor

    def __init__(
        self, slot: Slot, *, W_in_init: str = "glorot", W_rec_init: str = "orthogonal", forget_bias: float = 1.0
    ) -> None:
        n, parts, M = slot.hidden_size, len(PARTS), slot.input_size
        N = parts * n
        super().__init__(slot, states={"h": N, "c": N}, size=N, projected=4 * N)
        part = part_of_column(slot)
        W_in = torch.empty(3 * n, M)
        for p in range(parts):
            W_in[:, [m for m in range(M) if part[m] == p]] = slot.matrix(
                3 * n, part.count(p), W_in_init, "W_in_init"
            ).data
        self.W_in = nn.Parameter(W_in)  # column m goes to i, f and g of the part of m
        self.W_o = slot.matrix(N, M, W_in_init, "W_in_init")
        self.W_rec = slot.matrix(4 * N, N, W_rec_init, "W_rec_init")  # rows i f g o, in each the parts side by side
        self.b = nn.Parameter(torch.zeros(4 * N))
        with torch.no_grad():
            self.b[N : 2 * N] = forget_bias
        belongs = torch.tensor([[float(q == p) for q in part] for p in range(parts)])  # (parts, M)
        self.register_buffer("belongs", belongs, persistent=False)

    def input_weights(self) -> Tensor:
        """W_in and W_o as those of one LSTM, (4N, M)."""
        n, M = self.hidden_size, self.input_size
        gates = self.W_in.view(3, 1, n, M) * self.belongs.view(1, -1, 1, M)  # (3, parts, n, M)
        return torch.cat([gates.reshape(-1, M), self.W_o])

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.input_weights(), self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, c = state  # each (B, N), the parts side by side
        i, f, g, o = (u_t + h @ self.W_rec.T).chunk(4, dim=-1)  # each (B, N)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h0, c0 = state
        h, h_last, c_last = lstm_scan(u, self.W_rec, h0, c0, backend=self.backend)
        return h, (h_last, c_last)


@register("part-lstm", needs=["skeleton"], paper="Shahroudy, Liu, Ng, Wang 2016")
class PartLSTM(Stack):
    """Part-aware LSTM (P-LSTM); ``state = (h, c)``, y has the units of five parts."""

    cell = PartLSTMCell
    parts = len(PARTS)
