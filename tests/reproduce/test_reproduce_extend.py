"""How to add a model and a task, as the README tells it: each takes about ten lines and then has a recipe row."""

import pytest
import torch
from test_reproduce_recipes import MINIMAL
from test_reproduce_trainer import make_run

import models
import tasks
from models.base import RecurrentLayer, RecurrentNet
from reproduce import recipe
from reproduce.runs import plan
from reproduce.trainer import Place, train
from reproduce.training import Training


class LeakyLayer(RecurrentLayer):
    def __init__(self, input_size, hidden_size, net, generator):
        super().__init__(input_size, hidden_size, net)
        self.W_in = self.matrix(hidden_size, input_size, "glorot", generator, "W_in_init")
        self.b = torch.nn.Parameter(torch.zeros(hidden_size))

    def forward(self, x, state):
        h, outputs = state[0], []
        for u in self.project(x, self.W_in, self.b):  # (B, N) per step
            h = 0.9 * h + 0.1 * torch.relu(u)
            outputs.append(h)
        return self.finish(torch.stack(outputs)), (h,)


class Leaky(RecurrentNet):
    """A leaky integrator."""

    def make_layer(self, input_size, index, generator):
        return LeakyLayer(input_size, self.hidden_size, self, generator)


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
    monkeypatch.setattr(models.registry, "_REGISTRY", dict(models.registry._REGISTRY))
    monkeypatch.setattr(tasks.registry, "_factories", dict(tasks.registry._factories))
    models.register("leaky")(Leaky)
    tasks.register("longest-run")(LongestRun)


def test_new_model_on_new_task_runs_from_a_recipe(tmp_path):
    text = MINIMAL.replace('model = "durnn"', 'model = "leaky"').replace('task = "adding"', 'task = "longest-run"')
    (tmp_path / "mine.toml").write_text(text)
    runs, notes = plan(recipe.load("mine", tmp_path), ["r"], ["a"], [0, 1], "paper")
    assert notes == []
    assert len({run.id for run in runs}) == 2
    for run in runs:
        outcome = train(run, Place(runs=tmp_path / "runs", records=tmp_path / "records"))
        assert outcome.status == "completed"
        assert outcome.record.task.name == "longest-run"
        assert 0 <= outcome.record.test <= 100


def test_the_record_tells_who_computed():
    training = Training(make_run(), backend="reference")
    training.update()
    assert training.backend == "reference"


def test_identity_changes_with_everything_that_matters():
    first = make_run()
    others = [make_run(seed=1), make_run(lr=0.5), make_run(task_options={"length": 9, "held_out": 40})]
    assert len({run.id for run in [first, *others]}) == 4
    assert first.id == make_run().id
