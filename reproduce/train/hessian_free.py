"""Hessian-free optimisation (Martens 2010) with structural damping for recurrent networks (Martens, Sutskever 2011).

One update minimises a quadratic model of the loss around the present weights θ by conjugate gradients:

    (1)  q(δ) = gᵀδ + ½ δᵀBδ,          B = JᵀHJ + λ (μ J_hᵀJ_h / (number of states) + I)

J: of the outputs with respect to θ, H: Hessian of the loss with respect to the outputs, so JᵀHJ is the Gauss–Newton
matrix; J_h: of the recurrent states, whose change the term with μ dampens. Products with B take one forward-mode pass
and one backward pass; B itself is never made.

Conjugate gradients start from a shrunken copy of where they last ended and stop when q has stopped falling. Of their
iterates the one with the lowest loss is taken, looked for from the last one backwards; a line search shortens it where
even that does not lower the loss. λ grows by 3/2 where the loss fell by less than a quarter of what q promised, and
shrinks by 2/3 where it fell by more than three quarters.

Nothing random may happen in the network, because the loss of one batch is evaluated many times.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call

from reproduce.train.network import Network, Objective

DAMPING_FACTOR = 1.5
WARM_START = 0.95  # of where conjugate gradients ended last
PATIENCE, TOLERANCE = 10, 5e-4  # stop once q fell by less than 5e-4 of itself per iteration over 10 iterations
SPACING = 1.3  # iterates 1, 2, 3, 4, 6, 7, 10, … are kept to be compared by their loss
SHORTER, ENOUGH, TRIALS = 0.8, 1e-2, 60  # line search: factor, share of the slope that a fall must reach, trials


class HessianFree(torch.optim.Optimizer):
    """damping: λ at the start. structural: μ. iterations: of conjugate gradients, at most.

    curvature: share of a batch's samples that products with B look at; gradient and losses look at all.

    Its memory is ``direction`` of each parameter, where they ended, and ``damping`` of the first one. ``evaluations``
    counts what it has cost, as multiples of a loss with its gradient: a loss alone as one, a product with B as two.
    """

    takes_objective = True

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float,
        *,
        damping: float = 1.0,
        structural: float = 0.1,
        iterations: int = 50,
        curvature: float = 1.0,
    ):
        if not damping > 0:
            raise ValueError(f"optimiser: damping={damping!r} is not a positive number")
        if not structural >= 0:
            raise ValueError(f"optimiser: structural={structural!r} is not a number from 0 up")
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
            raise ValueError(f"optimiser: iterations={iterations!r} is not a positive whole number")
        if not 0 < curvature <= 1:
            raise ValueError(f"optimiser: curvature={curvature!r} is not a share in (0, 1]")
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.damping, self.structural = damping, structural
        self.iterations, self.curvature = iterations, curvature
        self.evaluations = 0

    def step(self, objective: Objective) -> Tensor:  # type: ignore[override]
        """One update; returns the loss before it."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        rates = _flat([torch.full_like(p, g["lr"]) for g in self.param_groups for p in g["params"]])
        decay = _flat([torch.full_like(p, g["weight_decay"]) for g in self.param_groups for p in g["params"]])
        loss = objective()
        self.evaluations += 1
        outputs, state = objective.outputs, objective.state  # of the weights before the update
        theta = _flat(parameters)
        gradient = _flat([p.grad for p in parameters]) + decay * theta
        memory = [self.state[p] for p in parameters]
        damping = memory[0]["damping"].item() if "damping" in memory[0] else self.damping
        start = _flat([s["direction"] for s in memory]) if "direction" in memory[0] else torch.zeros_like(theta)

        curve = Curvature(objective, parameters, self.curvature)

        def product(v: Tensor) -> Tensor:
            self.evaluations += 2
            return curve.product(v, damping * self.structural) + (damping + decay) * v

        def loss_at(delta: Tensor) -> float:
            self.evaluations += 1
            _fill(parameters, theta + delta)
            with torch.no_grad():
                value = objective.forward().item()
            return value + 0.5 * float((decay * (theta + delta).square()).sum())

        before = loss.item() + 0.5 * float((decay * theta.square()).sum())
        iterates = conjugate_gradients(product, gradient, WARM_START * start, self.iterations)
        delta, model, after = backtrack(iterates, loss_at)
        # where the model promised nothing, the ratio says nothing, and more damping is the safe answer
        ratio = (after - before) / model if model < 0 else -1.0
        if not ratio >= 0.25:
            damping *= DAMPING_FACTOR
        elif ratio > 0.75:
            damping /= DAMPING_FACTOR
        length = line_search(delta, float(gradient @ delta), before, after, loss_at)
        _fill(parameters, theta + length * rates * delta)
        for p, s, part in zip(parameters, memory, _parts(iterates[-1][0], parameters), strict=True):
            s["direction"] = part.clone()
            if p is parameters[0]:
                s["damping"] = torch.tensor(damping, dtype=p.dtype)
        objective.outputs, objective.state = outputs, state
        return loss


class Curvature:
    """Products with the Gauss–Newton matrix of a batch and with that of its states."""

    def __init__(self, objective: Objective, parameters: list[torch.nn.Parameter], share: float = 1.0):
        self.network, self.parameters = objective.network, parameters
        names = {id(p): name for name, p in self.network.named_parameters()}
        self.names = [names[id(p)] for p in parameters]
        B = max(1, round(share * objective.x.shape[1]))
        self.x, self.carry = objective.x[:, :B], _samples(objective.carry, B)
        self.mask = None if objective.mask is None else objective.mask[:, :B]
        self.y = objective.y[:, :B] if self.network.readout.every_step else objective.y[:B]
        with torch.enable_grad():
            self.outputs, self.states = self._forward()

    def product(self, v: Tensor, structural: float = 0.0) -> Tensor:
        """(JᵀHJ + structural · J_hᵀJ_h / number of states) v."""
        with _forward_mode(), torch.no_grad():
            duals = [forward_ad.make_dual(p.detach(), t) for p, t in zip(self.parameters, self._split(v), strict=True)]
            Jv, J_hv = map(_tangent, self._forward(dict(zip(self.names, duals, strict=True))))
        HJv = self._hessian(Jv)
        grads = torch.autograd.grad(
            [self.outputs, self.states],
            self.parameters,
            [HJv, structural / self.states.shape[:-1].numel() * J_hv],
            retain_graph=True,
        )
        return _flat(grads)

    def _forward(self, weights: dict[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Outputs and the recurrent model's states over time, of the network's own weights or of others."""
        return functional_call(_States(self.network), _prefixed(weights or {}), (self.x, self.carry, self.mask))

    def _hessian(self, v: Tensor) -> Tensor:
        """H v, for the loss of the task; penalties have no part in H."""
        outputs = self.outputs.detach().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.network.loss(outputs, self.y), outputs, create_graph=True)
            (Hv,) = torch.autograd.grad(gradient, outputs, v)
        return Hv

    def _split(self, v: Tensor) -> list[Tensor]:
        return _parts(v, self.parameters)


class _States(torch.nn.Module):
    """A network that gives its recurrent model's outputs besides its own."""

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, carry: Any, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        network = self.network
        seen = network.input(x, mask) if network.input else x
        y, _ = network.model(seen, carry)
        return network.readout(y, seen, network.input.mask(mask) if network.input else mask), y


Iterate = tuple[Tensor, float]  # δ and q(δ)


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], gradient: Tensor, start: Tensor, iterations: int
) -> list[Iterate]:
    """Minimise gᵀδ + ½ δᵀBδ; returns some of the iterates on the way and the last."""
    delta = start.clone()
    Bdelta = product(delta) if bool(delta.any()) else torch.zeros_like(delta)
    residual = Bdelta + gradient  # of Bδ = −g
    direction, rr = -residual, residual @ residual
    found: list[Iterate] = []
    values = [float(0.5 * delta @ (residual + gradient))]
    keep = 1.0
    for number in range(1, iterations + 1):
        Bd = product(direction)
        bend = direction @ Bd
        if not bool(bend > 0) or not bool(rr > 0):
            break  # solved, or as far as rounding lets one see
        size = rr / bend
        delta = delta + size * direction
        residual = residual + size * Bd
        values.append(float(0.5 * delta @ (residual + gradient)))
        if number >= keep:
            found.append((delta, values[-1]))
            keep = max(keep * SPACING, number + 1)
        k = max(PATIENCE, number // 10)
        if number > k and values[-1] < 0 and values[-1] - values[-1 - k] > k * TOLERANCE * values[-1]:
            break
        rr, old = residual @ residual, rr
        direction = -residual + rr / old * direction
    if not found or found[-1][0] is not delta:
        found.append((delta, values[-1]))
    return found


def backtrack(iterates: list[Iterate], loss_at: Callable[[Tensor], float]) -> tuple[Tensor, float, float]:
    """The iterate after which, going backwards, the loss rises again: δ, q(δ), loss."""
    delta, model = iterates[-1]
    loss = loss_at(delta)
    for earlier, q in reversed(iterates[:-1]):
        other = loss_at(earlier)
        if not other < loss and loss == loss:  # a loss that is no number is worse than any
            break
        delta, model, loss = earlier, q, other
    return delta, model, loss


def line_search(delta: Tensor, slope: float, before: float, after: float, loss_at: Callable[[Tensor], float]) -> float:
    """The share of δ that lowers the loss by enough of what the slope gᵀδ promises; 0 where none does."""
    length = 1.0
    for _ in range(TRIALS):
        if after <= before + ENOUGH * length * min(slope, 0.0):
            return length
        length *= SHORTER
        after = loss_at(length * delta)
    return 0.0


@contextlib.contextmanager
def _forward_mode() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, at the first use of its forward mode
        with forward_ad.dual_level():
            yield


def _flat(tensors: Any) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def _parts(v: Tensor, like: list[torch.nn.Parameter]) -> list[Tensor]:
    pieces = v.split([p.numel() for p in like])
    return [piece.view_as(p) for piece, p in zip(pieces, like, strict=True)]


def _fill(parameters: list[torch.nn.Parameter], values: Tensor) -> None:
    with torch.no_grad():
        for p, part in zip(parameters, _parts(values, parameters), strict=True):
            p.copy_(part)


def _prefixed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"network.{name}": tensor for name, tensor in weights.items()}


def _tangent(dual: Tensor) -> Tensor:
    primal, tangent = forward_ad.unpack_dual(dual)
    return torch.zeros_like(primal) if tangent is None else tangent


def _samples(state: Any, B: int) -> Any:
    """The first B samples of a state, see models.states."""
    if state is None or isinstance(state, Tensor):
        return state if state is None else state.narrow(-2, 0, B)
    return tuple(_samples(part, B) for part in state)
