"""One function per recurrence; ``backend`` chooses who computes it: ``auto``, ``reference`` or ``fused``.

``auto`` takes the fused form where it has been tried and works, else the reference with one warning per process.
``fused`` forces it and raises RuntimeError where there is none. Equations and shapes: ``reference.py``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor

from models.kernels import ops, reference
from models.kernels.checks import check_activation, check_same_kind, check_shapes

BACKENDS = ("auto", "reference", "fused")
Answer = TypeVar("Answer")


def rnn_scan(u: Tensor, W_rec: Tensor, h0: Tensor, activation: str = "relu", backend: str = "auto") -> Tensor:
    check_activation("rnn_scan", activation)
    if _use_fused("rnn_scan", {"u": u, "W_rec": W_rec, "h0": h0}, backend):
        return ops.rnn_forward(u, W_rec, h0, activation)
    return reference.rnn_scan(u, W_rec, h0, activation)


def indrnn_scan(u: Tensor, U: Tensor, h0: Tensor, backend: str = "auto") -> Tensor:
    if _use_fused("indrnn_scan", {"u": u, "U": U, "h0": h0}, backend):
        return ops.indrnn_forward(u, U, h0)
    return reference.indrnn_scan(u, U, h0)


def select_scan(
    h_short: Tensor,
    W_ss: Tensor,
    b_s: Tensor,
    W_ls: Tensor,
    W_s: Tensor,
    U: Tensor,
    b_thre: Tensor,
    b_long: Tensor,
    h0: Tensor,
    exact_minmax: bool = False,
    backend: str = "auto",
) -> Tensor:
    """``exact_minmax=True`` differentiates through min and max; only the reference can do that."""
    tensors = {
        "h_short": h_short,
        "W_ss": W_ss,
        "b_s": b_s,
        "W_ls": W_ls,
        "W_s": W_s,
        "U": U,
        "b_thre": b_thre,
        "b_long": b_long,
        "h0": h0,
    }
    lacking = "a form with exact_minmax=True" if exact_minmax else None
    if _use_fused("select_scan", tensors, backend, lacking):
        return ops.select_forward(*tensors.values())[0]
    return reference.select_scan(**tensors, exact_minmax=exact_minmax)


def lstm_scan(u: Tensor, W_rec: Tensor, h0: Tensor, c0: Tensor, backend: str = "auto") -> tuple[Tensor, Tensor]:
    if _use_fused("lstm_scan", {"u": u, "W_rec": W_rec, "h0": h0, "c0": c0}, backend):
        y, c_last, _gates, _cells = ops.lstm_forward(u, W_rec, h0, c0)
        return y, c_last
    return reference.lstm_scan(u, W_rec, h0, c0)


def gru_scan(u: Tensor, W_rec: Tensor, b_new: Tensor, h0: Tensor, backend: str = "auto") -> Tensor:
    """Has no fused form yet."""
    tensors = {"u": u, "W_rec": W_rec, "b_new": b_new, "h0": h0}
    _use_fused("gru_scan", tensors, backend, "a form of gru_scan")
    return reference.gru_scan(u, W_rec, b_new, h0)


def _use_fused(op: str, tensors: Mapping[str, Tensor], backend: str, lacking: str | None = None) -> bool:
    """Check the arguments and choose; ``lacking`` names what no fused implementation offers."""
    if backend not in BACKENDS:
        raise ValueError(f"{op}: backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    check_shapes(op, tensors)
    if backend == "reference":
        return False
    first = next(iter(tensors.values()))
    if backend == "auto":
        plain = all(t.dtype == first.dtype and t.device == first.device for t in tensors.values())
        if lacking or not plain or first.dtype not in ops.DTYPES or first.device.type not in ops.IMPLEMENTATIONS:
            return False
        return _available(first.device.type)
    if lacking:
        raise RuntimeError(f"{op}: the fused backend lacks {lacking}; use backend='auto' or 'reference'.")
    check_same_kind(op, tensors)
    problem = _problem(first.device.type)
    if problem is not None:
        raise RuntimeError(f"{op}: backend='fused' was asked for, but {problem}")
    return True


@functools.cache
def _find_problem(device_type: str) -> str | None:
    try:
        module = ops.implementation(device_type)
        if module.available():
            return None
        reason = getattr(module, "problem", lambda: None)()
        return reason or f"the fused recurrences are not available on {device_type}."
    except Exception as error:  # an implementation that cannot even be imported is one that is not there
        return f"the fused recurrences for {device_type} cannot be loaded: {error}"


_warned: set[str] = set()


def _constant_when_compiled(function: Callable[[str], Answer]) -> Callable[[str], Answer]:
    """``torch.compiler.assume_constant_result`` without importing the compiler, which would double import time."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_constant_when_compiled
def _problem(device_type: str) -> str | None:
    return _find_problem(device_type)


@_constant_when_compiled
def _available(device_type: str) -> bool:
    problem = _find_problem(device_type)
    if problem is not None and device_type not in _warned:
        _warned.add(device_type)
        warnings.warn(f"using the slow reference recurrences: {problem}", RuntimeWarning, stacklevel=4)
    return problem is None
