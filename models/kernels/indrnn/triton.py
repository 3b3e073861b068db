"""Triton path of ``indrnn_scan``.

Verified in Triton's interpreter against the reference and compiled ahead of time for sm_80 and sm_90; it has not
run on hardware. Arguments and results are those of the operators that ``op.py`` declares.
"""
# mypy: disable-error-code="no-untyped-def"
# Kernels take pointers and constexprs, which have no Python types; every function a caller sees is annotated.

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from models.kernels.triton_common import (
    ELEMENTS,
    Kernels,
    launching,
    programs,
    projection_gradients,
    relu,
    through_relu,
)


@triton.jit(do_not_specialize=["T"])
def indrnn_forward_elements(u, U, h0, y, T, B, N, ELEMENTS: tl.constexpr):
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < B * N
    weight = tl.load(U + at % N, mask=inside, other=0.0)
    h = tl.load(h0 + at, mask=inside, other=0.0)
    for _t in tl.range(T, num_stages=4):  # a step is two operations, so several loads have to be in flight
        h = relu(tl.load(u + at, mask=inside, other=0.0) + weight * h)
        tl.store(y + at, h, mask=inside)
        u += B * N
        y += B * N


@triton.jit(do_not_specialize=["T"])
def relu_reverse_scan(
    grad_y, U, h0, y, grad_u, grad_U, grad_b, grad_h0, T, B, N, ELEMENTS: tl.constexpr, BIAS: tl.constexpr
):
    """``g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1})``; grad_U and grad_b are sums over time, still by sample."""
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < B * N
    weight = tl.load(U + at % N, mask=inside, other=0.0)
    last = (T - 1).to(tl.int64) * B * N
    grad_y += last
    y += last
    grad_u += last
    y_t = tl.load(y + at, mask=inside, other=0.0)
    carried, sum_U, sum_b = tl.zeros_like(y_t), tl.zeros_like(y_t), tl.zeros_like(y_t)
    for _t in tl.range(T - 1, num_stages=4):
        y -= B * N
        y_before = tl.load(y + at, mask=inside, other=0.0)
        g = through_relu(tl.load(grad_y + at, mask=inside, other=0.0) + carried, y_t)
        tl.store(grad_u + at, g, mask=inside)
        sum_U += g * y_before
        sum_b += g
        carried = weight * g
        y_t = y_before
        grad_y -= B * N
        grad_u -= B * N
    g = through_relu(tl.load(grad_y + at, mask=inside, other=0.0) + carried, y_t)
    tl.store(grad_u + at, g, mask=inside)
    tl.store(grad_U + at, sum_U + g * tl.load(h0 + at, mask=inside, other=0.0), mask=inside)
    tl.store(grad_h0 + at, weight * g, mask=inside)
    if BIAS:
        tl.store(grad_b + at, sum_b + g, mask=inside)


def forward(u: Tensor, U: Tensor, h0: Tensor) -> Tensor:
    """u: (T, B, N), U: (N,), h0: (B, N) -> y (T, B, N)"""
    T, B, N = u.shape
    y = torch.empty_like(u)
    with launching(u):
        indrnn_forward_elements[programs(B * N, ELEMENTS)](u, U, h0, y, T, B, N, ELEMENTS)
    return y


def relu_backward_scan(
    grad_y: Tensor, U: Tensor, h0: Tensor, y: Tensor, bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``y_t = relu(u_t + b + U ∘ y_{t-1})``: of u (T, B, N), U (N,), b (N,) and h0 (B, N).

    Without ``bias`` the gradient of b is not computed and its tensor is empty.
    """
    T, B, N = y.shape
    grad_u, grad_h0, grad_U = torch.empty_like(y), torch.empty_like(h0), torch.empty_like(h0)
    grad_b = torch.empty_like(h0) if bias else h0.new_empty(0, N)
    with launching(y):
        relu_reverse_scan[programs(B * N, ELEMENTS)](
            grad_y, U, h0, y, grad_u, grad_U, grad_b, grad_h0, T, B, N, ELEMENTS, bias
        )
    return grad_u, grad_U.sum(0), grad_b.sum(0), grad_h0


def backward(grad_y: Tensor, U: Tensor, h0: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """grad_y, y: (T, B, N), U: (N,), h0: (B, N) -> grad_u (T, B, N), grad_U (N,), grad_h0 (B, N)"""
    grad_u, grad_U, _, grad_h0 = relu_backward_scan(grad_y, U, h0, y, bias=False)
    return grad_u, grad_U, grad_h0


def projected_forward(x: Tensor, W_in: Tensor, b: Tensor, U: Tensor, h0: Tensor) -> Tensor:
    """x: (T, B, I), W_in: (N, I), b, U: (N,), h0: (B, N) -> y (T, B, N)"""
    return forward(F.linear(x, W_in, b), U, h0)


def projected_backward(
    grad_y: Tensor, x: Tensor, W_in: Tensor | None, U: Tensor, h0: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x (T, B, I), W_in (N, I), b (N,), U (N,) and h0 (B, N)"""
    grad_u, grad_U, grad_h0 = backward(grad_y, U, h0, y)
    return *projection_gradients(grad_u, x, W_in), grad_U, grad_h0


KERNELS = Kernels(elements=(indrnn_forward_elements, relu_reverse_scan), variants=({"BIAS": False}, {"BIAS": True}))
