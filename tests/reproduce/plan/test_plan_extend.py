"""How to add a model and a task, as the README tells it: each takes about ten lines and then has a recipe row."""

import pytest
import torch
from recipe_samples import MINIMAL
from run_samples import make_place, make_run

import models
import tasks
from models.base import Cell
from models.nets import Stack
from reproduce.plan import recipe
from reproduce.plan.runs import plan
from reproduce.train.loop import Training, train


class LeakyCell(Cell):
    decayed = ("W_in",)

    def __init__(self, slot):
        super().__init__(slot)
        self.W_in = slot.matrix(slot.hidden_size, slot.input_size, "glorot")
        self.b = torch.nn.Parameter(torch.zeros(slot.hidden_size))

    def project(self, x):
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t, state):
        h = 0.9 * state[0] + 0.1 * torch.relu(u_t)  # (B, N)
        return h, (h,)


class Leaky(Stack):
    """A leaky integrator."""

    cell = LeakyCell


class LongestRun(tasks.Task):
    name, kind, metric, input_size, output_size, length = "longest-run", "classify-last", "error_percent", 1, 2, 7

    def count(self, split):
        return 40

    def batches_per_epoch(self, split, batch_size):
        return 40 // batch_size

    def definition(self):
        return {"task": self.name}

    def _batches(self, split, batch_size, seed, epoch, start):
        for number in range(start, 40 // batch_size):
            generator = torch.Generator().manual_seed(1000 * epoch + number)
            x = torch.rand(self.length, batch_size, 1, generator=generator)
            yield x, (x.mean((0, 2)) > 0.5).long()

    def to_dataset(self, split):
        raise NotImplementedError

    def picture(self, path):
        raise NotImplementedError


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The decorators of the README, undone after each test so that other tests see the suite's own names only."""
    tasks.names()
    monkeypatch.setattr(models.registry.ZOO, "entries", dict(models.registry.ZOO.entries))
    monkeypatch.setattr(tasks.registry, "_entries", dict(tasks.registry._entries))
    models.register("leaky")(Leaky)
    tasks.register("longest-run")(LongestRun)


def test_new_model_on_new_task_runs_from_a_recipe(tmp_path):
    text = MINIMAL.replace('name = "durnn"', 'name = "leaky"').replace('task = "adding"', 'task = "longest-run"')
    text = text.replace("data = { held_out = 4 }\n", "")
    (tmp_path / "mine.toml").write_text(text)
    runs, notes = plan(recipe.load("mine", tmp_path), ["r"], ["a"], [0, 1], "paper")
    assert notes == []
    assert len({run.id for run in runs}) == 2
    for run in runs:
        outcome = train(run, make_place(tmp_path))
        assert outcome.status == "completed"
        assert outcome.record.task.name == "longest-run"
        assert 0 <= outcome.record.test <= 100


def test_the_record_tells_who_computed():
    for backend in ("reference", "fused"):
        training = Training(make_run(), backend=backend)
        assert training.backend is None
        training.update()
        assert training.backend == backend


def test_identity_changes_with_everything_that_matters():
    first = make_run()
    others = [make_run(seed=1), make_run(optimiser={"lr": 0.5}), make_run(data={"length": 9})]
    assert len({run.id for run in [first, *others]}) == 4
    assert first.id == make_run().id
