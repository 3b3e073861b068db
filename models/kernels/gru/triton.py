"""Triton path of ``gru_scan``, gates in torch's order r, z, n.

Verified in Triton's interpreter against the reference and compiled ahead of time for sm_80 and sm_90; it has not
run on hardware. Arguments and results are those of the operators that ``op.py`` declares.
"""
# mypy: disable-error-code="no-untyped-def"
# Kernels take pointers and constexprs, which have no Python types; every function a caller sees is annotated.

from __future__ import annotations

import torch
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
    sigmoid,
    store_gates,
    tanh,
    warps,
)

ON_CHIP = OnChip(weights=3, units={"tf32": 64, "tf32x3": 32, "ieee": 64})


@triton.jit
def load_thirds(u, at, N, mask):
    """What belongs to r, z and n; ``at`` is where r stands."""
    return (
        tl.load(u + at, mask=mask, other=0.0),
        tl.load(u + at + N, mask=mask, other=0.0),
        tl.load(u + at + 2 * N, mask=mask, other=0.0),
    )


@triton.jit
def store_thirds(u, at, N, r, z, n, mask):
    tl.store(u + at, r, mask=mask)
    tl.store(u + at + N, z, mask=mask)
    tl.store(u + at + 2 * N, n, mask=mask)


@triton.jit
def cell_forward(r, z, u_n, a, h):
    """Pre-activations of r and z, u_n, a and y_{t-1} -> r, z, n, y_t"""
    r, z = sigmoid(r), sigmoid(z)
    n = tanh(u_n + r * a)
    return r, z, n, (1 - z) * n + z * h


@triton.jit
def cell_backward(r, z, n, a, h, grad):
    """Gradients of the pre-activations of r, z and n, of a, and of y_{t-1} past them, from that of y_t."""
    grad_n = grad * (1 - z) * (1 - n * n)
    grad_r = grad_n * a * r * (1 - r)
    grad_z = grad * (h - n) * z * (1 - z)
    return grad_r, grad_z, grad_n, grad_n * r, grad * z


@triton.jit(do_not_specialize=["T"])
def gru_forward_resident(
    u, W_rec, b_new, h0, y, gates, T, B, N,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < B) & (columns < N)
    at = rows * N + columns
    at_thirds, at_gates = rows * 3 * N + columns, rows * 4 * N + columns
    W_r = load_weight(W_rec, 0, N, BLOCK_N, True, PRECISION)
    W_z = load_weight(W_rec, N, N, BLOCK_N, True, PRECISION)
    W_n = load_weight(W_rec, 2 * N, N, BLOCK_N, True, PRECISION)
    h = tl.load(h0 + at, mask=inside, other=0.0)  # (BLOCK_B, BLOCK_N)
    bias = tl.load(b_new + columns, mask=columns < N, other=0.0) + tl.zeros_like(h)
    r, z, u_n = load_thirds(u, at_thirds, N, inside)
    for t in range(T):
        u += 3 * B * N
        next_r, next_z, next_n = load_thirds(u, at_thirds, N, inside & (t + 1 < T))
        r = multiply_add(h, W_r, r, PRECISION, BLOCK_B, BLOCK_N)
        z = multiply_add(h, W_z, z, PRECISION, BLOCK_B, BLOCK_N)
        a = multiply_add(h, W_n, bias, PRECISION, BLOCK_B, BLOCK_N)
        r, z, n, h = cell_forward(r, z, u_n, a, h)
        store_gates(gates, at_gates, N, r, z, n, a, inside)
        tl.store(y + at, h, mask=inside)
        gates += 4 * B * N
        y += B * N
        r, z, u_n = next_r, next_z, next_n


@triton.jit(do_not_specialize=["T"])
def gru_backward_resident(
    grad_y, W_rec, h0, y, gates, grad_u, grad_h0, T, B, N,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < B) & (columns < N)
    at = rows * N + columns
    at_thirds, at_gates = rows * 3 * N + columns, rows * 4 * N + columns
    W_r = load_weight(W_rec, 0, N, BLOCK_N, False, PRECISION)
    W_z = load_weight(W_rec, N, N, BLOCK_N, False, PRECISION)
    W_n = load_weight(W_rec, 2 * N, N, BLOCK_N, False, PRECISION)
    last = (T - 1).to(tl.int64) * B * N
    grad_y += last
    y += last
    gates += 4 * last
    grad_u += 3 * last
    grad = tl.load(grad_y + at, mask=inside, other=0.0)  # of y_t, (BLOCK_B, BLOCK_N)
    for t in range(T):
        grad_y -= B * N
        y -= B * N
        more = inside & (t + 1 < T)
        r, z, n, a = load_gates(gates, at_gates, N, inside)
        grad_y_next = tl.load(grad_y + at, mask=more, other=0.0)
        before = y
        if t + 1 == T:
            before = h0
        h = tl.load(before + at, mask=inside, other=0.0)
        grad_r, grad_z, grad_n, grad_a, past = cell_backward(r, z, n, a, h, grad)
        store_thirds(grad_u, at_thirds, N, grad_r, grad_z, grad_n, inside)
        grad = multiply_add(grad_r, W_r, grad_y_next + past, PRECISION, BLOCK_B, BLOCK_N)  # at the last step: of h0
        grad = multiply_add(grad_z, W_z, grad, PRECISION, BLOCK_B, BLOCK_N)
        grad = multiply_add(grad_a, W_n, grad, PRECISION, BLOCK_B, BLOCK_N)
        gates -= 4 * B * N
        grad_u -= 3 * B * N
    tl.store(grad_h0 + at, grad, mask=inside)


@triton.jit
def gru_forward_step(product, u_t, b_new, h_before, y_t, gates_t, elements, N, ELEMENTS: tl.constexpr):
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < elements
    at_thirds = at // N * 3 * N + at % N
    v_r, v_z, v_n = load_thirds(product, at_thirds, N, inside)
    u_r, u_z, u_n = load_thirds(u_t, at_thirds, N, inside)
    h = tl.load(h_before + at, mask=inside, other=0.0)
    a = v_n + tl.load(b_new + at % N, mask=inside, other=0.0)
    r, z, n, y = cell_forward(u_r + v_r, u_z + v_z, u_n, a, h)
    store_gates(gates_t, at // N * 4 * N + at % N, N, r, z, n, a, inside)
    tl.store(y_t + at, y, mask=inside)


@triton.jit
def gru_backward_step(
    product, past, grad_y_t, h_before, gates_t, grad_u_t, grad_v, elements, N, ELEMENTS: tl.constexpr
):
    """``product`` and ``past`` add up to the gradient of y_t from step t + 1; grad_v is that of ``W_rec y_{t-1}``."""
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < elements
    at_thirds = at // N * 3 * N + at % N
    r, z, n, a = load_gates(gates_t, at // N * 4 * N + at % N, N, inside)
    h = tl.load(h_before + at, mask=inside, other=0.0)
    grad = tl.load(product + at, mask=inside, other=0.0) + tl.load(grad_y_t + at, mask=inside, other=0.0)
    grad += tl.load(past + at, mask=inside, other=0.0)
    grad_r, grad_z, grad_n, grad_a, past_y = cell_backward(r, z, n, a, h, grad)
    store_thirds(grad_u_t, at_thirds, N, grad_r, grad_z, grad_n, inside)
    store_thirds(grad_v, at_thirds, N, grad_r, grad_z, grad_a, inside)
    tl.store(past + at, past_y, mask=inside)


def forward(
    u: Tensor,
    W_rec: Tensor,
    b_new: Tensor,
    h0: Tensor,
    *,
    precision: str | None = None,
    resident: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """u: (T, B, 3N), W_rec: (3N, N), b_new: (N,), h0: (B, N) -> y (T, B, N), gates (T, B, 4N)

    precision: of the products inside the kernel, ``triton_common.dot_precision``; ``torch.mm`` has its own switch.
    resident: whether the weights stay on chip for the whole sequence; ``None`` decides by size.
    """
    T, (B, N) = len(u), h0.shape
    precision = dot_precision(precision, u.dtype)
    y, gates = u.new_empty(T, B, N), u.new_empty(T, B, 4 * N)
    with launching(u):
        if ON_CHIP.holds(N, u, precision) if resident is None else resident:
            gru_forward_resident[programs(B, BLOCK_B)](
                u, W_rec, b_new, h0, y, gates, T, B, N, BLOCK_B, padded(N), precision,
                num_warps=warps(padded(N)), num_stages=1,
            )  # fmt: skip
            return y, gates
        product, h = torch.empty_like(u[0]), h0
        for t in range(T):
            torch.mm(h, W_rec.T, out=product)  # (B, 3N)
            gru_forward_step[programs(B * N, ELEMENTS)](product, u[t], b_new, h, y[t], gates[t], B * N, N, ELEMENTS)
            h = y[t]
    return y, gates


def backward(
    grad_y: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    y: Tensor,
    gates: Tensor,
    *,
    precision: str | None = None,
    resident: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """grad_y: (T, B, N) -> grad_u (T, B, 3N), grad_W_rec (3N, N), grad_b_new (N,), grad_h0 (B, N)

    precision, resident: as in ``forward``.
    """
    T, B, N = y.shape
    precision = dot_precision(precision, y.dtype)
    grad_u, grad_h0 = y.new_empty(T, B, 3 * N), torch.empty_like(h0)
    with launching(y):
        if ON_CHIP.holds(N, y, precision) if resident is None else resident:
            gru_backward_resident[programs(B, BLOCK_B)](
                grad_y, W_rec, h0, y, gates, grad_u, grad_h0, T, B, N, BLOCK_B, padded(N), precision,
                num_warps=warps(padded(N)), num_stages=1,
            )  # fmt: skip
        else:
            grad_h0.zero_()  # carries the gradient of y_t from step t + 1 to step t, by the product
            past, grad_v = torch.zeros_like(h0), torch.empty_like(grad_u[0])  # and past the gates
            for t in reversed(range(T)):
                gru_backward_step[programs(B * N, ELEMENTS)](
                    grad_h0, past, grad_y[t], y[t - 1] if t else h0, gates[t], grad_u[t], grad_v, B * N, N, ELEMENTS
                )
                torch.mm(grad_v, W_rec, out=grad_h0)
            grad_h0 += past
    grad_a = grad_u[..., 2 * N :] * gates[..., :N]  # (T, B, N)
    of_gates, of_new = weight_gradient(grad_u[..., : 2 * N], y, h0), weight_gradient(grad_a, y, h0)
    return grad_u, torch.cat([of_gates, of_new]), grad_a.sum((0, 1)), grad_h0


KERNELS = Kernels(
    ON_CHIP,
    resident=(gru_forward_resident, gru_backward_resident),
    elements=(gru_forward_step, gru_backward_step),
)
