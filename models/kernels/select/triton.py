"""Triton path of ``select_scan``, the selection and long half of DuRNN.

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

from models.kernels.indrnn.triton import relu_backward_scan
from models.kernels.operators import weight_gradient
from models.kernels.select.reference import MM_FLOOR
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
    relu,
    row_warps,
    through_relu,
    warps,
)

FLOOR = tl.constexpr(MM_FLOOR)
ON_CHIP = OnChip(weights=2, units={"tf32": 128, "tf32x3": 64, "ieee": 128})


@triton.jit
def select(v, threshold, columns, N):
    """``S = relu(mm(v) − threshold)`` by row, and the denominator of mm; padded channels are neither min nor max."""
    low = tl.min(tl.where(columns < N, v, float("inf")), axis=1, keep_dims=True)
    high = tl.max(tl.where(columns < N, v, float("-inf")), axis=1, keep_dims=True)
    span = tl.maximum(high - low, tl.full(low.shape, FLOOR, low.dtype))  # (rows, 1); a bare constant is float32
    return relu((v - low) / span - threshold), span


@triton.jit(do_not_specialize=["T"])
def select_forward_resident(
    h_short, a, W_ls, W_s, U, b_thre, b_long, h0, y, S, scale, T, B, N,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < B) & (columns < N)
    at = rows * N + columns
    W_ls_T = load_weight(W_ls, 0, N, BLOCK_N, True, PRECISION)
    W_s_T = load_weight(W_s, 0, N, BLOCK_N, True, PRECISION)
    weight = tl.load(U + columns, mask=columns < N, other=0.0)  # (1, BLOCK_N)
    bias = tl.load(b_long + columns, mask=columns < N, other=0.0)
    threshold = tl.load(b_thre)
    h = tl.load(h0 + at, mask=inside, other=0.0)  # (BLOCK_B, BLOCK_N)
    a_t = tl.load(a + at, mask=inside, other=0.0)
    h_short_t = tl.load(h_short + at, mask=inside, other=0.0)
    for t in range(T):
        a += B * N
        h_short += B * N
        more = inside & (t + 1 < T)
        a_next = tl.load(a + at, mask=more, other=0.0)  # in flight during this step's products
        h_short_next = tl.load(h_short + at, mask=more, other=0.0)
        S_t, span = select(multiply_add(h, W_ls_T, a_t, PRECISION, BLOCK_B, BLOCK_N), threshold, columns, N)
        tl.store(S + at, S_t, mask=inside)
        tl.store(scale + rows, 1 / span, mask=rows < B)
        h = relu(multiply_add(S_t * h_short_t, W_s_T, weight * h + bias, PRECISION, BLOCK_B, BLOCK_N))
        tl.store(y + at, h, mask=inside)
        y += B * N
        S += B * N
        scale += B
        a_t, h_short_t = a_next, h_short_next


@triton.jit
def select_gate_step(product, a_t, h_short_t, b_thre, S_t, scale_t, i_t, N, BLOCK_N: tl.constexpr):
    """One sample per program: S_t, mm' and ``i_t = S_t ∘ h~_t`` from ``product = W_ls y_{t-1}``."""
    row = tl.program_id(0) + tl.arange(0, 1)[:, None]  # (1, 1)
    columns = tl.arange(0, BLOCK_N)[None, :]
    inside = columns < N
    at = row * N + columns
    v = tl.load(product + at, mask=inside, other=0.0) + tl.load(a_t + at, mask=inside, other=0.0)
    selection, span = select(v, tl.load(b_thre), columns, N)
    tl.store(S_t + at, selection, mask=inside)
    tl.store(scale_t + row, 1 / span)
    tl.store(i_t + at, selection * tl.load(h_short_t + at, mask=inside, other=0.0), mask=inside)


@triton.jit
def select_long_step(product, h, U, b_long, y_t, elements, N, ELEMENTS: tl.constexpr):
    """``y_t = relu(product + U ∘ y_{t-1} + b_long)`` for ``product = W_s i_t``."""
    at = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = at < elements
    x = tl.load(product + at, mask=inside, other=0.0) + tl.load(b_long + at % N, mask=inside, other=0.0)
    x += tl.load(U + at % N, mask=inside, other=0.0) * tl.load(h + at, mask=inside, other=0.0)
    tl.store(y_t + at, relu(x), mask=inside)


@triton.jit
def select_gradients(grad_i, h_short, S, scale, grad_h_short, grad_a, i, sum_e, N, BLOCK_N: tl.constexpr):
    """One sample of one step per program: through ``i = S ∘ h~`` into h~, a, and (still by row) b_thre."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK_N)
    inside = columns < N
    at = row.to(tl.int64) * N + columns
    d = tl.load(grad_i + at, mask=inside, other=0.0)
    short = tl.load(h_short + at, mask=inside, other=0.0)
    selection = tl.load(S + at, mask=inside, other=0.0)
    e = through_relu(short * d, selection)
    tl.store(grad_h_short + at, selection * d, mask=inside)
    tl.store(grad_a + at, tl.load(scale + row) * e, mask=inside)
    tl.store(i + at, selection * short, mask=inside)
    tl.store(sum_e + row, tl.sum(e, axis=0))


def forward(
    h_short: Tensor,
    W_ss: Tensor,
    b_s: Tensor,
    W_ls: Tensor,
    W_s: Tensor,
    U: Tensor,
    b_thre: Tensor,
    b_long: Tensor,
    h0: Tensor,
    *,
    precision: str | None = None,
    resident: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """h_short: (T, B, N), W_ss, W_ls, W_s: (N, N), b_s, U, b_long: (N,), b_thre: (), h0: (B, N)
    -> y, S (T, B, N), scale (T, B)

    precision: of the products inside the kernel, ``triton_common.dot_precision``; ``torch.mm`` has its own switch.
    resident: whether the weights stay on chip for the whole sequence; ``None`` decides by size.
    """
    T, B, N = h_short.shape
    a = torch.addmm(b_s, h_short.flatten(0, 1), W_ss.T).view_as(h_short)  # what of mm's argument is known before
    precision = dot_precision(precision, a.dtype)
    y, S, scale = torch.empty_like(a), torch.empty_like(a), a.new_empty(T, B)
    with launching(a):
        if ON_CHIP.holds(N, a, precision) if resident is None else resident:
            select_forward_resident[programs(B, BLOCK_B)](
                h_short, a, W_ls, W_s, U, b_thre, b_long, h0, y, S, scale, T, B, N, BLOCK_B, padded(N), precision,
                num_warps=warps(padded(N)), num_stages=1,
            )  # fmt: skip
        elif B > 0:
            product, i_t, h = torch.empty_like(h0), torch.empty_like(h0), h0
            for t in range(T):
                torch.mm(h, W_ls.T, out=product)  # (B, N)
                select_gate_step[(B,)](
                    product, a[t], h_short[t], b_thre, S[t], scale[t], i_t, N, padded(N),
                    num_warps=row_warps(padded(N)),
                )  # fmt: skip
                torch.mm(i_t, W_s.T, out=product)
                select_long_step[programs(B * N, ELEMENTS)](product, h, U, b_long, y[t], B * N, N, ELEMENTS)
                h = y[t]
    return y, S, scale


def backward(
    grad_y: Tensor,
    h_short: Tensor,
    W_s: Tensor,
    U: Tensor,
    h0: Tensor,
    y: Tensor,
    S: Tensor,
    scale: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """-> gradients of the inputs of ``forward``, in their order.

    An elementwise reverse scan, then products over all steps at once: the gradients of S into h~_t and y_{t-1} are cut.
    """
    T, B, N = y.shape
    g, grad_U, grad_b_long, grad_h0 = relu_backward_scan(grad_y, U, h0, y, bias=True)
    grad_i = torch.mm(g.flatten(0, 1), W_s)  # (TB, N)
    grad_a, i, sum_e = torch.empty_like(y), torch.empty_like(grad_i), y.new_empty(T * B)
    if B > 0:
        with launching(y):
            select_gradients[(T * B,)](
                grad_i, h_short, S, scale, grad_i, grad_a, i, sum_e, N, padded(N), num_warps=row_warps(padded(N))
            )
    grad_W_s = torch.mm(g.flatten(0, 1).T, i)
    grad_W_ss, grad_b_s = torch.mm(grad_a.flatten(0, 1).T, h_short.flatten(0, 1)), grad_a.sum((0, 1))
    grad_W_ls = weight_gradient(grad_a, y, h0)
    grad_h_short = grad_i.view_as(y)  # overwritten in place
    return grad_h_short, grad_W_ss, grad_b_s, grad_W_ls, grad_W_s, grad_U, -sum_e.sum(), grad_b_long, grad_h0


KERNELS = Kernels(
    ON_CHIP,
    resident=(select_forward_resident,),
    elements=(select_long_step,),
    rows=(select_gate_step, select_gradients),
)
