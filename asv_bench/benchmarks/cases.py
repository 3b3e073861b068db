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

import torch

from .own import load

if "DURNN_BENCH_TREE" in os.environ:
    sys.path.insert(0, os.environ["DURNN_BENCH_TREE"])  # here, because asv takes PYTHONPATH away


shapes, steps = load("shapes"), load("steps")
Shape, SHAPES, TINY = shapes.Shape, shapes.SHAPES, shapes.TINY


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
    if needed := lacking(model, shape):
        raise NotImplementedError(f"model {model} needs {' and '.join(sorted(needed))}, which {shape} has not")


def lacking(model: str, shape: str) -> set[str]:
    """What a model of the measured commit needs and a task has not."""
    return steps.lacking(importlib.import_module("models"), model, SHAPES[shape])


def device() -> torch.device:
    return torch.device(os.environ.get("DURNN_BENCH_DEVICE") or "cpu")


def prepare_process() -> None:
    """Also flush subnormal numbers, which some CPUs multiply slowly: the fused loops do, ``torch.nn`` does not."""
    torch.set_num_threads(int(os.environ.get("DURNN_BENCH_THREADS") or 1))
    torch.set_flush_denormal(True)


class Case(steps.Training):
    """One model on one shape with fixed weights, fixed data and its optimiser. ``model="nn.LSTM"`` is torch's own."""

    def __init__(self, model: str, shape: Shape, on: torch.device | None = None) -> None:
        prepare_process()
        zoo = None if model in steps.TORCH_NN else importlib.import_module("models")
        super().__init__(steps.build(zoo, model, shape), shape, on or device())


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
