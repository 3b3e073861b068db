"""Constructed runs for the tests of planning and training."""

import copy

import torch

import tasks
from reproduce.plan.parts import Settings
from reproduce.plan.runs import Run
from reproduce.train.loop import Training
from reproduce.train.outcome import Place, Stop

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


def outcome_of(result):
    """All of a run that must not depend on how often it was stopped."""
    r = result.record
    return r.test, r.valid, r.valid_step, r.weights_sha256, [p.model_dump() for p in r.curve], r.steps_done


class Carrying(tasks.Task):
    """Symbols in a row, each batch continuing the one before."""

    name, kind, input_kind, metric = "carrying", "classify-every", "symbols", "bits_per_character"
    input_size = output_size = 5
    length, carries_state = 6, True

    def count(self, split):
        return 180

    def batches_per_epoch(self, split, batch_size):
        return 6

    def definition(self):
        return {"name": self.name}

    def _batches(self, split, batch_size, seed, epoch, start):
        for number in range(start, 6):
            generator = torch.Generator().manual_seed(1000 * epoch + 10 * number + len(split))
            x = torch.randint(0, 5, (self.length, batch_size), generator=generator)
            yield x, x.roll(1, 0)

    def to_dataset(self, split):
        raise NotImplementedError

    def picture(self, path):
        raise NotImplementedError


class Walking(Carrying):
    """Skeletons of two people; with ``whole``, clips of different lengths under a mask."""

    kind, input_kind, metric = "classify-last", "dense", "accuracy_percent"
    input_size, output_size = 150, 5
    carries_state = False

    def __init__(self, whole=False):
        self.masked = whole
        self.name = "walking-whole" if whole else "walking"

    def _batches(self, split, batch_size, seed, epoch, start):
        for number in range(start, 6):
            generator = torch.Generator().manual_seed(1000 * epoch + 10 * number + len(split))
            x = torch.randn(self.length, batch_size, self.input_size, generator=generator)
            lengths = torch.randint(1, self.length + 1, (batch_size,), generator=generator)
            y = torch.randint(0, self.output_size, (batch_size,), generator=generator)
            yield (x, y, torch.arange(self.length).unsqueeze(1) < lengths) if self.masked else (x, y)


class StopAt(Stop):
    """Asks to stop at the given update."""

    def __init__(self, monkeypatch, limit):
        self.step, original = 0, Training.update

        def update(training):
            original(training)
            self.step = training.step

        monkeypatch.setattr(Training, "update", update)
        self.limit = limit

    @property
    def reason(self):
        return "interrupted" if self.step >= self.limit else None

    @reason.setter
    def reason(self, value):
        pass
