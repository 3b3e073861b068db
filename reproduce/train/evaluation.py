"""Scoring a network on a split, with BatchNorm's population statistics re-estimated from training data first."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import tasks
from models.base import Cell
from models.states import State, detach
from reproduce.train.network import Network

STATISTICS_SEED = 1_000_003  # the batches that re-estimate statistics are drawn apart from the training order


def norms_of(network: nn.Module) -> list[Any]:
    return [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


@torch.no_grad()
def reestimate_statistics(network: Network, task: Any, batch_size: int, count: int, device: Any) -> None:
    """Running statistics become the plain average over ``count`` training batches under the present weights.

    Running averages lag behind the weights by many updates, which after a long ReLU recurrence is far. Dropout and
    zoneout are off. Noise on the initial state stays on, from a generator of its own, so that an evaluation leaves no
    trace in the training that follows: where all samples begin with the same inputs, a norm inside the recurrence has
    no other variance to measure, and the weights have learned with it.
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
    for cell in network.modules():
        if isinstance(cell, Cell) and cell.start_noise:
            cell.training = True  # the cell itself, not the noise inside it
    state: State | None = None
    total = min(count, task.batches_per_epoch("train", batch_size) or count)
    with torch.random.fork_rng(devices=[device] if torch.device(device).type == "cuda" else []):
        torch.manual_seed(STATISTICS_SEED)
        for number, batch in enumerate(task.batches("train", batch_size, seed=STATISTICS_SEED, epoch=0)):
            if number == total:
                break
            x, _, mask = on_device(batch, device)
            _, state = network(x, state if task.carries_state else None, mask)
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum
    network.eval()


@torch.no_grad()
def evaluate(network: Network, task: Any, split: str, batch_size: int, samples: int, device: Any) -> float:
    """The task's metric on a split (or its first ``samples``; 0 means all), with running statistics."""
    network.eval()
    meter = task.meter()
    state: State | None = None
    width = 0  # of the batch before; a carried state fits no other
    for batch in task.batches(split, batch_size):
        x, y, mask = on_device(batch, device)
        carried = state if task.carries_state and x.shape[1] == width else None
        outputs, after = network(x, carried, mask)
        state, width = detach(after), x.shape[1]
        meter.update(outputs.float().cpu(), y.cpu())
        if samples and meter.count >= samples:
            break
    return float(meter.value())


def on_device(batch: Any, device: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """x, y and, where the task has one, the mask."""
    x, y, mask = tasks.unpack(batch)
    return x.to(device), y.to(device), None if mask is None else mask.to(device)
