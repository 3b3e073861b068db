"""How large the networks of a recipe are, without their data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from reproduce.plan import recipe
from reproduce.train.network import Network, count_parameters
from tasks.ntu.features import FEATURES


@dataclass(frozen=True)
class Shape:
    """What a network needs to know of its task."""

    name: str
    kind: str
    input_kind: str
    input_size: int
    output_size: int
    length: int


SHAPES = {
    "adding": ("regression-last", "dense", 2, 1, 100),
    "mnist": ("classify-last", "dense", 1, 10, 784),
    "pmnist": ("classify-last", "dense", 1, 10, 784),
    "ptb-c": ("classify-every", "symbols", 50, 50, 50),
    "ntu-cs": ("classify-last", "dense", 150, 60, 20),
    "ntu-cv": ("classify-last", "dense", 150, 60, 20),
}
"""Kind, input kind, inputs, outputs and length of each task, unless the ``data`` of a recipe says otherwise."""


@lru_cache(maxsize=256)
def parameter_count(recipe_name: str, row: str, cell: str) -> int:
    """The trained parameters of a row at the paper's budget."""
    recipes = recipe.load(recipe_name)
    settings, _ = recipes.resolve(row, cell, "paper")
    task = recipes.cells[cell].task
    kind, input_kind, inputs, outputs, length = SHAPES[task]
    if "features" in settings.data:
        inputs = FEATURES[settings.data["features"]].width
    shape = Shape(task, kind, input_kind, inputs, outputs, settings.data.get("length", length))
    with torch.random.fork_rng(devices=[]), torch.device("meta"):  # shapes only: initial values would take seconds
        return count_parameters(Network(settings, shape, backend="reference"))
