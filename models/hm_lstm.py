"""Hierarchical Multiscale LSTM (Chung, Ahn, Bengio 2017) with layer normalisation.

Each layer l but the top one decides at every step whether a segment of its input has ended, z^l_t = 1:

    s = U h^l_{t-1} + z^l_{t-1} U_above h^{l+1}_{t-1} + z^{l-1}_t W_in h^{l-1}_t + b          (z^0 = 1, h^0 = x)
    [i f g o] = LN of each gate by itself, before b;  z~ = clip((a s_z + 1)/2, 0, 1);  z^l_t = 1 where z~ > 1/2

    UPDATE (z^l_{t-1} = 0, z^{l-1}_t = 1):  c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g)
    COPY   (z^l_{t-1} = 0, z^{l-1}_t = 0):  c_t = c_{t-1},  h_t = h_{t-1}
    FLUSH  (z^l_{t-1} = 1):                 c_t = σ(i) ∘ tanh(g)
    h_t = σ(o) ∘ tanh(LN(c_t)) where it is not copied

    y_t = relu(Σ_l g^l W_e^l h^l_t),  g^l = σ(w^l · [h^1_t; …; h^L_t])

The gradient goes through the step function as if it were z~ (straight through). Its slope a grows with the epochs and
changes gradients alone: z~ > 1/2 is s_z > 0 whatever a is. z is part of the state; the top layer's stays 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models.base import Cell, Slot
from models.nets import Lockstep
from models.norms import BlockNorm
from models.registry import register
from models.states import LayerState, State


class HMLSTMCell(Cell):
    """Options, with the reason for each default:

    joined_size: 0, which takes the width of the top layer, as in the paper; the width of y.
    layer_norm: True, as the row of the tables.
    slope_growth, slope_max: 0.04 per epoch up to 5, from 1, the paper's annealing; 0 growth turns it off.
    W_in_init, U_init, W_e_init: "glorot", "orthogonal" per gate, "glorot", as our LSTM; the paper states none.
    forget_bias: 1, as our LSTM.
    """

    decayed = ("W_in",)
    unlearned = ("z",)

    def __init__(
        self,
        slot: Slot,
        *,
        joined_size: int = 0,
        layer_norm: bool = True,
        slope_growth: float = 0.04,
        slope_max: float = 5.0,
        W_in_init: str = "glorot",
        U_init: str = "orthogonal",
        W_e_init: str = "glorot",
        forget_bias: float = 1.0,
    ) -> None:
        N = slot.hidden_size
        if isinstance(joined_size, bool) or not isinstance(joined_size, int) or joined_size < 0:
            raise ValueError(f"joined_size={joined_size!r} is not a whole number from 0 up.")
        if not slope_growth >= 0 or not slope_max >= 1:
            raise ValueError(f"slope_growth={slope_growth!r} and slope_max={slope_max!r} must be from 0 and from 1 up.")
        super().__init__(slot, states={"h": N, "c": N, "z": 1})
        self.slope, self.slope_growth, self.slope_max = 1.0, slope_growth, slope_max
        rows = 4 * N if slot.above is None else 4 * N + 1  # the last one is the boundary's
        self.W_in = slot.matrix(rows, slot.input_size, W_in_init, "W_in_init")
        self.U = slot.matrix(rows, N, U_init, "U_init")
        if slot.above is not None:
            self.U_above = slot.matrix(rows, slot.above, U_init, "U_init")
        self.b = nn.Parameter(torch.zeros(rows))
        with torch.no_grad():
            self.b[N : 2 * N] = forget_bias
        self.norm_gates: nn.Module = BlockNorm(4, N, bias=False) if layer_norm else nn.Identity()
        self.norm_c: nn.Module = BlockNorm(1, N) if layer_norm else nn.Identity()
        self.w = slot.matrix(slot.count, N, W_e_init, "W_e_init")  # this layer's columns of all w^l
        self.W_e = slot.matrix(joined_size or N, N, W_e_init, "W_e_init")

    def on_epoch(self, epoch: int) -> None:
        self.slope = min(self.slope_max, 1 + self.slope_growth * epoch)

    def project(self, x: Tensor) -> Tensor:
        return x @ self.W_in.T  # (T, B, M) -> (T, B, rows); b comes later, for z multiplies this

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        return self.step_among(u_t, state, None, None)

    def step_among(
        self, u_t: Tensor, state: LayerState, below: LayerState | None, above: LayerState | None
    ) -> tuple[Tensor, LayerState]:
        h, c, z = state  # (B, N), (B, N), (B, 1)
        z_below = z.new_ones(()) if below is None else below[2]  # (B, 1)
        s = h @ self.U.T + z_below * u_t  # (B, rows)
        if above is not None:
            s = s + z * (above[0] @ self.U_above.T)
        split = [4 * self.hidden_size, s.shape[1] - 4 * self.hidden_size]
        (s, s_z), (b, b_z) = s.split(split, dim=-1), self.b.split(split)  # (B, 4N), (B, 1), or (B, 0) at the top
        i, f, g, o = (self.norm_gates(s) + b).chunk(4, dim=-1)  # each (B, N)
        new = torch.sigmoid(i) * torch.tanh(g)
        flush, update = z, (1 - z) * z_below
        copy = (1 - z) * (1 - z_below)  # one of the three is 1, (B, 1)
        c = (flush + update) * new + (update * torch.sigmoid(f) + copy) * c
        h = copy * h + (flush + update) * (torch.sigmoid(o) * torch.tanh(self.norm_c(c)))
        return h, (h, c, self.boundary(s_z + b_z) if len(b_z) else z)

    def boundary(self, s_z: Tensor) -> Tensor:
        """z from its pre-activation, both (B, 1)."""
        return _Step.apply(((self.slope * s_z + 1) / 2).clamp(0, 1))


class _Step(torch.autograd.Function):
    """1 where z~ > 1/2, else 0, with the gradient of z~."""

    @staticmethod
    def forward(ctx: Any, soft: Tensor) -> Tensor:
        return (soft > 0.5).to(soft.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


@register("hm-lstm", paper="Chung, Ahn, Bengio 2017")
class HMLSTM(Lockstep):
    """LSTM layers that find their own boundaries; ``state = (h, c, z)``, y joins all layers and is no state."""

    cell = HMLSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *,
        joined_size: int = 0,
        **options: Any,
    ) -> None:
        top = hidden_size[-1] if isinstance(hidden_size, tuple | list) and hidden_size else hidden_size
        super().__init__(input_size, hidden_size, num_layers, joined_size=joined_size or top, **options)

    @property
    def size(self) -> int:
        return len(self.cells[-1].W_e)  # type: ignore[arg-type]

    def gather(self, ys: list[Tensor]) -> Tensor:
        cells: list[Any] = self.cells
        gates = torch.sigmoid(sum(h @ cell.w.T for h, cell in zip(ys, cells, strict=True)))  # (T, B, layers)
        parts = zip(gates.split(1, dim=-1), ys, cells, strict=True)
        return torch.relu(sum(g * (h @ cell.W_e.T) for g, h, cell in parts))  # (T, B, joined_size)

    def traces(self, x: Tensor, state: State | None = None) -> list[dict[str, Tensor]]:
        x = self._time_major(x)
        ys, _ = self.run_all(x, self._first(state, x))
        return [*({"output": y} for y in ys[:-1]), {"h": ys[-1], "output": self.gather(ys)}]

    def boundaries(self, x: Tensor, state: State | None = None) -> Tensor:
        """z of all layers but the top one, (layers − 1, T, B), over a time-major x."""
        x, found = self._time_major(x), []
        states = self._first(state, x)
        for x_t in x.split(1):
            _, states = self.run_all(x_t, states)
            found.append(torch.stack([z[:, 0] for _, _, z in states[:-1]]))  # (layers − 1, B)
        return torch.stack(found, dim=1)
