"""Gradient control (paper §IV-B) measured on real weights.

All functions look at the last layer of a network in evaluation mode, for the first sample of ``x``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from models.base import RecurrentLayer, RecurrentNet
from models.durnn import DuRNNLayer


def jacobian(net: RecurrentNet, x: Tensor, lag: int, of: str = "h", wrt: str = "h") -> Tensor:
    """``∂of_T/∂wrt_{T−lag}`` of the last layer, all other states of step T−lag held fixed.

    x: (T, B, M) -> (N, N), row i for unit i of ``of``. The cut gradients of DuRNN are cut here as well, so that this
    is what back-propagation multiplies by.
    """
    layer, inputs, state = _state_before(net, x, lag)
    for name in (of, wrt):
        if name not in layer.states:
            raise ValueError(f"{type(net).__name__} has no state {name!r}; it has {', '.join(layer.states)}.")
    N = layer.hidden_size
    # One backward pass gives all rows: N copies of the sample, unit i of copy i as the loss.
    copies = [s.expand(N, N).clone().requires_grad_() for s in state]
    with _evaluating(layer), torch.enable_grad():
        _, final = layer(inputs.expand(-1, N, -1), tuple(copies))
        target = final[layer.states.index(of)]
        (rows,) = torch.autograd.grad(target.diagonal().sum(), copies[layer.states.index(wrt)], allow_unused=True)
    return torch.zeros(N, N, dtype=x.dtype) if rows is None else rows


def jacobian_norms(
    net: RecurrentNet, x: Tensor, lags: Iterable[int], of: str = "h", wrt: str = "h"
) -> dict[int, float]:
    """Spectral norms ``‖∂of_T/∂wrt_{T−k}‖₂`` for each lag k."""
    return {lag: _spectral_norm(jacobian(net, x, lag, of, wrt)) for lag in lags}


def short_to_long_jacobian(net: RecurrentNet, x: Tensor, lag: int) -> Tensor:
    """``∂h_T/∂h~_{T−lag}`` of a DuRNN in total, that is including the path through ``h_{T−lag}`` (§IV-B)."""
    layer = _durnn_layer(net)
    through_long = jacobian(net, x, lag) if lag else torch.eye(layer.hidden_size, dtype=x.dtype)
    through_short = jacobian(net, x, lag, wrt="h_short") if lag else 0
    return through_short + through_long @ selection_jacobian(net, x, lag)


def selection_jacobian(net: RecurrentNet, x: Tensor, lag: int) -> Tensor:
    """``dS_t = ∂h_t/∂h~_t = diag(σ'_s) W_s diag(S_t)`` at t = T−lag, Eq. (10) as a Jacobian (N, N)."""
    layer = _durnn_layer(net)
    _, inputs, (h_short, h) = _state_before(net, x, lag + 1)
    with torch.no_grad():
        new_short, new_long = layer.step(inputs[0], h_short, h)
        S = layer.select(new_short, h)
    return torch.diag((new_long[0] > 0).to(x.dtype)) @ layer.W_s.detach() @ torch.diag(S[0])


def gradient_bound(net: RecurrentNet) -> float:
    """``s γ / (1 − δ)`` of §IV-B, with ``s = ‖W_s‖₂``, which bounds every ``‖dS_t‖`` because ``S_t <= 1``."""
    layer = _durnn_layer(net)
    assert net.length is not None
    gamma = max(1.0, layer.u_max) ** net.length
    return _spectral_norm(layer.W_s.detach()) * gamma / (1 - layer.delta)


def _durnn_layer(net: RecurrentNet) -> DuRNNLayer:
    layer = net.layers[-1]
    if not isinstance(layer, DuRNNLayer) or not layer.selection or layer.short != "full" or net.norm is not None:
        raise ValueError(
            f"{net!r} is not a full DuRNN without normalisation, for which alone §IV-B states this quantity."
        )
    return layer


def _state_before(net: RecurrentNet, x: Tensor, lag: int) -> tuple[RecurrentLayer, Tensor, tuple[Tensor, ...]]:
    """Last layer, its inputs in the last ``lag`` steps (lag, 1, M), and its states before them, each (1, N)."""
    T = x.shape[0]
    if not 0 <= lag <= T:
        raise ValueError(f"lag={lag} is not within the {T} steps of x.")
    *below, layer = net.layers
    assert isinstance(layer, RecurrentLayer)
    inputs = x[:, :1]
    with torch.no_grad(), _evaluating(net):
        for lower in below:
            assert isinstance(lower, RecurrentLayer)
            inputs, _ = lower(inputs, _zero_state(lower, x))
        state = _zero_state(layer, x)
        if lag < T:
            _, state = layer(inputs[: T - lag], state)
    return layer, inputs[T - lag :], state


def _zero_state(layer: RecurrentLayer, x: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_zeros(1, layer.hidden_size) for _ in layer.states)


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
