"""Whether the parts of a run fit together, found out by building a small copy of each before anything is run."""

from __future__ import annotations

import json
from functools import lru_cache

import torch

import models
import tasks
from models import inputs, readouts
from models.base import Part
from reproduce.plan.parts import Model, Settings
from reproduce.train import optimisers, schedules
from reproduce.train.network import Network
from suite.files import nearest

LENGTH, WIDTH = 8, 3  # of the small copies


@lru_cache(maxsize=4096)
def check_settings(task: str, settings: str) -> None:
    """Raise ValueError unless the settings (canonical JSON) can be built for a task."""
    s = Settings(**json.loads(settings))
    known = tasks.options(task)
    for option in s.data:
        if option not in known:
            raise ValueError(f"data: task {task} has no option {option!r}; {nearest(option, known)}")
    with torch.random.fork_rng(devices=[]):
        parts = [small_model(s.model)]
        if s.input:
            parts.append(inputs.example(s.input.name, LENGTH, **s.input.options))
        if s.readout:
            parts.append(readouts.build(s.readout.name, WIDTH, WIDTH, WIDTH, **s.readout.options))
        optimisers.check(s.optimiser)
    inside = [inner for part in parts for inner in part.modules() if isinstance(inner, Part)]
    names = {name for part in inside for name in part.penalty_names} | set(Network.penalty_names)
    for name in {*s.penalties, *(name for stage in s.stages for name in stage.penalties or {})}:
        if name not in names:
            raise ValueError(f"penalties: no part of this run collects {name!r}; {nearest(name, sorted(names))}")
    if s.schedule:
        schedules.build(s.schedule, s.optimiser.lr, s.training.updates, epoch=1)
    if sum(stage.updates or 0 for stage in s.stages) > s.training.updates:
        raise ValueError(f"stages: they take more than the {s.training.updates} updates of the run")


def small_model(part: Model) -> Part:
    """A network with the options of the part but few units, which refuses whatever the large one would refuse."""
    if not isinstance(part.hidden_size, int) and len(part.hidden_size) != part.num_layers:
        raise ValueError(f"model: hidden_size has {len(part.hidden_size)} entries for {part.num_layers} layers")
    return models.registry.example(part.name, WIDTH, 8, part.num_layers, length=LENGTH, **part.options)
