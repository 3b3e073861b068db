"""Linear Recurrent Unit (Orvieto et al. 2023), a complex diagonal linear recurrence inside a residual block:

    e_t = W_in x_t + b          (the encoder; only where the width changes, as in the first layer)
    v_t = LN(e_t)
    x_t = λ ∘ x_{t-1} + γ ∘ (B v_t)                       (complex, n numbers)
    y_t = Re(C x_t) + D ∘ v_t
    [p_t; q_t] = W_glu gelu(y_t) + b_glu,  h_t = e_t + p_t ∘ σ(q_t)

    λ = exp(−exp(ν) + i exp(θ)), so that |λ| < 1;  at the start |λ|² ~ U(r_min², r_max²), arg λ ~ U(0, max_phase),
    γ = √(1 − |λ|²), trained as log γ.

The paper's block with one GLU as its MLP and layer normalisation before the recurrence. The state is real, 2n wide:
the real and the imaginary part of each unit side by side. ``B`` holds the rows of its real and imaginary part in that
order, ``C`` the columns of Re C and −Im C, so that ``C x`` over the reals is ``Re(C x)``.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.base import Cell, Slot
from models.linear_scan import linear_scan
from models.nets import Stack
from models.registry import register
from models.states import LayerState


class LRUCell(Cell):
    """Options, with the reason for each default:

    state_size: n, the complex units; 0 takes hidden_size.
    r_min, r_max: 0 and 1, the whole disc, the paper's start before it is tuned to a task; long inputs ask for a ring.
    max_phase: 2π, as the paper; less where the wanted signals are slow.
    W_in_init, W_glu_init: "glorot", which the paper leaves open.
    """

    noisy = ("x",)

    def __init__(
        self,
        slot: Slot,
        *,
        state_size: int = 0,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2 * math.pi,
        W_in_init: str = "glorot",
        W_glu_init: str = "glorot",
    ) -> None:
        N, n = slot.hidden_size, state_size or slot.hidden_size
        if isinstance(state_size, bool) or not isinstance(state_size, int) or state_size < 0:
            raise ValueError(f"state_size={state_size!r} is not a whole number from 0 up.")
        if not 0 <= r_min < r_max <= 1:
            raise ValueError(f"r_min={r_min!r} and r_max={r_max!r} do not satisfy 0 <= r_min < r_max <= 1.")
        if not max_phase > 0:
            raise ValueError(f"max_phase={max_phase!r} is not a positive angle.")
        super().__init__(slot, states={"x": 2 * n}, projected=2 * n)  # what the norm before the recurrence acts on
        self.encodes = slot.index == 0 or slot.input_size != N
        self.decayed = ("W_in", "C", "W_glu") if self.encodes else ("C", "W_glu")
        if self.encodes:
            self.W_in = slot.matrix(N, slot.input_size, W_in_init, "W_in_init")
            self.b = nn.Parameter(torch.zeros(N))
        self.layer_norm = nn.LayerNorm(N)
        square = slot.uniform(n, r_min**2, r_max**2).detach().clamp(1e-6, 1 - 1e-6)  # |λ|²
        self.nu = nn.Parameter((-0.5 * square.log()).log())
        self.theta = nn.Parameter((slot.uniform(n, 0.0, 1.0).detach().clamp(min=1e-6) * max_phase).log())
        self.log_gamma = nn.Parameter(0.5 * (1 - square).log())
        self.B = _normal(slot, 2 * n, N, 1 / math.sqrt(2 * N))
        self.C = _normal(slot, N, 2 * n, 1 / math.sqrt(n))
        self.D = nn.Parameter(torch.randn(N, generator=slot.generator))
        self.W_glu = slot.matrix(2 * N, N, W_glu_init, "W_glu_init")
        self.b_glu = nn.Parameter(torch.zeros(2 * N))

    def lam(self) -> tuple[Tensor, Tensor]:
        """Real and imaginary part of λ, each (n,)."""
        size, phase = torch.exp(-torch.exp(self.nu)), torch.exp(self.theta)
        return size * torch.cos(phase), size * torch.sin(phase)

    def project(self, x: Tensor) -> Tensor:
        """[γ B v, D v, e], (T, B, 2n + 2N)."""
        e = F.linear(x, self.W_in, self.b) if self.encodes else x  # (T, B, N)
        v = self.layer_norm(e)
        gamma = torch.exp(self.log_gamma).repeat_interleave(2).unsqueeze(-1)  # (2n, 1)
        return torch.cat([self.before(F.linear(v, gamma * self.B)), self.D * v, e], dim=-1)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (x,) = state  # (B, 2n)
        re, im = x.unflatten(-1, (-1, 2)).unbind(-1)  # each (B, n)
        lam_re, lam_im = self.lam()
        turned = torch.stack([lam_re * re - lam_im * im, lam_re * im + lam_im * re], dim=-1).flatten(-2)  # λ x
        x = turned + u_t[..., : x.shape[-1]]
        return self._read(x, u_t), (x,)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if self.backend == "reference":
            return super().scan(u, state)
        width = self.states["x"]
        driven, x0 = (_complex(part) for part in (u[..., :width], state[0]))
        x = torch.view_as_real(linear_scan(torch.complex(*map(_wide, self.lam())), driven, x0)).flatten(-2)
        x = x.to(u.dtype)  # (T, B, 2n)
        return self._read(x, u), (x[-1],)

    def _read(self, x: Tensor, u: Tensor) -> Tensor:
        """h from x (…, 2n) and what ``project`` gave."""
        Dv, e = u[..., x.shape[-1] :].chunk(2, dim=-1)  # each (…, N)
        y = F.linear(x, self.C) + Dv
        p, q = F.linear(F.gelu(y), self.W_glu, self.b_glu).chunk(2, dim=-1)  # each (…, N)
        return e + p * torch.sigmoid(q)


def _normal(slot: Slot, rows: int, columns: int, deviation: float) -> nn.Parameter:
    return nn.Parameter(deviation * torch.randn(rows, columns, generator=slot.generator))


def _wide(values: Tensor) -> Tensor:
    """There are no complex numbers of half precision to compute with."""
    return values if values.dtype == torch.float64 else values.float()


def _complex(values: Tensor) -> Tensor:
    """(…, 2n) -> (…, n)."""
    return torch.view_as_complex(_wide(values).unflatten(-1, (-1, 2)).contiguous())


@register("lru", paper="Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu, De 2023")
class LRU(Stack):
    """Linear recurrent units with the residual block around them; the state is x, of 2n numbers."""

    cell = LRUCell
