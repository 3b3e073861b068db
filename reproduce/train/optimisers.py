"""Optimisers by name. ``@register("name")`` on a function of parameter groups, a rate and options adds one.

What a function returns is a ``torch.optim.Optimizer``. One whose ``takes_objective`` is True gets the ``Objective`` of
the batch in ``step(objective)`` and may evaluate it as often as it likes; for all others the loop has called it once.
"""

from __future__ import annotations

import fnmatch
import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from models.base import decayed_parameters
from reproduce.plan.parts import Optimiser as Part
from reproduce.train.hessian_free import HessianFree
from reproduce.train.path_sgd import PathSGD
from suite.files import nearest

Factory = Callable[..., torch.optim.Optimizer]
_factories: dict[str, Factory] = {}


def register(name: str) -> Callable[[Factory], Factory]:
    def add(factory: Factory) -> Factory:
        if name in _factories:
            raise ValueError(f"an optimiser called {name!r} is registered already")
        _factories[name] = factory
        return factory

    return add


@register("adam")
def adam(
    groups: list[dict[str, Any]], lr: float, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=lr, betas=tuple(betas), eps=eps, fused=True)  # type: ignore[arg-type]


@register("rmsprop")
def rmsprop(
    groups: list[dict[str, Any]], lr: float, *, alpha: float = 0.99, eps: float = 1e-8, momentum: float = 0.0
) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(groups, lr=lr, alpha=alpha, eps=eps, momentum=momentum)


@register("sgd")
def sgd(
    groups: list[dict[str, Any]], lr: float, *, momentum: float = 0.0, nesterov: bool = False
) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=nesterov)


@register("path-sgd")
def path_sgd(
    groups: list[dict[str, Any]], lr: float, *, refresh: int = 10, floor: float = 1e-8
) -> torch.optim.Optimizer:
    return PathSGD(groups, lr, refresh=refresh, floor=floor)


@register("hessian-free")
def hessian_free(
    groups: list[dict[str, Any]],
    lr: float,
    *,
    damping: float = 1.0,
    structural: float = 0.1,
    iterations: int = 50,
    curvature: float = 1.0,
) -> torch.optim.Optimizer:
    return HessianFree(groups, lr, damping=damping, structural=structural, iterations=iterations, curvature=curvature)


def names() -> list[str]:
    return sorted(_factories)


def options(name: str) -> dict[str, Any]:
    """The options of an optimiser with their defaults."""
    if name not in _factories:
        raise ValueError(f"optimiser: there is no {name!r}; {nearest(name, names())}")
    parameters = inspect.signature(_factories[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def build(part: Part, network: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of a network's trainable parameters; each group holds the ``factor`` of its rate."""
    known = options(part.name)
    for option in part.options:
        if option not in known:
            raise ValueError(f"optimiser: {part.name} has no option {option!r}; {nearest(option, known)}")
    return _factories[part.name](groups(part, network), part.lr, **part.options)


def check(part: Part) -> None:
    """Raise unless such an optimiser can be built."""
    build(part.model_copy(update={"rates": {}}), nn.Linear(1, 1))


def groups(part: Part, network: nn.Module) -> list[dict[str, Any]]:
    """Parameters by weight decay and rate: decay on those that their parts declare, factors by pattern of the name."""
    decayed = {id(parameter) for parameter in decayed_parameters(network)}
    named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    for pattern in part.rates:
        matching(pattern, [name for name, _ in network.named_parameters()], "optimiser.rates")
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in named:
        decay = part.weight_decay if id(parameter) in decayed else 0.0
        factors = [factor for pattern, factor in part.rates.items() if fnmatch.fnmatchcase(name, pattern)]
        found.setdefault((decay, factors[-1] if factors else 1.0), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "factor": factor} for (decay, factor), parameters in found.items()
    ]


def matching(pattern: str, names: Iterable[str], where: str) -> list[str]:
    """The names that a pattern fits; one that fits none is a mistake."""
    found = fnmatch.filter(names, pattern)
    if not found:
        raise ValueError(f"{where}: {pattern!r} fits none of the parameters; {nearest(pattern, names)}")
    return found


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate * group["factor"]


def tensors_of(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state under names, for a checkpoint; ``restore`` is the inverse."""
    state = optimiser.state_dict()["state"]
    return {f"{index}/{key}": value for index, entry in state.items() for key, value in entry.items()}


def restore(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split("/")
        state.setdefault(int(index), {})[key] = value.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
