"""Scoring a network on a split, with BatchNorm's population statistics re-estimated from training data first."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from reproduce.network import Network, State, detach


def norms_of(network: nn.Module) -> list[Any]:
    return [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


@torch.no_grad()
def reestimate_statistics(network: Network, task: Any, batch_size: int, count: int, seed: int, device: Any) -> None:
    """Running statistics become the plain average over ``count`` training batches under the present weights.

    Running averages lag behind the weights by many updates, which after a long ReLU recurrence is far. Dropout is
    off and no random number is drawn, so that an evaluation leaves no trace in the training that follows.
    """
    norms = norms_of(network)
    if not norms or count == 0:
        return
    network.eval()
    momenta = [m.momentum for m in norms]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # torch's cumulative average
        m.train()
    state: State = None
    total = min(count, task.batches_per_epoch("train", batch_size) or count)
    for number, (x, _) in enumerate(task.batches("train", batch_size, seed=seed, epoch=0)):
        if number == total:
            break
        _, state = network(x.to(device), state if task.carries_state else None)
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum
    network.eval()


@torch.no_grad()
def evaluate(network: Network, task: Any, split: str, batch_size: int, samples: int, device: Any) -> float:
    """The task's metric on a split (or its first ``samples``; 0 means all), with running statistics."""
    network.eval()
    meter = task.meter()
    state: State = None
    seen = 0
    for x, y in task.batches(split, batch_size):
        outputs, after = network(x.to(device), _fit(state, x.shape[1]) if task.carries_state else None)
        state = detach(after) if task.carries_state else None
        meter.update(outputs.float().cpu(), y)
        seen += x.shape[1] if y.dim() < 2 or y.shape[-1] == 1 else y.numel()
        if samples and seen >= samples:
            break
    return float(meter.value())


def _fit(state: State, batch: int) -> State:
    """A carried state (layers, B, N) only fits a batch of the same width; a ragged last batch starts afresh."""
    first = state[0] if isinstance(state, tuple) else state
    return state if first is not None and first.shape[1] == batch else None
