"""Unitary evolution (Arjovsky, Shah, Bengio 2016), a network whose recurrent matrix is unitary by construction.

    (1)  h_t = modReLU(W h_{t-1} + V x_t)            h and V complex, n units
    (2)  W = D_3 R_2 F⁻¹ D_2 P R_1 F D_1             O(n) parameters, O(n log n) operations
    (3)  modReLU(z) = relu(|z| + b) z / |z|          b real, one per unit
    (4)  o_t = U [Re h_t; Im h_t] + b_o              left to the readout

D = diag(e^{iω}), R = I − 2 v v*/‖v‖², F the unitary Fourier transform, P a fixed random permutation. States of this
suite are real: h is kept as [Re h; Im h], of width 2n, which is also the output.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from models.base import Cell, Slot
from models.nets import Stack
from models.registry import register
from models.states import LayerState

EPSILON = 1e-5
"""Under the root of |z|, as the authors' code; its derivative is not finite at 0 without it."""


class Factors(NamedTuple):
    """What W is made of, each (n,) and complex: diagonals D_k, and the unit vectors of the reflections R_k."""

    D_1: Tensor
    D_2: Tensor
    D_3: Tensor
    v_1: Tensor
    v_2: Tensor


class URNNCell(Cell):
    """``hidden_size`` counts complex units; states and outputs have twice that width.

    Options, with the reason for each default:

    V_init: "glorot", of the real matrix [Re V; Im V], as the paper.
    b_range: 0, b starts in U(−b_range, b_range); the paper starts at 0, the authors' code at 0.01.

    A learned start (the default of this family, as the paper) begins in U(±√(3/2n)), which gives it norm 1 on average.
    """

    decayed = ("V",)
    P: Tensor

    def __init__(self, slot: Slot, *, V_init: str = "glorot", b_range: float = 0.0) -> None:
        n = slot.hidden_size
        super().__init__(slot, states={"h": 2 * n}, size=2 * n, projected=2 * n)
        if not b_range >= 0:
            raise ValueError(f"b_range={b_range!r} is not a number from 0 up.")
        self.V = slot.matrix(2 * n, slot.input_size, V_init, "V_init")
        self.omega_1, self.omega_2, self.omega_3 = (slot.uniform(n, -math.pi, math.pi) for _ in range(3))
        self.v_1, self.v_2 = (slot.uniform(2 * n, -1.0, 1.0) for _ in range(2))  # [Re v; Im v]
        self.b = slot.uniform(n, -b_range, b_range)
        self.register_buffer("P", torch.randperm(n, generator=slot.generator))

    def first_start(self, name: str, width: int, slot: Slot) -> Tensor:
        bound = math.sqrt(3.0 / width)  # width = 2n
        return torch.empty(width).uniform_(-bound, bound, generator=slot.generator)

    def project(self, x: Tensor) -> Tensor:
        return self.before(F.linear(x, self.V))  # (T, B, 2n)

    def factors(self) -> Factors:
        """W in parts; the phases and vectors in at least single precision, which is what Fourier transforms take."""
        diagonals = (torch.exp(1j * _at_least_single(omega)) for omega in (self.omega_1, self.omega_2, self.omega_3))
        vectors = (as_complex(_at_least_single(v)) for v in (self.v_1, self.v_2))
        return Factors(*diagonals, *(v / torch.linalg.vector_norm(v) for v in vectors))

    def rotate(self, h: Tensor, W: Factors) -> Tensor:
        """W h for each sample: (B, n) complex -> (B, n) complex."""
        z = torch.fft.fft(h * W.D_1, norm="ortho")
        z = reflect(z, W.v_1)
        z = z.gather(-1, self.P.expand_as(z))
        z = torch.fft.ifft(z * W.D_2, norm="ortho")
        z = reflect(z, W.v_2)
        return z * W.D_3

    def advance(self, u_t: Tensor, h: Tensor, W: Factors) -> Tensor:
        """One step in complex numbers: V x_t (B, n) and h_{t-1} (B, n) -> h_t (B, n)."""
        return modrelu(self.rotate(h, W) + u_t, self.b)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h,) = state  # (B, 2n)
        h = as_real(self.advance(as_complex(u_t), as_complex(h), self.factors())).to(h.dtype)
        return h, (h,)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """As ``step`` after step, but W's parts are made once and the state stays complex on the way."""
        W, h, outputs = self.factors(), as_complex(state[0]), []
        for u_t in as_complex(u):
            h = self.advance(u_t, h, W)
            outputs.append(h)
        y = as_real(torch.stack(outputs)).to(state[0].dtype)  # (T, B, 2n)
        return y, (y[-1],)


def as_complex(x: Tensor) -> Tensor:
    """[Re z; Im z] (…, 2n) -> z (…, n)."""
    re, im = _at_least_single(x).chunk(2, dim=-1)
    return torch.complex(re, im)


def as_real(z: Tensor) -> Tensor:
    """z (…, n) -> [Re z; Im z] (…, 2n)."""
    return torch.cat([z.real, z.imag], dim=-1)


def reflect(z: Tensor, v: Tensor) -> Tensor:
    """R z for each sample, ‖v‖ = 1: (B, n), (n,) -> (B, n)."""
    return torch.addcmul(z, (z @ v.conj()).unsqueeze(-1), v, value=-2)


def modrelu(z: Tensor, b: Tensor) -> Tensor:
    """relu(|z| + b) z / |z| (B, n); with b = 0 the identity, also where z is 0."""
    modulus = torch.sqrt(z.real.square() + z.imag.square() + EPSILON)
    return z * (torch.relu(modulus + b) / modulus)


def _at_least_single(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


@register("urnn", paper="Arjovsky, Shah, Bengio 2016", start="learned")
class URNN(Stack):
    """Unitary evolution RNN; ``state`` and output are [Re h; Im h]."""

    cell = URNNCell
