"""The fused recurrences on a CPU: time loops in C++ (``scan.cpp``).

Functions and arguments as in ``ops.py``. The time loops give bitwise the same numbers for any number of threads;
weight gradients are summed slab by slab and so are equal to rounding.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading

import torch
from torch import Tensor

from models.kernels import reference
from models.kernels.build import BuildError, load
from models.kernels.memory import LARGE, large_tensor

SMALL = 1 << 18
"""Multiply-adds (or elements, for elementwise loops) below which a second thread costs more than it brings."""

_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_NAMES = (
    "rnn_forward",
    "rnn_backward",
    "indrnn_forward",
    "indrnn_backward",
    "select_forward",
    "select_backward",
    "lstm_forward",
    "lstm_backward",
)


class _Library:
    """Loads and checks the compiled loops once per process, at the first question for them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tried = False
        self.problem: str | None = None
        self.functions: ctypes.CDLL | None = None

    def get(self) -> ctypes.CDLL:
        if not self.tried:
            with self.lock:
                if not self.tried:
                    self._try()
        if self.functions is None:
            raise BuildError(f"the fused recurrences are not available on this CPU: {self.problem}.")
        return self.functions

    def _try(self) -> None:
        try:
            functions = load()
            for name in _NAMES:
                for suffix in _SUFFIX.values():
                    getattr(functions, f"{name}_{suffix}").restype = ctypes.c_int
            _share_threads(functions)
            self.functions = functions
            self.tried = True  # _self_check comes back through get()
            _self_check()
        except Exception as error:  # whatever is wrong with this machine, the reference path still works
            self.functions, self.problem = None, str(error).rstrip(".")
        self.tried = True


def _share_threads(functions: ctypes.CDLL) -> None:
    """Let the loops run on the OpenMP threads that torch has, where it has GNU ones; else they start their own."""
    functions.use_team.restype = None
    try:
        runtime = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD)
        functions.use_team(ctypes.cast(runtime.GOMP_parallel, ctypes.c_void_p))
    except (OSError, AttributeError):
        functions.use_team(None)


_library = _Library()
if hasattr(os, "register_at_fork"):
    # A fork while another thread is loading would leave the child a lock that nobody opens.
    os.register_at_fork(after_in_child=lambda: setattr(_library, "lock", threading.Lock()))


def available() -> bool:
    return problem() is None


def problem() -> str | None:
    """Why the fused recurrences cannot be used here, or None if they can."""
    try:
        _library.get()
    except BuildError as error:
        return str(error)
    return None


def _empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    if math.prod(shape) * like.itemsize >= LARGE:
        return large_tensor(shape, like.dtype)
    return torch.empty(shape, dtype=like.dtype)


def _call(name: str, like: Tensor, *arguments: Tensor | int | float | None) -> None:
    function = getattr(_library.get(), f"{name}_{_SUFFIX[like.dtype]}")
    converted: list[object] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            converted.append(ctypes.c_void_p(argument.data_ptr()))
        elif isinstance(argument, float):
            converted.append(ctypes.c_double(argument))
        elif argument is None:
            converted.append(ctypes.c_void_p(None))
        else:
            converted.append(ctypes.c_int64(argument))
    if function(*converted) != 0:
        raise MemoryError(f"{name}: not enough memory for the scratch of {tuple(like.shape)}.")


def _threads(work: int) -> int:
    return 1 if work < SMALL else torch.get_num_threads()


def _weight_gradient(g: Tensor, y: Tensor, h0: Tensor) -> Tensor:
    """``Σ_t g_t y_{t-1}ᵀ``; g: (T, B, M), y: (T, B, N), h0: (B, N) -> (M, N)"""
    grad = torch.mm(g[0].T, h0)
    if len(g) > 1:
        grad.addmm_(g[1:].flatten(0, 1).T, y[:-1].flatten(0, 1))
    return grad


def rnn_forward(u: Tensor, W_rec: Tensor, h0: Tensor, activation: str) -> Tensor:
    T, B, N = u.shape
    y = _empty(u.shape, u)
    _call("rnn_forward", u, u, W_rec, h0, y, T, B, N, int(activation == "tanh"), _threads(T * B * N * N))
    return y


def rnn_backward(
    grad_y: Tensor, W_rec: Tensor, h0: Tensor, y: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    T, B, N = y.shape
    g, grad_W_rec, grad_h0 = _empty(y.shape, y), _empty(W_rec.shape, y), _empty(h0.shape, y)
    tanh, threads = int(activation == "tanh"), _threads(2 * T * B * N * N)
    _call("rnn_backward", y, grad_y, W_rec, h0, y, g, grad_W_rec, grad_h0, T, B, N, tanh, threads)
    return g, grad_W_rec, grad_h0


def indrnn_forward(u: Tensor, U: Tensor, h0: Tensor) -> Tensor:
    T, B, N = u.shape
    y = _empty(u.shape, u)
    _call("indrnn_forward", u, u, U, h0, y, T, B, N, _threads(T * B * N))
    return y


def indrnn_backward(grad_y: Tensor, U: Tensor, h0: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    T, B, N = y.shape
    g, grad_U, grad_h0 = _empty(y.shape, y), _empty(U.shape, y), _empty(h0.shape, y)
    _call("indrnn_backward", y, grad_y, U, h0, y, g, grad_U, grad_h0, T, B, N, _threads(T * B * N))
    return g, grad_U, grad_h0


def select_forward(
    h_short: Tensor,
    W_ss: Tensor,
    b_s: Tensor,
    W_ls: Tensor,
    W_s: Tensor,
    U: Tensor,
    b_thre: Tensor,
    b_long: Tensor,
    h0: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    T, B, N = h_short.shape
    y, S, scale = _empty(h_short.shape, h_short), _empty(h_short.shape, h_short), _empty((T, B), h_short)
    tensors = (h_short, W_ss, b_s, W_ls, W_s, U, b_thre, b_long, h0, y, S, scale)
    _call("select_forward", h_short, *tensors, reference.MM_FLOOR, T, B, N, _threads(3 * T * B * N * N))
    return y, S, scale


def select_backward(
    grad_y: Tensor, h_short: Tensor, W_s: Tensor, U: Tensor, h0: Tensor, y: Tensor, S: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    T, B, N = y.shape
    g = [_empty(like.shape, y) for like in (h_short, W_s, U, W_s, W_s, U, U[0], U, h0)]
    _call("select_backward", y, grad_y, h_short, W_s, U, h0, y, S, scale, *g, T, B, N, _threads(4 * T * B * N * N))
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8]


def lstm_forward(u: Tensor, W_rec: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    T, (B, N) = len(u), h0.shape
    y, c_last, gates, cells = (_empty(s, u) for s in ((T, B, N), (B, N), u.shape, (T, B, N)))
    _call("lstm_forward", u, u, W_rec, h0, c0, y, c_last, gates, cells, T, B, N, _threads(4 * T * B * N * N))
    return y, c_last, gates, cells


def lstm_backward(
    grad_y: Tensor,
    grad_c: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    c0: Tensor,
    y: Tensor,
    gates: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    T, B, N = y.shape
    grad_u, grad_h0, grad_c0 = _empty(gates.shape, y), _empty(h0.shape, y), _empty(c0.shape, y)
    tensors = (grad_y, grad_c, W_rec, c0, gates, cells, grad_u, grad_h0, grad_c0)
    _call("lstm_backward", y, *tensors, T, B, N, _threads(4 * T * B * N * N))
    return grad_u, _weight_gradient(grad_u, y, h0), grad_h0, grad_c0


def _self_check() -> None:
    """Compare a few tiny sequences with the reference; BuildError if the compiled loops are wrong on this machine."""
    generator = torch.Generator().manual_seed(0)
    T, B, N = 3, 3, 5
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-10)):

        def random(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        u, W, v, h0, b = random(T, B, N), random(N, N), random(N), random(B, N), random().abs()
        gates, W_gates = random(T, B, 4 * N), random(4 * N, N)
        pairs = [
            (rnn_forward(u, W, h0, "relu"), reference.rnn_scan(u, W, h0, "relu")),
            (rnn_forward(u, W, h0, "tanh"), reference.rnn_scan(u, W, h0, "tanh")),
            (indrnn_forward(u, v, h0), reference.indrnn_scan(u, v, h0)),
            (select_forward(u, W, v, W, W, v, b, v, h0)[0], reference.select_scan(u, W, v, W, W, v, b, v, h0)),
            (lstm_forward(gates, W_gates, h0, h0)[0], reference.lstm_scan(gates, W_gates, h0, h0)[0]),
        ]
        for fused, plain in pairs:
            if not torch.allclose(fused, plain, rtol=tolerance, atol=tolerance):
                raise BuildError("the compiled loops disagree with the reference on this machine")
