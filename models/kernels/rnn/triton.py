"""Triton path of ``rnn_scan``.

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
    load_weight,
    multiply_add,
    padded,
    programs,
    projection_gradients,
    relu,
    tanh,
    through_relu,
    warps,
)

ON_CHIP = OnChip(weights=1, units={"tf32": 128, "tf32x3": 128, "ieee": 128})


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        return relu(x)
    else:
        return tanh(x)


@triton.jit
def through_activation(grad, y, ACTIVATION: tl.constexpr):
    """``act'(y) ∘ grad`` for an activation's value y."""
    if ACTIVATION == "relu":
        return through_relu(grad, y)
    else:
        return grad * (1 - y * y)


@triton.jit(do_not_specialize=["T"])
def rnn_forward_resident(
    u, W_rec, h0, y, T, B, N, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < B) & (columns < N)
    at = rows * N + columns
    W_T = load_weight(W_rec, 0, N, BLOCK_N, True, PRECISION)
    h = tl.load(h0 + at, mask=inside, other=0.0)  # (BLOCK_B, BLOCK_N)
    u_t = tl.load(u + at, mask=inside, other=0.0)
    for t in range(T):
        u += B * N
        u_next = tl.load(u + at, mask=inside & (t + 1 < T), other=0.0)  # in flight during this step's product
        h = activate(multiply_add(h, W_T, u_t, PRECISION, BLOCK_B, BLOCK_N), ACTIVATION)
        tl.store(y + at, h, mask=inside)
        y += B * N
        u_t = u_next


@triton.jit(do_not_specialize=["T"])
def rnn_backward_resident(
    grad_y, W_rec, y, grad_u, grad_h0, T, B, N, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < B) & (columns < N)
    at = rows * N + columns
    W = load_weight(W_rec, 0, N, BLOCK_N, False, PRECISION)
    last = (T - 1).to(tl.int64) * B * N
    grad_y += last
    y += last
    grad_u += last
    grad = tl.load(grad_y + at, mask=inside, other=0.0)  # of y_t, (BLOCK_B, BLOCK_N)
    y_t = tl.load(y + at, mask=inside, other=0.0)
    for t in range(T):
        grad_y -= B * N
        y -= B * N
        more = inside & (t + 1 < T)
        grad_y_next = tl.load(grad_y + at, mask=more, other=0.0)  # in flight during this step's product
        y_next = tl.load(y + at, mask=more, other=0.0)
        g = through_activation(grad, y_t, ACTIVATION)
        tl.store(grad_u + at, g, mask=inside)
        grad_u -= B * N
        grad = multiply_add(g, W, grad_y_next, PRECISION, BLOCK_B, BLOCK_N)  # at the last step: of h0
        y_t = y_next
    tl.store(grad_h0 + at, grad, mask=inside)


@triton.jit
def rnn_forward_step(product, u_t, y_t, elements, ELEMENTS: tl.constexpr, ACTIVATION: tl.constexpr):
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < elements
    x = tl.load(product + at, mask=inside, other=0.0) + tl.load(u_t + at, mask=inside, other=0.0)
    tl.store(y_t + at, activate(x, ACTIVATION), mask=inside)


@triton.jit
def rnn_backward_step(product, grad_y_t, y_t, grad_u_t, elements, ELEMENTS: tl.constexpr, ACTIVATION: tl.constexpr):
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < elements
    grad = tl.load(product + at, mask=inside, other=0.0) + tl.load(grad_y_t + at, mask=inside, other=0.0)
    y = tl.load(y_t + at, mask=inside, other=0.0)
    tl.store(grad_u_t + at, through_activation(grad, y, ACTIVATION), mask=inside)


def forward(
    u: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    activation: str,
    *,
    precision: str | None = None,
    resident: bool | None = None,
) -> Tensor:
    """u: (T, B, N), W_rec: (N, N), h0: (B, N), activation: relu or tanh -> y (T, B, N)

    precision: of the products inside the kernel, ``triton_common.dot_precision``; ``torch.mm`` has its own switch.
    resident: whether the weights stay on chip for the whole sequence; ``None`` decides by size.
    """
    T, B, N = u.shape
    precision = dot_precision(precision, u.dtype)
    y = torch.empty_like(u)
    with launching(u):
        if ON_CHIP.holds(N, u, precision) if resident is None else resident:
            rnn_forward_resident[programs(B, BLOCK_B)](
                u, W_rec, h0, y, T, B, N, BLOCK_B, padded(N), activation, precision,
                num_warps=warps(padded(N)), num_stages=1,
            )  # fmt: skip
            return y
        product, h = torch.empty_like(h0), h0
        for u_t, y_t in zip(u, y, strict=True):
            torch.mm(h, W_rec.T, out=product)  # (B, N)
            rnn_forward_step[programs(B * N, ELEMENTS)](product, u_t, y_t, B * N, ELEMENTS, activation)
            h = y_t
    return y


def backward(
    grad_y: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    y: Tensor,
    activation: str,
    *,
    precision: str | None = None,
    resident: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """grad_y, y: (T, B, N), W_rec: (N, N), h0: (B, N) -> grad_u (T, B, N), grad_W_rec (N, N), grad_h0 (B, N)

    precision, resident: as in ``forward``.
    """
    T, B, N = y.shape
    precision = dot_precision(precision, y.dtype)
    grad_u, grad_h0 = torch.empty_like(y), torch.empty_like(h0)
    with launching(y):
        if ON_CHIP.holds(N, y, precision) if resident is None else resident:
            rnn_backward_resident[programs(B, BLOCK_B)](
                grad_y, W_rec, y, grad_u, grad_h0, T, B, N, BLOCK_B, padded(N), activation, precision,
                num_warps=warps(padded(N)), num_stages=1,
            )  # fmt: skip
        else:
            grad_h0.zero_()  # carries the gradient of y_t from step t + 1 to step t
            for t in reversed(range(T)):
                rnn_backward_step[programs(B * N, ELEMENTS)](
                    grad_h0, grad_y[t], y[t], grad_u[t], B * N, ELEMENTS, activation
                )
                torch.mm(grad_u[t], W_rec, out=grad_h0)
    return grad_u, weight_gradient(grad_u, y, h0), grad_h0


def projected_forward(
    x: Tensor, W_in: Tensor, b: Tensor, W_rec: Tensor, h0: Tensor, activation: str, **path: Any
) -> Tensor:
    """x: (T, B, I), W_in: (N, I), b: (N,), otherwise as ``forward`` -> y (T, B, N)"""
    return forward(F.linear(x, W_in, b), W_rec, h0, activation, **path)


def projected_backward(
    grad_y: Tensor, x: Tensor, W_in: Tensor | None, W_rec: Tensor, h0: Tensor, y: Tensor, activation: str, **path: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x (T, B, I), W_in (N, I), b (N,), W_rec (N, N) and h0 (B, N)"""
    grad_u, grad_W_rec, grad_h0 = backward(grad_y, W_rec, h0, y, activation, **path)
    return *projection_gradients(grad_u, x, W_in), grad_W_rec, grad_h0


KERNELS = Kernels(
    ON_CHIP,
    resident=(rnn_forward_resident, rnn_backward_resident),
    elements=(rnn_forward_step, rnn_backward_step),
    variants=({"ACTIVATION": "relu"}, {"ACTIVATION": "tanh"}),
)
