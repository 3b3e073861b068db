"""The running mean of the weights, which is what a run with the part ``average`` is scored by and reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from reproduce.plan.parts import Average


class RunningMean:
    """mean ← keep · mean + (1 − keep) · weights after each update, keep = min(decay, (1 + step) / (10 + step)).

    While few updates are done, ``keep`` is small, so that the start is soon forgotten. The sets that weights are
    projected on (an interval, a bound on singular values) are convex: the mean of weights that lie in them does too.
    """

    def __init__(self, part: Average, network: nn.Module):
        self.decay, self.network = part.decay, network
        self.means = {name: p.detach().clone() for name, p in network.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        weights = [p.detach() for p in self.network.parameters()]
        torch._foreach_lerp_(list(self.means.values()), weights, 1 - min(self.decay, (1 + step) / (10 + step)))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The network with the means as its weights; afterwards it has its own again."""
        own = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        self._put(self.means)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, weights: dict[str, Tensor]) -> None:
        for name, parameter in self.network.named_parameters():
            parameter.copy_(weights[name])

    def restore(self, means: dict[str, Tensor]) -> None:
        if means.keys() != self.means.keys():
            raise ValueError("the saved means are those of other parameters")
        for name, mean in self.means.items():
            mean.copy_(means[name])
