"""ST-LSTM with trust gates (Liu, Shahroudy, Xu, Wang 2016): an LSTM that walks over the joints of a skeleton.

A sequence is a walk: ``visits`` joints of the first frame, the same ones of the second, and so on. Each visit follows
two others, S in space and T in time: the visit before it, which is the last one of the frame before where a frame
begins, and the visit of the same joint one frame before.

    [o i f_S f_T] = σ(W_in x + W_S h_S + W_T h_T + b),  u = tanh(…) likewise
    p = tanh(M_S h_S + M_T h_T + b_p)                                what the two before lead one to expect
    τ = exp(−λ (u − p)²)                                             the trust in what is seen
    c = τ ∘ i ∘ u + (1 − τ) ∘ (f_S ∘ c_S + f_T ∘ c_T),  h = o ∘ tanh(c)

The walk is serial, as in the released code; what h_T adds is known a whole frame ahead and is one product per frame.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from models.base import Cell, Slot
from models.nets import Stack
from models.registry import register
from models.states import LayerState
from models.walk_scan import walk_scan


class STLSTMCell(Cell):
    """Gates in the order o, i, f_S, f_T, u, and in W_S and W_T then p; W_in, W_S and W_T have a bias each.

    Options, with the reason for each default:

    visits: 31, the visits of a frame in the released code's walk over 16 joints.
    trust_gate: True, as the row of the table; False leaves out p, and τ ∘ and (1 − τ) ∘ with it.
    spread: 0.5, λ, as the release.
    W_in_init, W_rec_init: "uniform-0.08", as the release; its biases are drawn alike.
    forget_bias: 1, for f_S and f_T, in the bias of W_in, as the release.

    ``state``: h and c of the last visit, and in h_row and c_row those of the ``visits`` − 1 before it, oldest first.
    """

    decayed = ("W_in",)

    def __init__(
        self,
        slot: Slot,
        *,
        visits: int = 31,
        trust_gate: bool = True,
        spread: float = 0.5,
        W_in_init: str = "uniform-0.08",
        W_rec_init: str = "uniform-0.08",
        forget_bias: float = 1.0,
    ) -> None:
        N = slot.hidden_size
        if isinstance(visits, bool) or not isinstance(visits, int) or visits < 2:
            raise ValueError(f"visits={visits!r} is not a number of visits in a frame, from 2 up.")
        if not spread >= 0:
            raise ValueError(f"spread={spread!r} is not a number from 0 up.")
        row = (visits - 1) * N
        super().__init__(slot, states={"h": N, "c": N, "h_row": row, "c_row": row}, projected=5 * N)
        self.visits, self.trust_gate, self.spread = visits, trust_gate, spread
        rows = 6 * N if trust_gate else 5 * N
        self.W_in = slot.matrix(5 * N, slot.input_size, W_in_init, "W_in_init")
        self.W_S = slot.matrix(rows, N, W_rec_init, "W_rec_init")
        self.W_T = slot.matrix(rows, N, W_rec_init, "W_rec_init")
        self.b = slot.uniform(5 * N, -0.08, 0.08)
        self.b_S = slot.uniform(rows, -0.08, 0.08)
        self.b_T = slot.uniform(rows, -0.08, 0.08)
        with torch.no_grad():
            self.b[2 * N : 4 * N] = forget_bias

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        N = self.hidden_size
        h_S, c_S, h_row, c_row = state
        h_seen, c_seen = torch.cat([h_row, h_S], 1), torch.cat([c_row, c_S], 1)  # (B, visits · N), oldest first
        h_T, c_T = h_seen[:, :N], c_seen[:, :N]  # (B, N)
        r = F.linear(h_S, self.W_S, self.b_S) + F.linear(h_T, self.W_T, self.b_T)  # (B, 6N), or (B, 5N)
        o, i, f_S, f_T, u = (u_t + r[:, : 5 * N]).chunk(5, dim=-1)  # each (B, N)
        u = torch.tanh(u)
        new, kept = torch.sigmoid(i) * u, torch.sigmoid(f_S) * c_S + torch.sigmoid(f_T) * c_T
        if self.trust_gate:
            trust = torch.exp(-self.spread * (u - torch.tanh(r[:, 5 * N :])) ** 2)
            c = trust * new + (1 - trust) * kept
        else:
            c = new + kept
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c, h_seen[:, N:], c_seen[:, N:])

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if not self.trust_gate or u.shape[0] == 0 or self.backend == "reference" or u.is_meta:
            return super().scan(u, state)
        return self._by_frames(u, state)

    def _by_frames(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """As ``step`` after ``step``, with one product for all that comes from the frame before."""
        B, N, V = u.shape[1], self.hidden_size, self.visits
        u = F.pad(u, (0, N))  # p sees no input
        h, c, *rows = (s.to(u.dtype) for s in state)
        # what was seen in the last V visits, (V, B, N), oldest first
        H, C = (
            torch.cat([row.view(B, V - 1, N).transpose(0, 1), s[None]]) for row, s in zip(rows, (h, c), strict=True)
        )
        outputs = []
        for u_row in u.split(V):  # the visits of one frame; fewer at the end of a sequence that breaks off
            n = len(u_row)
            s = u_row + F.linear(H[:n], self.W_T, self.b_T + self.b_S)  # (n, B, 6N)
            hs, cs = walk_scan(s, self.W_S, h, c, C[:n], self.spread)
            h, c = hs[-1], cs[-1]
            H, C = torch.cat([H[n:], hs]), torch.cat([C[n:], cs])
            outputs.append(hs)
        rows = [seen[:-1].transpose(0, 1).reshape(B, -1) for seen in (H, C)]
        return torch.cat(outputs), (h, c, *rows)

    @torch.no_grad()
    def trust(self, x: Tensor, state: LayerState | None = None) -> Tensor:
        """Mean of τ over the units at each visit, (T, B), for figures and tests; needs the trust gate."""
        found, N = [], self.hidden_size
        state = self.initial(x.shape[1], x) if state is None else state
        for u_t in self.project(x):
            r = F.linear(state[0], self.W_S, self.b_S)
            r = r + F.linear(torch.cat([state[2], state[0]], 1)[:, :N], self.W_T, self.b_T)
            expected, seen = torch.tanh(r[:, 5 * N :]), torch.tanh(u_t[:, 4 * N :] + r[:, 4 * N : 5 * N])
            found.append(torch.exp(-self.spread * (seen - expected) ** 2).mean(1))
            _, state = self.step(u_t, state)
        return torch.stack(found)


@register("st-lstm", paper="Liu, Shahroudy, Xu, Wang 2016")
class STLSTM(Stack):
    """LSTM over a walk through joints and time, with trust gates; ``state = (h, c, h_row, c_row)``."""

    cell = STLSTMCell
