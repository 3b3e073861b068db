"""What the Triton recurrences share: sizes that stay on chip, the precision of products, launching, small maths."""
# mypy: disable-error-code="no-untyped-def"
# Kernels take pointers and constexprs, which have no Python types; every function a caller sees is annotated.

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED: bool = bool(triton.knobs.runtime.interpret)
"""True if ``TRITON_INTERPRET=1`` was set when the kernels were defined: they then take CPU tensors."""

BLOCK_B = 16
"""Samples per program of a resident kernel, the smallest block of rows that ``tl.dot`` takes."""

ELEMENTS = 128
"""Elements per program of an elementwise kernel, one per thread."""

PRECISIONS = ("ieee", "tf32", "tf32x3")


@dataclass(frozen=True)
class OnChip:
    """Which layers a resident kernel keeps on chip, in shared memory.

    weights: N×N matrices that it multiplies by in each step. units: the largest padded N, by precision of float32
    products: the largest that compiles without spills for sm_80 and sm_90, as test_kernels_triton_aot.py holds. A GPU
    with less shared memory keeps fewer.
    """

    weights: int
    units: Mapping[str, int]

    def shared_bytes(self, block_n: int, precision: str) -> int:
        """Upper bound of a kernel's shared memory: its weights, and 24 KB for states between layouts."""
        copies = self.weights * (2 if precision == "tf32x3" else 1)  # TF32x3 keeps the rounded part and the rest
        return copies * block_n * block_n * 4 + 24 * 1024

    def fits(self, units: int, dtype: torch.dtype, precision: str, limit: int) -> bool:
        """True if the weights of N units stay in ``limit`` bytes of shared memory; those of float64 never do."""
        block_n = padded(units)
        small = dtype == torch.float32 and block_n <= self.units[precision]
        return small and self.shared_bytes(block_n, precision) <= limit

    def holds(self, units: int, tensor: Tensor, precision: str) -> bool:
        """``fits`` for a tensor's dtype and device."""
        return self.fits(units, tensor.dtype, precision, shared_limit(tensor))


@dataclass(frozen=True)
class Kernels:
    """The kernels of a recurrence, for whoever compiles them ahead of time.

    resident: with products inside, for ``on_chip``. elements: one element per thread. rows: one sample per program.
    variants: the constants that the first two kinds are compiled with, each kernel taking those that it knows.
    """

    on_chip: OnChip | None = None
    resident: tuple[Any, ...] = ()
    elements: tuple[Any, ...] = ()
    rows: tuple[Any, ...] = ()
    variants: tuple[Mapping[str, Any], ...] = ({},)


def padded(units: int) -> int:
    """Width of the block that holds N units: the next power of two, at least 16 (``tl.dot``'s smallest)."""
    return max(16, triton.next_power_of_2(units))


def warps(block_n: int) -> int:
    """Warps of a resident kernel: enough threads that each one's share of a product fits its registers."""
    return 8 if block_n >= 64 else 4


def row_warps(block_n: int) -> int:
    """Warps of a kernel with one sample per program."""
    return min(16, max(1, block_n // 256))


def dot_precision(precision: str | None, dtype: torch.dtype) -> str:
    """How a kernel multiplies float32 matrices: ``ieee``, ``tf32`` or ``tf32x3`` (three TF32 products).

    ``None`` follows torch's own switch, as ``torch.mm`` does: ``ieee`` unless TF32 has been allowed by
    ``torch.set_float32_matmul_precision("high")`` or ``torch.backends.cuda.matmul.fp32_precision = "tf32"``.
    float64 is always ``ieee``.
    """
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"precision must be None or one of {', '.join(PRECISIONS)}, got {precision!r}.")
    if dtype == torch.float64:
        return "ieee"
    return precision or ("tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee")


def shared_limit(tensor: Tensor) -> int:
    """Shared memory that one program can have on the tensor's device, in bytes; sm_80's in the interpreter."""
    if not tensor.is_cuda:
        return 163 * 1024
    properties = torch.cuda.get_device_properties(tensor.device)
    return getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)


def launching(tensor: Tensor) -> AbstractContextManager[object]:
    """Context in which kernels run on the tensor's device; ValueError where they cannot run."""
    if tensor.is_cuda:
        return torch.cuda.device(tensor.device)
    if INTERPRETED and tensor.device.type == "cpu":
        return nullcontext()
    raise ValueError(
        f"the Triton recurrences take CUDA tensors, got one on {tensor.device}; on a CPU they run only in Triton's "
        "interpreter, with TRITON_INTERPRET=1 set before the first import of triton."
    )


def programs(elements: int, block: int) -> tuple[int]:
    """Grid of a kernel with one program per block; never empty, since a launch of nothing is an error."""
    return (max(1, triton.cdiv(elements, block)),)


def projection_gradients(grad_u: Tensor, x: Tensor, W_in: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``u = W_in x + b``: grad_u (T, B, N), x (T, B, I) -> of x (T, B, I), W_in (N, I) and b (N,).

    Without W_in that of x is not wanted, and zero.
    """
    rows = grad_u.flatten(0, 1)  # (T B, N)
    grad_x = torch.zeros_like(x) if W_in is None else grad_u @ W_in
    return grad_x, rows.T @ x.flatten(0, 1), rows.sum(0)


@triton.jit
def weight_rows(weight, first_row, first, N, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Rows first … first + ROWS of an N×N matrix (or of its transpose), zero-padded to BLOCK_N columns."""
    i = first + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, BLOCK_N)[None, :]
    at = (first_row + j) * N + i if TRANSPOSED else (first_row + i) * N + j
    return tl.load(weight + at, mask=(i < N) & (j < N), other=0.0)


@triton.jit
def load_weight(weight, first_row, N, BLOCK_N: tl.constexpr, TRANSPOSED: tl.constexpr, PRECISION: tl.constexpr):
    """Rows first_row … first_row + N of a weight with N columns, as ``multiply_add`` wants them.

    An IEEE product puts whole columns of its weight into the registers of one thread, too many from 64 rows on:
    such a weight comes in quarters or eighths, to be multiplied one after the other.
    """
    if PRECISION == "ieee" and BLOCK_N >= 128:
        ROWS: tl.constexpr = BLOCK_N // 8
        return (
            weight_rows(weight, first_row, 0, N, ROWS, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, ROWS, N, ROWS, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 2 * ROWS, N, ROWS, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 3 * ROWS, N, ROWS, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 4 * ROWS, N, ROWS, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 5 * ROWS, N, ROWS, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 6 * ROWS, N, ROWS, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 7 * ROWS, N, ROWS, BLOCK_N, TRANSPOSED),
        )
    elif PRECISION == "ieee" and BLOCK_N == 64:
        return (
            weight_rows(weight, first_row, 0, N, 16, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 16, N, 16, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 32, N, 16, BLOCK_N, TRANSPOSED),
            weight_rows(weight, first_row, 48, N, 16, BLOCK_N, TRANSPOSED),
        )
    else:
        return (weight_rows(weight, first_row, 0, N, BLOCK_N, BLOCK_N, TRANSPOSED),)


@triton.jit
def halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def multiply_halves(x, w_0, w_1, total, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    x_0, x_1 = halves(x, ROWS, COLUMNS)
    total = tl.dot(x_0, w_0, acc=total, input_precision="ieee", out_dtype=total.dtype)
    return tl.dot(x_1, w_1, acc=total, input_precision="ieee", out_dtype=total.dtype)


@triton.jit
def multiply_quarters(x, w_0, w_1, w_2, w_3, total, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    x_0, x_1 = halves(x, ROWS, COLUMNS)
    total = multiply_halves(x_0, w_0, w_1, total, ROWS, COLUMNS // 2)
    return multiply_halves(x_1, w_2, w_3, total, ROWS, COLUMNS // 2)


@triton.jit
def multiply_add(x, weight, total, PRECISION: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr):
    """``x @ weight + total`` for a weight from ``load_weight``"""
    if PRECISION == "ieee" and BLOCK_N >= 128:
        x_0, x_1 = halves(x, BLOCK_B, BLOCK_N)
        w_0, w_1, w_2, w_3, w_4, w_5, w_6, w_7 = weight
        total = multiply_quarters(x_0, w_0, w_1, w_2, w_3, total, BLOCK_B, BLOCK_N // 2)
        return multiply_quarters(x_1, w_4, w_5, w_6, w_7, total, BLOCK_B, BLOCK_N // 2)
    elif PRECISION == "ieee" and BLOCK_N == 64:
        w_0, w_1, w_2, w_3 = weight
        return multiply_quarters(x, w_0, w_1, w_2, w_3, total, BLOCK_B, BLOCK_N)
    else:
        return tl.dot(x, weight[0], acc=total, input_precision=PRECISION, out_dtype=total.dtype)


@triton.jit
def load_gates(gates, at, N, mask):
    """The four values of each unit that backward needs; ``at`` is where the first stands."""
    return (
        tl.load(gates + at, mask=mask, other=0.0),
        tl.load(gates + at + N, mask=mask, other=0.0),
        tl.load(gates + at + 2 * N, mask=mask, other=0.0),
        tl.load(gates + at + 3 * N, mask=mask, other=0.0),
    )


@triton.jit
def store_gates(gates, at, N, first, second, third, fourth, mask):
    tl.store(gates + at, first, mask=mask)
    tl.store(gates + at + N, second, mask=mask)
    tl.store(gates + at + 2 * N, third, mask=mask)
    tl.store(gates + at + 3 * N, fourth, mask=mask)


@triton.jit
def relu(x):
    return tl.where(x <= 0, 0.0, x)  # unlike tl.maximum, keeps NaN, so that divergence shows


@triton.jit
def through_relu(grad, y):
    """Gradient of relu's argument, for relu's value y; through NaN, as in torch."""
    return tl.where(y <= 0, 0.0, grad)


@triton.jit
def sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x):
    # The quotient loses the low digits of a small x, the series (next term: x¹¹/113) those of a large one.
    decay = tl.exp(-2 * tl.abs(x))
    quotient = (1 - decay) / (1 + decay)
    square = x * x
    series = x * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315 - square * (62 / 2835)))))
    return tl.where(tl.abs(x) < 0.04, series, tl.where(x < 0, -quotient, quotient))
