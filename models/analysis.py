"""Gradient control (paper §IV-B) measured on real weights.

All functions look at the last layer of a network in evaluation mode, for the first sample of ``x``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from models.base import Cell
from models.durnn import DuRNNCell
from models.nets import Lockstep, RecurrentNet
from models.states import LayerState


def jacobian(net: RecurrentNet, x: Tensor, lag: int, of: str = "h", wrt: str = "h") -> Tensor:
    """``∂of_T/∂wrt_{T−lag}`` of the last layer, all other states of step T−lag held fixed.

    x: (T, B, M) -> (width of ``of``, width of ``wrt``), row i for unit i of ``of``. The cut gradients of DuRNN are cut
    here as well, so that this is what back-propagation multiplies by.
    """
    cell, inputs, state = _state_before(net, x, lag)
    for name in (of, wrt):
        if name not in cell.states:
            raise ValueError(f"{type(net).__name__} has no state {name!r}; it has {', '.join(cell.states)}.")
    N, order = cell.states[of], list(cell.states)
    # One backward pass gives all rows: N copies of the sample, unit i of copy i as the loss.
    copies = [s.expand(N, -1).clone().requires_grad_() for s in state]
    with _evaluating(cell), torch.enable_grad():
        _, final = cell(inputs.expand(-1, N, -1), tuple(copies))
        target, source = final[order.index(of)], copies[order.index(wrt)]
        (rows,) = torch.autograd.grad(target.diagonal().sum(), source, allow_unused=True)
    return torch.zeros_like(source) if rows is None else rows


def jacobian_norms(
    net: RecurrentNet, x: Tensor, lags: Iterable[int], of: str = "h", wrt: str = "h"
) -> dict[int, float]:
    """Spectral norms ``‖∂of_T/∂wrt_{T−k}‖₂`` for each lag k."""
    return {lag: _spectral_norm(jacobian(net, x, lag, of, wrt)) for lag in lags}


def short_to_long_jacobian(net: RecurrentNet, x: Tensor, lag: int) -> Tensor:
    """``∂h_T/∂h~_{T−lag}`` of a DuRNN in total, that is including the path through ``h_{T−lag}`` (§IV-B)."""
    cell = _durnn_cell(net)
    through_long = jacobian(net, x, lag) if lag else torch.eye(cell.hidden_size, dtype=x.dtype)
    through_short = jacobian(net, x, lag, wrt="h_short") if lag else 0
    return through_short + through_long @ selection_jacobian(net, x, lag)


def selection_jacobian(net: RecurrentNet, x: Tensor, lag: int) -> Tensor:
    """``dS_t = ∂h_t/∂h~_t = diag(σ'_s) W_s diag(S_t)`` at t = T−lag, Eq. (10) as a Jacobian (N, N)."""
    cell = _durnn_cell(net)
    _, inputs, state = _state_before(net, x, lag + 1)
    with torch.no_grad():
        _, (new_short, new_long) = cell.step(cell.project(inputs[:1])[0], state)
        S = cell.select(new_short, state[1])
    return torch.diag((new_long[0] > 0).to(x.dtype)) @ cell.W_s.detach() @ torch.diag(S[0])


def gradient_bound(net: RecurrentNet) -> float:
    """``s γ / (1 − δ)`` of §IV-B, with ``s = ‖W_s‖₂``, which bounds every ``‖dS_t‖`` because ``S_t <= 1``.

    With δ = 1 there is no bound: infinite.
    """
    cell = _durnn_cell(net)
    assert net.length is not None
    gamma = max(1.0, cell.u_max) ** net.length
    return _spectral_norm(cell.W_s.detach()) * gamma / (1 - cell.delta) if cell.delta < 1 else math.inf


def has_gradient_bound(net: RecurrentNet) -> bool:
    """Whether §IV-B speaks of this network: a DuRNN with both halves and the selection, without normalisation."""
    cell = net.cells[-1]
    return isinstance(cell, DuRNNCell) and cell.selection and cell.short == "full" and net.norm is None


def _durnn_cell(net: RecurrentNet) -> DuRNNCell:
    if not has_gradient_bound(net):
        raise ValueError(
            f"{net!r} is not a full DuRNN without normalisation, for which alone §IV-B states this quantity."
        )
    return cast(DuRNNCell, net.cells[-1])


def _state_before(net: RecurrentNet, x: Tensor, lag: int) -> tuple[Cell, Tensor, LayerState]:
    """Last layer, its inputs in the last ``lag`` steps (lag, 1, M), and its states before them, each (1, width)."""
    T = x.shape[0]
    if not 0 <= lag <= T:
        raise ValueError(f"lag={lag} is not within the {T} steps of x.")
    if isinstance(net, Lockstep):
        raise ValueError(f"{net!r} runs its layers in lockstep; the Jacobian of one layer by itself is not defined.")
    *below, cell = net.cells
    inputs = x[:, :1]
    with torch.no_grad(), _evaluating(net):
        for lower in below:
            inputs, _ = lower(inputs)
        state = cell.initial(1, x)
        if lag < T:
            _, state = cell(inputs[: T - lag], state)
    return cell, inputs[T - lag :], state


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def _spectral_norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))
