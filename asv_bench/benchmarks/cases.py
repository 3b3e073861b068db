"""Which models and shapes are measured, and one training step of each.

Models come from the registry of the commit that is measured; a model or a registry that is not there yet is skipped.
Environment variables:

DURNN_BENCH_PROFILE  ``fast`` (small shapes, few repeats) or ``full`` (default)
DURNN_BENCH_THREADS  threads of torch, 1 by default: the second core of a shared machine is what makes timings jump
DURNN_BENCH_DEVICE   ``cpu`` (default) or ``cuda``
DURNN_BENCH_MODELS   comma-separated names to list instead of the registry's, so that old commits keep today's table
DURNN_BENCH_SHAPES   comma-separated shapes to measure instead of the profile's
DURNN_BENCH_TREE     the tree that ``models`` must come from; set by whatever checks out a commit
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if "DURNN_BENCH_TREE" in os.environ:
    sys.path.insert(0, os.environ["DURNN_BENCH_TREE"])  # here, because asv takes PYTHONPATH away


@dataclass(frozen=True)
class Shape:
    """T steps of B sequences, N hidden units; a target for every step or one for the last step only."""

    T: int
    B: int
    input_size: int
    N: int
    output_size: int
    every_step: bool = False


SHAPES = {
    "adding-100": Shape(100, 50, 2, 128, 1),
    "adding-1000": Shape(1000, 50, 2, 128, 1),
    "mnist-784": Shape(784, 32, 1, 128, 10),
    "ptb-c-50-n256": Shape(50, 128, 50, 256, 50, every_step=True),
    "ptb-c-50-n2000": Shape(50, 128, 50, 2000, 50, every_step=True),
    "ntu-20": Shape(20, 128, 150, 512, 60),
}
TINY = Shape(2, 2, 2, 8, 2)


@dataclass(frozen=True)
class Profile:
    """``seconds`` bounds the sampling of one figure, within ``least`` and ``most`` samples."""

    shapes: tuple[str, ...]
    least: int
    most: int
    seconds: float


PROFILES = {
    "fast": Profile(("adding-100", "ntu-20"), least=1, most=10, seconds=0.25),
    "full": Profile(tuple(SHAPES), least=5, most=30, seconds=3.0),
}


def profile() -> Profile:
    name = os.environ.get("DURNN_BENCH_PROFILE") or "full"
    if name not in PROFILES:
        raise ValueError(f"DURNN_BENCH_PROFILE={name!r} is not known; use {' or '.join(PROFILES)}.")
    return PROFILES[name]


def measured_shapes() -> tuple[str, ...]:
    chosen = os.environ.get("DURNN_BENCH_SHAPES")
    if not chosen:
        return profile().shapes
    for name in chosen.split(","):
        if name not in SHAPES:
            raise ValueError(f"DURNN_BENCH_SHAPES: there is no shape {name!r}; known are {', '.join(SHAPES)}.")
    return tuple(chosen.split(","))


def registered() -> list[str]:
    """Names of the zoo of the measured commit; empty if it has none yet."""
    try:
        zoo = importlib.import_module("models")
        names = zoo.names
    except (ImportError, AttributeError):
        return []
    tree = os.environ.get("DURNN_BENCH_TREE")
    # An installed copy may answer where the commit has no zoo: its figures would be somebody else's.
    if tree and not Path(zoo.__file__ or "").resolve().is_relative_to(Path(tree).resolve()):
        return []
    return names()


def listed_models() -> list[str]:
    chosen = os.environ.get("DURNN_BENCH_MODELS")
    return chosen.split(",") if chosen else registered() or ["(no models)"]


def require(model: str, shape: str) -> None:
    """Raise NotImplementedError, asv's word for "skip", for what this commit or profile does not have."""
    if shape not in measured_shapes():
        raise NotImplementedError(f"shape {shape} is not part of this profile")
    if model not in registered():
        raise NotImplementedError(f"model {model} is not registered at this commit")


def device() -> torch.device:
    return torch.device(os.environ.get("DURNN_BENCH_DEVICE") or "cpu")


def set_threads() -> None:
    torch.set_num_threads(int(os.environ.get("DURNN_BENCH_THREADS") or 1))


class Case:
    """One model on one shape with fixed weights, fixed data and its optimiser. ``model="nn.LSTM"`` is torch's own."""

    def __init__(self, model: str, shape: Shape, on: torch.device | None = None) -> None:
        set_threads()
        self.shape, self.on = shape, on or device()
        torch.manual_seed(0)
        if model == "nn.LSTM":
            self.net: Any = nn.LSTM(shape.input_size, shape.N)
        else:
            zoo = importlib.import_module("models")
            self.net = zoo.build(model, shape.input_size, shape.N, num_layers=1, length=shape.T)
        self.readout = nn.Linear(shape.N, shape.output_size)
        generator = torch.Generator().manual_seed(1)
        self.x = torch.rand(shape.T, shape.B, shape.input_size, generator=generator).to(self.on)  # (T, B, inputs)
        targets = (shape.T, shape.B) if shape.every_step else (shape.B,)
        if shape.output_size == 1:
            self.target = torch.rand(*targets, generator=generator).to(self.on)
        else:
            self.target = torch.randint(shape.output_size, targets, generator=generator).to(self.on)
        self.net.to(self.on)
        self.readout.to(self.on)
        self.optimiser = torch.optim.Adam([*self.net.parameters(), *self.readout.parameters()], lr=1e-3)

    def loss(self) -> Tensor:
        y, _state = self.net(self.x)  # (T, B, N)
        out = self.readout(y if self.shape.every_step else y[-1])  # (T, B, outputs) or (B, outputs)
        if self.shape.output_size == 1:
            return F.mse_loss(out.squeeze(-1), self.target)
        return F.cross_entropy(out.flatten(0, -2), self.target.flatten())

    def train_step(self) -> Tensor:
        """Forward, backward, Adam and the model's projection; returns the loss before the update."""
        self.optimiser.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimiser.step()
        if hasattr(self.net, "constrain_"):
            self.net.constrain_()
        self.synchronise()
        return loss.detach()

    def inference(self) -> Tensor:
        with torch.no_grad():
            loss = self.loss()
        self.synchronise()
        return loss

    def synchronise(self) -> None:
        if self.on.type == "cuda":
            torch.cuda.synchronize()


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median_seconds(*actions: Callable[[], object]) -> list[float]:
    """Median time of each action; they take turns, so that a slow moment of the machine meets all of them.

    The first turn only warms up, unless it alone uses up the profile's time, as a step of ``nn.LSTM`` over 784 does.
    """
    limits = profile()
    samples: list[list[float]] = []
    for action in actions:
        first = seconds(action)
        samples.append([first] if first > limits.seconds else [])

    def enough(taken: list[float]) -> bool:
        return len(taken) >= limits.most or (len(taken) >= limits.least and sum(taken) > limits.seconds)

    while not all(enough(taken) for taken in samples):
        for taken, action in zip(samples, actions, strict=True):
            if not enough(taken):
                taken.append(seconds(action))
    return [statistics.median(taken) for taken in samples]
