"""Skeleton systems of Table III in training: stages that freeze, penalties in the loss, stops that leave no trace."""

import copy
import fnmatch

import numpy as np
import pytest
import torch
from run_samples import make_place, make_run
from test_train_loop import StopAfter, count_updates, outcome_of  # noqa: F401 (a fixture)

import tasks
from reproduce.plan import recipe
from reproduce.report.sizes import parameter_count
from reproduce.train.loop import Training, train
from reproduce.train.network import count_parameters
from tasks.base import SampledTask

ROWS = ("sta-lstm", "st-lstm-trust-gate", "pose-conditioned-sta-lstm")


class Clips(SampledTask):
    """Random clips of two bodies, one of which is absent in every other clip; whole, with a mask, or cut to length."""

    name, kind, metric, input_size, output_size = "clips", "classify-last", "accuracy_percent", 150, 3

    def __init__(self, *, frames="sampled", length=20, preprocessing="raw", test_samplings=1, validation=0.05):
        self.length, self.masked = length, frames == "whole"

    def count(self, split):
        return {"train": 20, "valid": 9, "test": 9}[split]

    def fetch(self, split, indices, generator):
        x = torch.from_numpy(
            np.stack([np.random.default_rng(int(i)).normal(size=(20, 150)) for i in indices], 1).astype(np.float32)
        )
        y = torch.from_numpy(indices % 3)
        x[:, indices % 2 == 0, 75:] = 0
        if not self.masked:
            return x[: self.length], y
        mask = torch.arange(9).unsqueeze(1) < torch.from_numpy(indices % 9 + 1)
        return x[:9] * mask.unsqueeze(-1), y, mask

    def definition(self):
        return {"task": self.name, "masked": self.masked, "length": self.length}

    def to_dataset(self, split):
        raise NotImplementedError

    def picture(self, path):
        raise NotImplementedError


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    tasks.names()
    monkeypatch.setattr(tasks.registry, "_entries", dict(tasks.registry._entries))
    tasks.register("clips", summary="Random clips.")(Clips)


def run_of(row, updates=8, **changes):
    """The row's run at the smoke budget, on random clips."""
    settings, _ = recipe.load("table3").resolve(row, "ntu-cs", "smoke")
    parts = copy.deepcopy(settings.explicit()) | {"evaluation": {"every": 4}}
    parts["data"] |= {"held_out": None}
    if row == "st-lstm-trust-gate":
        parts["data"]["length"] = 6  # 62 visits, for the reference takes its time
    parts["training"] = {"updates": updates, "batch_size": 5}
    for absent in ("clip", "schedule"):
        parts.setdefault(absent, None)
    return make_run(task="clips", **parts | changes)


def leave_the_start(network):
    """To where attention is not uniform and every parameter has a gradient."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))


@pytest.mark.parametrize("row", ROWS)
def test_a_stop_leaves_no_trace(row, tmp_path):
    whole = train(run_of(row), make_place(tmp_path / "whole"))
    assert whole.status == "completed"
    place = make_place(tmp_path / "stopped")
    for limit in (1, 6):
        assert train(run_of(row), place, stop=StopAfter(limit)).status == "unfinished"
    assert outcome_of(train(run_of(row), place)) == outcome_of(whole)


def test_the_stages_of_sta_lstm_freeze_what_they_say():
    """The patterns of the recipe, two updates each; what is frozen keeps its bits, and everything else moves."""
    stages = recipe.load("table3").resolve("sta-lstm", "ntu-cs", "paper")[0].explicit()["stages"]
    assert len(stages) == 5
    short = [stage | {"updates": 2} for stage in stages[:-1]] + [{}]
    training = Training(run_of("sta-lstm", updates=10, stages=short), backend="reference")
    leave_the_start(training.network)
    for number in range(10):
        before = {name: value.clone() for name, value in training.network.named_parameters()}
        training.update()
        still = {name for name, value in training.network.named_parameters() if torch.equal(value, before[name])}
        patterns = stages[number // 2].get("freeze", [])
        frozen = {name for name in before for pattern in patterns if fnmatch.fnmatchcase(name, pattern)}
        assert still == frozen, number
    parts = {"input": 0, "model": 0, "readout": 0}
    for name in before:
        parts[name.split(".")[0]] += 1
    assert parts == {"input": 8, "model": 9, "readout": 7}


def test_frozen_attention_on_joints_is_uniform():
    training = Training(run_of("sta-lstm", stages=[{"freeze": ["input.*"]}]), backend="reference")
    for _ in range(3):
        training.update()
    x, _, mask = next(iter(training.task.batches("train", 5)))
    torch.testing.assert_close(training.network.input(x, mask), x)


def test_the_loss_of_sta_lstm_by_hand():
    weights = {"spatial-attention": 0.3, "temporal-attention": 0.7, "weights-l1": 0.01}
    penalties = recipe.load("table3").resolve("sta-lstm", "ntu-cs", "paper")[0].penalties
    assert penalties == {"spatial-attention": 1e-3, "temporal-attention": 1e-4, "weights-l1": 5e-4}
    losses = {}
    for chosen in ({}, *({name: weight} for name, weight in weights.items()), weights):
        training = Training(run_of("sta-lstm", penalties=chosen or None, stages=None), backend="reference")
        leave_the_start(training.network)
        matrices = [p for p in training.network.parameters() if p.dim() == 2]
        magnitude = sum(abs(entry) for p in matrices for entry in p.flatten().tolist())
        training.update()
        training.check_losses()
        losses[tuple(chosen)] = training.last_loss
        found = {name: value.item() for name, value in training.network.penalties().items()}
    found["weights-l1"] = magnitude  # before the update
    plain = losses[()]
    for name, weight in weights.items():
        assert losses[name,] - plain == pytest.approx(weight * found[name], rel=1e-4), name
    assert losses[tuple(weights)] - plain == pytest.approx(sum(w * found[n] for n, w in weights.items()), rel=1e-4)


@pytest.mark.parametrize(
    ("row", "count"),
    [
        ("sta-lstm", 498_311),
        ("st-lstm-trust-gate", 498_748),
        ("pose-conditioned-sta-lstm", 94_976 + 3072 * 512 + 512 + 512 * 60 + 60),
    ],
)
def test_numbers_of_parameters(row, count):
    assert parameter_count("table3", row, "ntu-cs") == parameter_count("table3", row, "ntu-cv") == count
    assert count < 2_000_000
    assert count_parameters(Training(run_of(row)).network) < count
