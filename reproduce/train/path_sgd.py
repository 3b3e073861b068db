"""Path-SGD for a relu RNN (Neyshabur, Wu, Salakhutdinov, Srebro 2016).

A relu network does not change when the weights into a unit are multiplied by c > 0 and those out of it by 1/c, but
the steps of SGD do. Path-SGD's do not:

    (1)  p ← p − η g / κ(p)
    (2)  κ(p) = ∂γ²/∂(p²),    γ² = Σ over all paths from an input to an output of Π_{e in path} w_e²

The paths are those of the network unrolled over the T steps of a sequence, to every output that the loss reads; a
weight counts at each step where a path uses it. (2) is the first of the two terms of their κ, which is all that they
use. Because γ² is the sum of the outputs of the same network with squared weights, inputs 1 and no non-linearity, one
forward and one backward pass compute it. A bias is the weight of an input that is always 1.

κ is divided by the mean of κ(p) p² over all weights, so that rates do not depend on the number of paths; this mean
is the same for all rescalings of a network, which a mean of κ alone would not be.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from models.rnn import RNN, RNNCell
from reproduce.train.network import Network, Objective

TINY = 1e-300
"""Added to squared weights: relu is the identity on what is positive, and 0 is not."""


class PathSGD(torch.optim.Optimizer):
    """``refresh``: updates between two computations of κ. ``floor``: the least κ, after its division by the mean.

    Its memory is ``kappa`` and ``step`` of each parameter.
    """

    takes_objective = True

    def __init__(self, groups: list[dict[str, Any]], lr: float, *, refresh: int = 10, floor: float = 1e-8):
        if isinstance(refresh, bool) or not isinstance(refresh, int) or refresh < 1:
            raise ValueError(f"optimiser: refresh={refresh!r} is not a positive whole number")
        if not floor > 0:
            raise ValueError(f"optimiser: floor={floor!r} is not a positive number")
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.refresh, self.floor = refresh, floor

    def step(self, objective: Objective) -> Tensor:  # type: ignore[override]
        """One update from the clipped gradient of the batch; returns the loss before it."""
        loss = objective()
        parameters = [p for group in self.param_groups for p in group["params"]]
        if not self.state or int(self.state[parameters[0]]["step"]) % self.refresh == 0:
            self._refresh(objective.network, len(objective.x), parameters)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    gradient = p.grad.add(p, alpha=group["weight_decay"])
                    p.addcdiv_(gradient, state["kappa"], value=-group["lr"])
                    state["step"] += 1
        return loss

    def _refresh(self, network: Network, T: int, parameters: list[nn.Parameter]) -> None:
        found = path_sums(network, T)
        kappas = [found[p] for p in parameters]
        total = sum((kappa * p.detach().double().square()).sum() for p, kappa in zip(parameters, kappas, strict=True))
        mean = total / sum(p.numel() for p in parameters)
        for p, kappa in zip(parameters, kappas, strict=True):
            state = self.state[p]
            state["kappa"] = (kappa / mean).clamp_(min=self.floor).to(p.dtype)
            state.setdefault("step", torch.zeros((), dtype=torch.float32))


def path_sums(network: Network, T: int) -> dict[nn.Parameter, Tensor]:
    """κ of equation (2), in double precision, for each parameter of a network that reads sequences of T steps."""
    _check(network)
    squares = {name: (p.detach().double().square() + TINY).requires_grad_() for name, p in network.named_parameters()}
    device = next(network.parameters()).device
    ones = torch.ones(T, 1, network.model.input_size, dtype=torch.float64, device=device)
    with torch.enable_grad():
        y, _ = functional_call(network.model, _within("model.", squares), (ones,))  # (T, 1, N)
        outputs = functional_call(network.readout, _within("readout.", squares), (y, ones))
        kappas = torch.autograd.grad(outputs.sum(), list(squares.values()))
    return dict(zip(network.parameters(), kappas, strict=True))


def _check(network: Network) -> None:
    model = network.model
    cells = [cell for cell in model.cells if isinstance(cell, RNNCell)] if isinstance(model, RNN) else []
    if not cells or any(cell.nonlinearity != "relu" for cell in cells):
        raise ValueError(f"optimiser: path-sgd knows the paths of relu RNNs alone, and this is {model!r}")
    if model.norm is not None or model.dropout not in (0.0, (0.0, 0.0), [0.0, 0.0]) or model.start_noise:
        raise ValueError(f"optimiser: path-sgd takes neither norm nor noise in the network, and this is {model!r}")
    if network.input is not None and list(network.input.parameters()):
        raise ValueError("optimiser: path-sgd knows no paths through an input with parameters; use one-hot vectors")


def _within(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
