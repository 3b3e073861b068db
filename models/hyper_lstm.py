"""HyperLSTM (Ha, Dai, Le 2017) with layer normalisation: a small LSTM scales the gates of a large one at every step.

    ^h_t = LSTM([x_t; h_{t-1}], ^h_{t-1})                     (the hyper cell, H units, normalised like the large one)
    z_h = W_zh ^h_t + b_zh,  z_x = W_zx ^h_t + b_zx,  z_b = W_zb ^h_t                        (N_z numbers per gate)
    d_h = W_dh z_h,  d_x = W_dx z_x,  b_t = W_db z_b + b                                     (N numbers per gate)
    [i f g o] = LN(d_h ∘ (W_rec h_{t-1}) + d_x ∘ (W_in x_t) + b_t)                           (LN of each gate by itself)
    c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ drop(tanh(g)),  h_t = σ(o) ∘ tanh(LN(c_t))

The paper's equations take z from ^h_{t-1}, the released cell from ^h_t, which is what stands here. ``W_z`` and ``W_d``
hold the parts for d_h, d_x and b in this order, four gates each, in torch's order i, f, g, o.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.base import Cell, Slot
from models.nets import Stack
from models.norms import BlockNorm
from models.registry import register
from models.states import LayerState


class HyperLSTMCell(Cell):
    """Options, with the reason for each default:

    hyper_size: 128, the units H of the hyper cell, as the paper on this task.
    embedding_size: 4, N_z, as the paper's first model.
    layer_norm: True, as the row of the tables.
    recurrent_dropout: 0, the probability that a number of the candidate tanh(g) is dropped, anew at every step.
    input_dropout, output_dropout: 0, the same for the numbers of x and of the output.
    W_in_init, W_rec_init, forget_bias: "glorot", "orthogonal" per gate, 1, as the released cell; here the latter is
        where the trained bias of the forget gates starts.

    The scales start at 0.1 and b_t at b: W_zh, W_zx and W_db at 0, b_zh and b_zx at 1, W_dh and W_dx at 0.1/N_z, W_zb
    in N(0, 0.01²), as the released cell.
    """

    decayed = ("W_in",)

    def __init__(
        self,
        slot: Slot,
        *,
        hyper_size: int = 128,
        embedding_size: int = 4,
        layer_norm: bool = True,
        recurrent_dropout: float = 0.0,
        input_dropout: float = 0.0,
        output_dropout: float = 0.0,
        W_in_init: str = "glorot",
        W_rec_init: str = "orthogonal",
        forget_bias: float = 1.0,
    ) -> None:
        N, H, M, N_z = slot.hidden_size, hyper_size, slot.input_size, embedding_size
        for name, size in (("hyper_size", H), ("embedding_size", N_z)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"{name}={size!r} is not a positive whole number.")
        drops = {"recurrent": recurrent_dropout, "input": input_dropout, "output": output_dropout}
        for name, p in drops.items():
            if not isinstance(p, int | float) or not 0 <= p < 1:
                raise ValueError(f"{name}_dropout={p!r} is not a probability in [0, 1).")
        super().__init__(slot, states={"h": N, "c": N, "h_hat": H, "c_hat": H}, projected=4 * N + 4 * H)
        self.drops, self.widths = drops, (4 * N, 4 * H)
        self.W_in = slot.matrix(4 * N, M, W_in_init, "W_in_init")
        self.W_rec = slot.matrix(4 * N, N, W_rec_init, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(4 * N))
        both = slot.matrix(4 * H, M + N, W_in_init, "W_in_init").detach()  # reads [x; h]
        self.W_x_hat, self.W_h_hat = (nn.Parameter(part.clone()) for part in both.split([M, N], dim=1))
        self.W_rec_hat = slot.matrix(4 * H, H, W_rec_init, "W_rec_init")
        self.b_hat = nn.Parameter(torch.zeros(4 * H))
        noise = 0.01 * torch.randn(4 * N_z, H, generator=slot.generator)
        self.W_z = nn.Parameter(torch.cat([torch.zeros(8 * N_z, H), noise]))
        self.b_z = nn.Parameter(torch.ones(8 * N_z))
        self.W_d = nn.Parameter(torch.cat([torch.full((8, N_z, N), 0.1 / N_z), torch.zeros(4, N_z, N)]))
        self.norm_gates: nn.Module = BlockNorm(4, N) if layer_norm else nn.Identity()
        self.norm_gates_hat: nn.Module = BlockNorm(4, H, bias=False) if layer_norm else nn.Identity()
        self.norm_c: nn.Module = BlockNorm(1, N) if layer_norm else nn.Identity()
        self.norm_c_hat: nn.Module = BlockNorm(1, H) if layer_norm else nn.Identity()
        bias = self.norm_gates.bias if layer_norm else self.b
        assert isinstance(bias, Tensor)
        with torch.no_grad():
            bias[N : 2 * N] = forget_bias
            self.b_hat[H : 2 * H] = forget_bias

    def project(self, x: Tensor) -> Tensor:
        """[W_in x, what the hyper cell takes from x], (T, B, 4N + 4H); the biases come later, behind the scales."""
        x = F.dropout(x, self.drops["input"], self.training)
        return self.before(F.linear(x, torch.cat([self.W_in, self.W_x_hat])))

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, c, h_hat, c_hat = state  # (B, N) twice, (B, H) twice
        u, u_hat = u_t.split(self.widths, dim=-1)  # (B, 4N), (B, 4H)
        gates_hat = u_hat + h @ self.W_h_hat.T + h_hat @ self.W_rec_hat.T
        i, f, g, o = (self.norm_gates_hat(gates_hat) + self.b_hat).chunk(4, dim=-1)  # each (B, H)
        c_hat = torch.sigmoid(f) * c_hat + torch.sigmoid(i) * torch.tanh(g)
        h_hat = torch.sigmoid(o) * torch.tanh(self.norm_c_hat(c_hat))

        d_h, d_x, b = self.scales(h_hat)  # each (B, 4N)
        gates = self.norm_gates(d_h * (h @ self.W_rec.T) + d_x * u + b)
        i, f, g, o = gates.chunk(4, dim=-1)  # each (B, N)
        candidate = F.dropout(torch.tanh(g), self.drops["recurrent"], self.training)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * candidate
        h = torch.sigmoid(o) * torch.tanh(self.norm_c(c))
        return h, (h, c, h_hat, c_hat)

    def scales(self, h_hat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """d_h, d_x and b_t, each (B, 4N), from the output (B, H) of the hyper cell."""
        z = h_hat @ self.W_z.T + F.pad(self.b_z, (0, len(self.W_z) - len(self.b_z)))  # (B, 12 N_z)
        d = torch.bmm(z.view(len(z), 12, -1).transpose(0, 1), self.W_d)  # (12, B, N)
        d_h, d_x, b = d.view(3, 4, *d.shape[1:]).permute(0, 2, 1, 3).flatten(-2).unbind()
        return d_h, d_x, b + self.b

    def finish(self, y: Tensor) -> Tensor:
        return F.dropout(super().finish(y), self.drops["output"], self.training)


@register("hyperlstm", paper="Ha, Dai, Le 2017")
class HyperLSTM(Stack):
    """An LSTM whose gates a smaller LSTM scales; ``state = (h, c, h_hat, c_hat)``."""

    cell = HyperLSTMCell
