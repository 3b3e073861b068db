"""Triton path of ``lstm_scan``, gates in torch's order i, f, g, o.

Verified in Triton's interpreter against the reference and compiled ahead of time for sm_80 and sm_90; it has not
run on hardware. Arguments and results are those of the operators that ``op.py`` declares.
"""
# mypy: disable-error-code="no-untyped-def"
# Kernels take pointers and constexprs, which have no Python types; every function a caller sees is annotated.

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from models.kernels.operators import weight_gradient
from models.kernels.triton_common import (
    BLOCK_B,
    ELEMENTS,
    Kernels,
    OnChip,
    dot_precision,
    launching,
    load_gates,
    load_weight,
    multiply_add,
    padded,
    programs,
    projection_gradients,
    sigmoid,
    store_gates,
    tanh,
    warps,
)

ON_CHIP = OnChip(weights=4, units={"tf32": 64, "tf32x3": 32, "ieee": 64})


@triton.jit
def load_rates(rates, NOISE: tl.constexpr):
    """d_c, d_h and m where they are the same for all units and steps; of noise that is drawn, what is not used."""
    if NOISE == "expected":
        return tl.load(rates), tl.load(rates + 1), 1 - tl.load(rates + 2)
    else:
        return 0.0, 0.0, 1.0


@triton.jit
def load_noise(noise, at, mask, expected, like, NOISE: tl.constexpr):
    """d_c, d_h and m of one step."""
    if NOISE == "drawn":
        bits = tl.load(noise + at, mask=mask, other=0)
        d_c, d_h, dropped = bits & 1, (bits >> 1) & 1, (bits >> 2) & 1
        return d_c.to(like.dtype), d_h.to(like.dtype), 1 - dropped.to(like.dtype)
    else:
        return expected


@triton.jit
def cell_forward(i, f, g, o, c, h, factors, NOISE: tl.constexpr):
    """Pre-activations, c_{t-1} and y_{t-1} -> σ(i), σ(f), tanh(g), σ(o), c_t, y_t"""
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    if NOISE == "none":
        c = f * c + i * g
        return i, f, g, o, c, o * tanh(c)
    else:
        d_c, d_h, m = factors
        new_c = f * c + m * (i * g)
        new_h = o * tanh(new_c)
        return i, f, g, o, d_c * c + (1 - d_c) * new_c, d_h * h + (1 - d_h) * new_h


@triton.jit
def cell_backward(i, f, g, o, c_before, c, grad_y, grad_c, factors, NOISE: tl.constexpr):
    """Gradients of the pre-activations i, f, g, o, of c_{t-1}, and of y_{t-1} past them, from those of y_t and c_t and
    the active gates."""
    past_y, past_c = 0.0, 0.0
    m_i, m_g = i, g
    if NOISE != "none":
        d_c, d_h, m = factors
        m_i, m_g = m * i, m * g
        c = f * c_before + m_i * g
        past_y, past_c = d_h * grad_y, d_c * grad_c
        grad_y, grad_c = grad_y - past_y, grad_c - past_c
    tanh_c = tanh(c)
    grad_c += grad_y * o * (1 - tanh_c * tanh_c)
    grad_i = grad_c * m_g * i * (1 - i)
    grad_f = grad_c * c_before * f * (1 - f)
    grad_g = grad_c * m_i * (1 - g * g)
    grad_o = grad_y * tanh_c * o * (1 - o)
    return grad_i, grad_f, grad_g, grad_o, grad_c * f + past_c, past_y


@triton.jit(do_not_specialize=["T"])
def lstm_forward_resident(
    u, W_rec, h0, c0, noise, rates, y, c_last, gates, cells, T, B, N,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr, NOISE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < B) & (columns < N)
    at = rows * N + columns
    at_gates = rows * 4 * N + columns
    W_i = load_weight(W_rec, 0, N, BLOCK_N, True, PRECISION)
    W_f = load_weight(W_rec, N, N, BLOCK_N, True, PRECISION)
    W_g = load_weight(W_rec, 2 * N, N, BLOCK_N, True, PRECISION)
    W_o = load_weight(W_rec, 3 * N, N, BLOCK_N, True, PRECISION)
    h = tl.load(h0 + at, mask=inside, other=0.0)  # (BLOCK_B, BLOCK_N)
    c = tl.load(c0 + at, mask=inside, other=0.0)
    i, f, g, o = load_gates(u, at_gates, N, inside)
    expected = load_rates(rates, NOISE)
    for t in range(T):
        u += 4 * B * N
        factors = load_noise(noise, at, inside, expected, h, NOISE)
        next_i, next_f, next_g, next_o = load_gates(u, at_gates, N, inside & (t + 1 < T))
        i = multiply_add(h, W_i, i, PRECISION, BLOCK_B, BLOCK_N)
        f = multiply_add(h, W_f, f, PRECISION, BLOCK_B, BLOCK_N)
        g = multiply_add(h, W_g, g, PRECISION, BLOCK_B, BLOCK_N)
        o = multiply_add(h, W_o, o, PRECISION, BLOCK_B, BLOCK_N)
        i, f, g, o, c, h = cell_forward(i, f, g, o, c, h, factors, NOISE)
        store_gates(gates, at_gates, N, i, f, g, o, inside)
        tl.store(cells + at, c, mask=inside)
        tl.store(y + at, h, mask=inside)
        gates += 4 * B * N
        cells += B * N
        y += B * N
        if NOISE == "drawn":
            noise += B * N
        i, f, g, o = next_i, next_f, next_g, next_o
    tl.store(c_last + at, c, mask=inside)


@triton.jit(do_not_specialize=["T"])
def lstm_backward_resident(
    grad_y, grad_c_last, W_rec, c0, gates, cells, noise, rates, grad_u, grad_h0, grad_c0, T, B, N,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr, NOISE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < B) & (columns < N)
    at = rows * N + columns
    at_gates = rows * 4 * N + columns
    W_i = load_weight(W_rec, 0, N, BLOCK_N, False, PRECISION)
    W_f = load_weight(W_rec, N, N, BLOCK_N, False, PRECISION)
    W_g = load_weight(W_rec, 2 * N, N, BLOCK_N, False, PRECISION)
    W_o = load_weight(W_rec, 3 * N, N, BLOCK_N, False, PRECISION)
    last = (T - 1).to(tl.int64) * B * N
    grad_y += last
    cells += last
    gates += 4 * last
    grad_u += 4 * last
    if NOISE == "drawn":
        noise += last
    expected = load_rates(rates, NOISE)
    grad = tl.load(grad_y + at, mask=inside, other=0.0)  # of y_t, (BLOCK_B, BLOCK_N)
    grad_c = tl.load(grad_c_last + at, mask=inside, other=0.0)
    c = tl.load(cells + at, mask=inside, other=0.0)
    for t in range(T):
        grad_y -= B * N
        cells -= B * N
        more = inside & (t + 1 < T)
        i, f, g, o = load_gates(gates, at_gates, N, inside)
        grad_y_next = tl.load(grad_y + at, mask=more, other=0.0)
        c_before = tl.load(cells + at, mask=more, other=0.0)
        c_before += tl.load(c0 + at, mask=inside & (t + 1 == T), other=0.0)
        factors = load_noise(noise, at, inside, expected, c, NOISE)
        grad_i, grad_f, grad_g, grad_o, grad_c, past = cell_backward(
            i, f, g, o, c_before, c, grad, grad_c, factors, NOISE
        )
        store_gates(grad_u, at_gates, N, grad_i, grad_f, grad_g, grad_o, inside)
        grad = multiply_add(grad_i, W_i, grad_y_next + past, PRECISION, BLOCK_B, BLOCK_N)  # at the last step: of h0
        grad = multiply_add(grad_f, W_f, grad, PRECISION, BLOCK_B, BLOCK_N)
        grad = multiply_add(grad_g, W_g, grad, PRECISION, BLOCK_B, BLOCK_N)
        grad = multiply_add(grad_o, W_o, grad, PRECISION, BLOCK_B, BLOCK_N)
        c = c_before
        if NOISE == "drawn":
            noise -= B * N
        gates -= 4 * B * N
        grad_u -= 4 * B * N
    tl.store(grad_h0 + at, grad, mask=inside)
    tl.store(grad_c0 + at, grad_c, mask=inside)


@triton.jit
def lstm_forward_step(
    product, u_t, h_before, c_before, noise_t, rates, y_t, gates_t, c_t, elements, N,
    ELEMENTS: tl.constexpr, NOISE: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < elements
    at_gates = at // N * 4 * N + at % N
    v_i, v_f, v_g, v_o = load_gates(product, at_gates, N, inside)
    u_i, u_f, u_g, u_o = load_gates(u_t, at_gates, N, inside)
    c = tl.load(c_before + at, mask=inside, other=0.0)
    h = tl.load(h_before + at, mask=inside, other=0.0) if NOISE != "none" else c
    factors = load_noise(noise_t, at, inside, load_rates(rates, NOISE), c, NOISE)
    i, f, g, o, c, y = cell_forward(u_i + v_i, u_f + v_f, u_g + v_g, u_o + v_o, c, h, factors, NOISE)
    store_gates(gates_t, at_gates, N, i, f, g, o, inside)
    tl.store(c_t + at, c, mask=inside)
    tl.store(y_t + at, y, mask=inside)


@triton.jit
def lstm_backward_step(
    product, grad_y_t, gates_t, c_before, c_t, noise_t, rates, grad_c, past, grad_u_t, elements, N,
    ELEMENTS: tl.constexpr, NOISE: tl.constexpr,
):  # fmt: skip
    """``product`` and ``past`` add up to the gradient of y_t from step t + 1; ``past`` and grad_c move on in place."""
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < elements
    at_gates = at // N * 4 * N + at % N
    i, f, g, o = load_gates(gates_t, at_gates, N, inside)
    before, c = tl.load(c_before + at, mask=inside, other=0.0), tl.load(c_t + at, mask=inside, other=0.0)
    grad = tl.load(product + at, mask=inside, other=0.0) + tl.load(grad_y_t + at, mask=inside, other=0.0)
    carried = tl.load(grad_c + at, mask=inside, other=0.0)
    if NOISE != "none":
        grad += tl.load(past + at, mask=inside, other=0.0)
    factors = load_noise(noise_t, at, inside, load_rates(rates, NOISE), c, NOISE)
    grad_i, grad_f, grad_g, grad_o, carried, past_y = cell_backward(
        i, f, g, o, before, c, grad, carried, factors, NOISE
    )
    if NOISE != "none":
        tl.store(past + at, past_y, mask=inside)
    store_gates(grad_u_t, at_gates, N, grad_i, grad_f, grad_g, grad_o, inside)
    tl.store(grad_c + at, carried, mask=inside)


def noise_kind(noise: Tensor | None, rates: Tensor | None) -> str:
    """Which form of the kernels: without noise, with drawn bits, or with what they are on average."""
    return "drawn" if noise is not None else "none" if rates is None else "expected"


def forward(
    u: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    c0: Tensor,
    noise: Tensor | None = None,
    rates: Tensor | None = None,
    *,
    precision: str | None = None,
    resident: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u: (T, B, 4N), W_rec: (4N, N), h0, c0: (B, N), noise: (T, B, N) or rates: (3,)
    -> y (T, B, N), last cell (B, N), gates (T, B, 4N), cells (T, B, N)

    precision: of the products inside the kernel, ``triton_common.dot_precision``; ``torch.mm`` has its own switch.
    resident: whether the weights stay on chip for the whole sequence; ``None`` decides by size.
    """
    T, (B, N) = len(u), h0.shape
    precision = dot_precision(precision, u.dtype)
    y, cells, gates = u.new_empty(T, B, N), u.new_empty(T, B, N), torch.empty_like(u)
    c_last, kind = torch.empty_like(c0), noise_kind(noise, rates)
    with launching(u):
        if ON_CHIP.holds(N, u, precision) if resident is None else resident:
            lstm_forward_resident[programs(B, BLOCK_B)](
                u, W_rec, h0, c0, noise, rates, y, c_last, gates, cells, T, B, N, BLOCK_B, padded(N), precision, kind,
                num_warps=warps(padded(N)), num_stages=1,
            )  # fmt: skip
            return y, c_last, gates, cells
        product, h, c = torch.empty_like(u[0]), h0, c0
        for t in range(T):
            torch.mm(h, W_rec.T, out=product)  # (B, 4N)
            noise_t = None if noise is None else noise[t]
            lstm_forward_step[programs(B * N, ELEMENTS)](
                product, u[t], h, c, noise_t, rates, y[t], gates[t], cells[t], B * N, N, ELEMENTS, kind
            )
            h, c = y[t], cells[t]
    return y, c_last.copy_(c), gates, cells


def backward(
    grad_y: Tensor,
    grad_c: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    c0: Tensor,
    y: Tensor,
    gates: Tensor,
    cells: Tensor,
    noise: Tensor | None = None,
    rates: Tensor | None = None,
    *,
    precision: str | None = None,
    resident: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """grad_y: (T, B, N), grad_c: (B, N) of the last cell -> grad_u (T, B, 4N), grad_W_rec (4N, N), grad_h0, grad_c0

    precision, resident: as in ``forward``.
    """
    T, B, N = y.shape
    precision = dot_precision(precision, y.dtype)
    grad_u, grad_h0, grad_c0 = torch.empty_like(gates), torch.empty_like(h0), torch.empty_like(c0)
    kind = noise_kind(noise, rates)
    with launching(y):
        if ON_CHIP.holds(N, y, precision) if resident is None else resident:
            lstm_backward_resident[programs(B, BLOCK_B)](
                grad_y, grad_c, W_rec, c0, gates, cells, noise, rates, grad_u, grad_h0, grad_c0, T, B, N,
                BLOCK_B, padded(N), precision, kind, num_warps=warps(padded(N)), num_stages=1,
            )  # fmt: skip
        else:
            grad_h0.zero_()  # carries the gradient of y_t from step t + 1 to step t
            grad_c0.copy_(grad_c)  # and that of c_t
            past = None if kind == "none" else torch.zeros_like(h0)  # and that of y_t past the gates
            for t in reversed(range(T)):
                noise_t = None if noise is None else noise[t]
                lstm_backward_step[programs(B * N, ELEMENTS)](
                    grad_h0, grad_y[t], gates[t], cells[t - 1] if t else c0, cells[t], noise_t, rates, grad_c0, past,
                    grad_u[t], B * N, N, ELEMENTS, kind,
                )  # fmt: skip
                torch.mm(grad_u[t], W_rec, out=grad_h0)
            if past is not None:
                grad_h0 += past
    return grad_u, weight_gradient(grad_u, y, h0), grad_h0, grad_c0


def projected_forward(
    x: Tensor,
    W_in: Tensor,
    b: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    c0: Tensor,
    noise: Tensor | None = None,
    rates: Tensor | None = None,
    **path: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x: (T, B, I), W_in: (4N, I), b: (4N,), otherwise as ``forward``."""
    return forward(F.linear(x, W_in, b), W_rec, h0, c0, noise, rates, **path)


def projected_backward(
    grad_y: Tensor, grad_c: Tensor, x: Tensor, W_in: Tensor | None, *rest: Any, **path: Any
) -> tuple[Tensor, ...]:
    """Gradients of x (T, B, I), W_in (4N, I), b (4N,), W_rec (4N, N), h0 and c0 (B, N); rest: as for ``backward``."""
    grad_u, *others = backward(grad_y, grad_c, *rest, **path)
    return *projection_gradients(grad_u, x, W_in), *others


KERNELS = Kernels(
    ON_CHIP,
    resident=(lstm_forward_resident, lstm_backward_resident),
    elements=(lstm_forward_step, lstm_backward_step),
    variants=tuple({"NOISE": kind} for kind in ("none", "drawn", "expected")),
)
