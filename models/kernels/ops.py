"""The fused recurrences as torch operators, independent of who computes them.

Each recurrence is a pair of operators in the namespace ``durnn``. The forward operator returns the sequence and
the tensors that its backward wants saved; the backward operator returns one gradient per forward input. Both call
the function of the same name in the implementation of the tensors' device, ``IMPLEMENTATIONS``. That function gets
contiguous, checked, non-empty tensors of one dtype (float32 or float64) on one device, and returns newly allocated
contiguous ones.

Shapes: T steps, B samples, N units; ``y`` is (T, B, N), ``y_{-1}`` means ``h0``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from models.kernels.checks import SHAPES, check_activation, check_same_kind, check_shapes

IMPLEMENTATIONS: dict[str, str] = {"cpu": "models.kernels.cpu", "cuda": "models.kernels.triton_scan"}
"""Device type -> module with the functions ``rnn_forward``, ``rnn_backward``, … and ``available() -> bool``."""

DTYPES = (torch.float32, torch.float64)


def implementation(device_type: str) -> ModuleType:
    """Module that computes the fused recurrences on a device; ValueError if there is none."""
    if device_type not in IMPLEMENTATIONS:
        raise ValueError(f"no fused recurrences for device type {device_type!r}; use backend='reference'.")
    return importlib.import_module(IMPLEMENTATIONS[device_type])


def _check(op: str, tensors: dict[str, Tensor]) -> None:
    check_shapes(op, tensors)
    check_same_kind(op, tensors)
    dtype = next(iter(tensors.values())).dtype
    if dtype not in DTYPES:
        raise ValueError(f"{op}: the fused recurrences take float32 or float64, got {dtype}; use backend='reference'.")


def _check_like(op: str, name: str, tensor: Tensor, shape: tuple[int, ...], model: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{op}: {name} must be a torch.Tensor, got {type(tensor).__name__}.")
    if tuple(tensor.shape) != shape or tensor.dtype != model.dtype or tensor.device != model.device:
        raise ValueError(
            f"{op}: {name} must have shape {shape}, {model.dtype} on {model.device}, got {tuple(tensor.shape)}, "
            f"{tensor.dtype} on {tensor.device}."
        )


def _run(name: str, tensors: tuple[Tensor, ...], *options: Any) -> Any:
    module = implementation(tensors[0].device.type)
    with torch.no_grad():
        return getattr(module, name)(*(tensor.contiguous() for tensor in tensors), *options)


def _or_zeros(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else grad


# rnn_scan: y_t = act(u_t + W_rec y_{t-1})


@torch.library.custom_op("durnn::rnn_forward", mutates_args=())
def rnn_forward(u: Tensor, W_rec: Tensor, h0: Tensor, activation: str) -> Tensor:
    """u: (T, B, N), W_rec: (N, N), h0: (B, N), activation: relu or tanh -> y (T, B, N)"""
    _check("rnn_scan", {"u": u, "W_rec": W_rec, "h0": h0})
    check_activation("rnn_scan", activation)
    return _run("rnn_forward", (u, W_rec, h0), activation)


@rnn_forward.register_fake
def _(u: Tensor, W_rec: Tensor, h0: Tensor, activation: str) -> Tensor:
    return u.new_empty(u.shape)


@torch.library.custom_op("durnn::rnn_backward", mutates_args=())
def rnn_backward(
    grad_y: Tensor, W_rec: Tensor, h0: Tensor, y: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """``g_t = act'(y_t) ∘ (grad_y_t + W_recᵀ g_{t+1})`` -> grad_u, grad_W_rec, grad_h0

    grad_u = g, grad_W_rec = Σ g_t y_{t-1}ᵀ, grad_h0 = W_recᵀ g_0; relu' is 1 where y > 0, tanh' is 1 − y².
    """
    _check("rnn_scan", {"u": y, "W_rec": W_rec, "h0": h0})
    check_activation("rnn_scan", activation)
    _check_like("rnn_backward", "grad_y", grad_y, tuple(y.shape), y)
    return _run("rnn_backward", (grad_y, W_rec, h0, y), activation)


@rnn_backward.register_fake
def _(grad_y: Tensor, W_rec: Tensor, h0: Tensor, y: Tensor, activation: str) -> tuple[Tensor, Tensor, Tensor]:
    return y.new_empty(y.shape), W_rec.new_empty(W_rec.shape), h0.new_empty(h0.shape)


def _rnn_setup(ctx: Any, inputs: tuple, output: Tensor) -> None:
    _u, W_rec, h0, ctx.activation = inputs
    ctx.save_for_backward(W_rec, h0, output)


def _rnn_autograd(ctx: Any, grad_y: Tensor | None) -> tuple:
    W_rec, h0, y = ctx.saved_tensors
    return (*rnn_backward(_or_zeros(grad_y, y), W_rec, h0, y, ctx.activation), None)


rnn_forward.register_autograd(_rnn_autograd, setup_context=_rnn_setup)


# indrnn_scan: y_t = relu(u_t + U ∘ y_{t-1})


@torch.library.custom_op("durnn::indrnn_forward", mutates_args=())
def indrnn_forward(u: Tensor, U: Tensor, h0: Tensor) -> Tensor:
    """u: (T, B, N), U: (N,), h0: (B, N) -> y (T, B, N)"""
    _check("indrnn_scan", {"u": u, "U": U, "h0": h0})
    return _run("indrnn_forward", (u, U, h0))


@indrnn_forward.register_fake
def _(u: Tensor, U: Tensor, h0: Tensor) -> Tensor:
    return u.new_empty(u.shape)


@torch.library.custom_op("durnn::indrnn_backward", mutates_args=())
def indrnn_backward(grad_y: Tensor, U: Tensor, h0: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1})`` -> grad_u = g, grad_U = Σ g_t ∘ y_{t-1}, grad_h0 = U ∘ g_0"""
    _check("indrnn_scan", {"u": y, "U": U, "h0": h0})
    _check_like("indrnn_backward", "grad_y", grad_y, tuple(y.shape), y)
    return _run("indrnn_backward", (grad_y, U, h0, y))


@indrnn_backward.register_fake
def _(grad_y: Tensor, U: Tensor, h0: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return y.new_empty(y.shape), U.new_empty(U.shape), h0.new_empty(h0.shape)


def _indrnn_setup(ctx: Any, inputs: tuple, output: Tensor) -> None:
    _u, U, h0 = inputs
    ctx.save_for_backward(U, h0, output)


def _indrnn_autograd(ctx: Any, grad_y: Tensor | None) -> tuple:
    U, h0, y = ctx.saved_tensors
    return indrnn_backward(_or_zeros(grad_y, y), U, h0, y)


indrnn_forward.register_autograd(_indrnn_autograd, setup_context=_indrnn_setup)


# select_scan: S_t = relu(mm(W_ss h~_t + W_ls y_{t-1} + b_s) − b_thre),
#              y_t = relu(W_s (S_t ∘ h~_t) + U ∘ y_{t-1} + b_long)


@torch.library.custom_op("durnn::select_forward", mutates_args=())
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
    """h_short: (T, B, N), W_ss, W_ls, W_s: (N, N), b_s, U, b_long: (N,), b_thre: (), h0: (B, N)
    -> y, S (T, B, N), scale (T, B)

    ``scale = mm' = 1/max(max v − min v, MM_FLOOR)`` of ``v = W_ss h~_t + W_ls y_{t-1} + b_s``.
    """
    tensors = (h_short, W_ss, b_s, W_ls, W_s, U, b_thre, b_long, h0)
    _check("select_scan", dict(zip(SHAPES["select_scan"], tensors, strict=True)))
    return _run("select_forward", tensors)


@select_forward.register_fake
def _(
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
    return h_short.new_empty(h_short.shape), h_short.new_empty(h_short.shape), h_short.new_empty(h_short.shape[:2])


@torch.library.custom_op("durnn::select_backward", mutates_args=())
def select_backward(
    grad_y: Tensor, h_short: Tensor, W_s: Tensor, U: Tensor, h0: Tensor, y: Tensor, S: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Elementwise reverse scan, then products over many steps at once (the gradients of S into h~_t, y_{t-1} are cut).

    ``g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1})``, ``d_t = W_sᵀ g_t``, ``e_t = [S_t > 0] ∘ h~_t ∘ d_t``,
    ``c_t = scale ∘ e_t`` -> grad_h_short = S ∘ d, grad_W_ss = Σ c_t h~_tᵀ, grad_b_s = Σ c_t,
    grad_W_ls = Σ c_t y_{t-1}ᵀ, grad_W_s = Σ g_t (S_t ∘ h~_t)ᵀ, grad_U = Σ g_t ∘ y_{t-1}, grad_b_thre = −Σ e,
    grad_b_long = Σ g_t, grad_h0 = U ∘ g_0
    """
    named = {"h_short": h_short, "W_ss": W_s, "b_s": U, "W_ls": W_s, "W_s": W_s, "U": U, "b_long": U, "h0": h0}
    _check("select_scan", named | {"b_thre": U.new_empty(())})
    for name, tensor in (("grad_y", grad_y), ("y", y), ("S", S)):
        _check_like("select_backward", name, tensor, tuple(h_short.shape), h_short)
    _check_like("select_backward", "scale", scale, tuple(h_short.shape[:2]), h_short)
    return _run("select_backward", (grad_y, h_short, W_s, U, h0, y, S, scale))


@select_backward.register_fake
def _(
    grad_y: Tensor, h_short: Tensor, W_s: Tensor, U: Tensor, h0: Tensor, y: Tensor, S: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    models = (h_short, W_s, U, W_s, W_s, U, U[0], U, h0)
    o = [model.new_empty(model.shape) for model in models]
    return o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], o[8]


def _select_setup(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    h_short, _W_ss, _b_s, _W_ls, W_s, U, _b_thre, _b_long, h0 = inputs
    y, S, scale = output
    ctx.mark_non_differentiable(S, scale)
    ctx.set_materialize_grads(False)  # no sequences of zeros for outputs that have no gradient
    ctx.save_for_backward(h_short, W_s, U, h0, y, S, scale)


def _select_autograd(ctx: Any, grad_y: Tensor | None, _grad_S: Any, _grad_scale: Any) -> tuple:
    h_short, W_s, U, h0, y, S, scale = ctx.saved_tensors
    return select_backward(_or_zeros(grad_y, y), h_short, W_s, U, h0, y, S, scale)


select_forward.register_autograd(_select_autograd, setup_context=_select_setup)


# lstm_scan: [i f g o] = u_t + W_rec y_{t-1}, c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g), y_t = σ(o) ∘ tanh(c_t)


@torch.library.custom_op("durnn::lstm_forward", mutates_args=())
def lstm_forward(u: Tensor, W_rec: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u: (T, B, 4N), W_rec: (4N, N), h0, c0: (B, N) -> y (T, B, N), last cell (B, N), gates (T, B, 4N), cells (T, B, N)

    ``gates`` holds σ(i), σ(f), tanh(g), σ(o) in this order.
    """
    _check("lstm_scan", {"u": u, "W_rec": W_rec, "h0": h0, "c0": c0})
    return _run("lstm_forward", (u, W_rec, h0, c0))


@lstm_forward.register_fake
def _(u: Tensor, W_rec: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sequence = (u.shape[0], *h0.shape)
    return u.new_empty(sequence), c0.new_empty(c0.shape), u.new_empty(u.shape), u.new_empty(sequence)


@torch.library.custom_op("durnn::lstm_backward", mutates_args=())
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
    """grad_y: (T, B, N), grad_c: (B, N) of the last cell -> grad_u (T, B, 4N), grad_W_rec (4N, N), grad_h0, grad_c0"""
    _check("lstm_scan", {"u": gates, "W_rec": W_rec, "h0": h0, "c0": c0})
    for name, tensor in (("grad_y", grad_y), ("y", y), ("cells", cells)):
        _check_like("lstm_backward", name, tensor, (gates.shape[0], *h0.shape), gates)
    _check_like("lstm_backward", "grad_c", grad_c, tuple(c0.shape), c0)
    return _run("lstm_backward", (grad_y, grad_c, W_rec, h0, c0, y, gates, cells))


@lstm_backward.register_fake
def _(
    grad_y: Tensor,
    grad_c: Tensor,
    W_rec: Tensor,
    h0: Tensor,
    c0: Tensor,
    y: Tensor,
    gates: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    outputs = [model.new_empty(model.shape) for model in (gates, W_rec, h0, c0)]
    return outputs[0], outputs[1], outputs[2], outputs[3]


def _lstm_setup(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    _u, W_rec, h0, c0 = inputs
    y, _c_last, gates, cells = output
    ctx.mark_non_differentiable(gates, cells)
    ctx.set_materialize_grads(False)  # no sequences of zeros for outputs that have no gradient
    ctx.save_for_backward(W_rec, h0, c0, y, gates, cells)


def _lstm_autograd(ctx: Any, grad_y: Tensor | None, grad_c: Tensor | None, *_saved: Any) -> tuple:
    W_rec, h0, c0, y, gates, cells = ctx.saved_tensors
    grad_y, grad_c = _or_zeros(grad_y, y), _or_zeros(grad_c, c0)
    return lstm_backward(grad_y, grad_c, W_rec, h0, c0, y, gates, cells)


lstm_forward.register_autograd(_lstm_autograd, setup_context=_lstm_setup)
