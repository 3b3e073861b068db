"""Constructed runs for the tests of planning and training."""

import copy

import tasks
from reproduce.plan.parts import Settings
from reproduce.plan.runs import Run
from reproduce.train.outcome import Place

PARTS = {
    "model": {"name": "durnn", "hidden_size": 6, "num_layers": 2, "norm": "after", "dropout": 0.2},
    "data": {"length": 8, "held_out": 40},
    "training": {"updates": 600, "batch_size": 5},
    "optimiser": {"name": "adam", "lr": 1e-2, "weight_decay": 1e-3},
    "clip": {"value": 1.0, "norm": 1.0},
    "schedule": {
        "name": "plateau",
        "factor": 0.5,
        "patience": 4,
        "min_lr": 0.0,
        "reload": True,
        "halve_patience": True,
    },
    "evaluation": {"every": 20, "valid_samples": 40, "statistics_batches": 3},
}


def make_settings(**changes):
    """PARTS with changes: ``training={"updates": 60}`` changes an option, None takes a part or an option away."""
    parts = copy.deepcopy(PARTS)
    for key, change in changes.items():
        if change is None:
            parts.pop(key, None)
        elif isinstance(change, dict) and "name" not in change:
            parts[key] = {k: v for k, v in (parts.get(key, {}) | change).items() if v is not None}
        else:
            parts[key] = change
    return Settings(**parts)


def make_run(seed=0, task="adding", **changes):
    settings = make_settings(**changes)
    fingerprint = tasks.build(task, **settings.data).fingerprint
    return Run(
        recipe="test", row="row", cell="cell", budget="smoke", seed=seed, task=task, requested=task,
        fingerprint=fingerprint, settings=settings, sources={},
    )  # fmt: skip


def make_place(tmp_path, **changes):
    options = {"runs": tmp_path / "runs", "records": tmp_path / "records", "backend": "reference", "threads": 1}
    return Place(**(options | changes))
