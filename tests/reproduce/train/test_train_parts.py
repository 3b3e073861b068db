"""Optimisers, schedules, stages and penalties as parts of a training."""

import copy
import math

import pytest
import torch
from run_samples import make_place, make_run, make_settings, outcome_of

import models
import tasks
from models.base import Cell
from models.nets import Lockstep, Stack
from reproduce.plan.parts import Optimiser, Schedule
from reproduce.train import optimisers, schedules
from reproduce.train.loop import Training, train
from reproduce.train.network import Network

# --- a cell that lives in this file alone ---------------------------------------------------------------------------


class PairCell(Cell):
    """Two states of different widths, a learned start and a penalty."""

    decayed = ("W_in",)
    penalty_names = ("activity",)

    def __init__(self, slot, *, mix=0.5):
        N = slot.hidden_size
        super().__init__(slot, states={"h": N, "m": 2 * N}, projected=3 * N)
        self.mix = mix
        self.W_in = slot.matrix(3 * N, slot.input_size, "glorot")
        self.W_rec = slot.matrix(N, 2 * N, "glorot")
        self.b = torch.nn.Parameter(torch.zeros(3 * N))

    def project(self, x):
        return self.affine(x, self.W_in, self.b)

    def begin(self, T, B):
        self.total = 0.0

    def step(self, u_t, state):
        h, m = state
        N = h.shape[1]
        m = self.mix * m + torch.tanh(u_t[:, N:])  # (B, 2N)
        h = torch.tanh(u_t[:, :N] + m @ self.W_rec.T)  # (B, N)
        if self.training:
            self.total = self.total + h.square().mean()
            self.collect("activity", self.total)
        return h, (h, m)


class PairStack(Stack):
    cell = PairCell


class PairLockstep(Lockstep):
    cell = PairCell


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(models.registry.ZOO, "entries", dict(models.registry.ZOO.entries))
    models.register("pair", start="learned")(PairStack)
    models.register("pair-lockstep", start="learned")(PairLockstep)


@pytest.mark.parametrize("name", ["pair", "pair-lockstep"])
def test_a_cell_of_ones_own_trains_through_a_recipe(tmp_path, name):
    run = make_run(
        model={"name": name, "hidden_size": 5, "num_layers": 2},
        training={"updates": 60},
        penalties={"activity": 1e-3},
        schedule={"name": "cosine", "warmup": 5},
        evaluation={"statistics_batches": None},
    )
    done = train(run, make_place(tmp_path))
    assert done.status == "completed"
    assert done.record.curve[-1].valid < done.record.curve[0].valid
    network = Training(run, backend="reference").network
    assert {n for n, _ in network.named_parameters() if "start_" in n} == {
        f"model.layers.{k}.start_{s}" for k in (0, 1) for s in ("h", "m")
    }


def test_penalties_enter_the_loss_with_their_weight():
    losses = {}
    for weight in (0.0, 2.0):
        run = make_run(
            model={"name": "pair", "hidden_size": 5, "num_layers": 1},
            penalties={"activity": weight} if weight else None,
        )
        training = Training(run, backend="reference")
        training.update()
        training.check_losses()
        losses[weight] = training.last_loss
        found = training.network.penalties()["activity"].item()
    assert losses[2.0] - losses[0.0] == pytest.approx(2 * found, rel=1e-5)


# --- optimisers -----------------------------------------------------------------------------------------------------


def network_of(**changes):
    settings = make_settings(**changes)
    torch.manual_seed(0)
    return Network(settings, tasks.build("adding", **settings.data), "reference")


@pytest.mark.parametrize(
    ("part", "plain"),
    [
        ({"name": "sgd", "lr": 0.1, "momentum": 0.9}, lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9)),
        ({"name": "rmsprop", "lr": 0.1, "alpha": 0.5}, lambda ps: torch.optim.RMSprop(ps, lr=0.1, alpha=0.5)),
        ({"name": "adam", "lr": 0.1, "betas": [0.5, 0.9]}, lambda ps: torch.optim.Adam(ps, lr=0.1, betas=(0.5, 0.9))),
    ],
)
def test_options_reach_the_optimiser(part, plain):
    ours, theirs = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    a, b = optimisers.build(Optimiser(**part), ours), plain(theirs.parameters())
    for step in range(3):
        for net, optimiser in ((ours, a), (theirs, b)):
            optimiser.zero_grad()
            net(torch.full((4, 3), 1.0 + step)).square().sum().backward()
            optimiser.step()
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_rates_by_pattern():
    part = Optimiser(name="sgd", lr=1.0, rates={"model.*": 0.5, "*.W_rec": 0.1})
    network = network_of()
    optimiser = optimisers.build(part, network)
    optimisers.set_rate(optimiser, 2.0)
    rate = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    named = dict(network.named_parameters())
    assert rate[id(named["model.layers.1.W_rec"])] == pytest.approx(0.2)
    assert rate[id(named["model.layers.1.W_s"])] == 1.0
    assert rate[id(named["readout.head.weight"])] == 2.0
    with pytest.raises(ValueError, match=r"optimiser\.rates: '\*\.W_reck' fits none"):
        optimisers.build(Optimiser(name="sgd", lr=1.0, rates={"*.W_reck": 0.1}), network)


class Twice(torch.optim.Optimizer):
    """Looks at the objective twice per step and keeps the better half of nothing: only counts."""

    takes_objective = True

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr})
        self.calls = 0

    def step(self, objective):
        first, second = objective(), objective()
        self.calls += 2
        assert torch.equal(first, second)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(group["lr"] * p.grad)
        return second


def test_an_optimiser_may_take_the_objective(monkeypatch):
    monkeypatch.setattr(optimisers, "_factories", dict(optimisers._factories))
    optimisers.register("twice")(lambda groups, lr: Twice(groups, lr))
    parts = {"model": {"name": "durnn", "hidden_size": 6, "num_layers": 1}, "schedule": None}
    twice = Training(make_run(optimiser={"name": "twice", "lr": 0.01}, **parts), backend="reference")
    plain = Training(make_run(optimiser={"name": "sgd", "lr": 0.01}, **parts), backend="reference")
    for _ in range(3):
        twice.update()
        plain.update()
    assert twice.optimiser.calls == 6
    for a, b in zip(twice.network.parameters(), plain.network.parameters(), strict=True):
        torch.testing.assert_close(a, b)


# --- schedules ------------------------------------------------------------------------------------------------------


def rates(part, steps, lr=1.0, updates=100, epoch=10):
    schedule = schedules.build(Schedule(**part), lr, updates, epoch)
    return [schedule.rate(step) for step in steps]


def test_rates_of_schedules_without_memory():
    assert rates({"name": "step", "factor": 0.1, "every": 20}, [0, 19, 20, 40]) == pytest.approx([1, 1, 0.1, 0.01])
    assert rates({"name": "step", "factor": 0.5, "every_epochs": 2}, [19, 20, 45]) == pytest.approx([1, 0.5, 0.25])
    late = {"name": "step", "factor": 0.5, "every_epochs": 1, "after_epochs": 2}
    assert rates(late, [0, 29, 30, 39, 40]) == pytest.approx([1, 1, 0.5, 0.5, 0.25])
    assert rates({"name": "cosine"}, [0, 50, 100]) == pytest.approx([1, 0.5, 0])
    assert rates({"name": "cosine", "min_lr": 0.2}, [50, 100, 200]) == pytest.approx([0.6, 0.2, 0.2])
    assert rates({"name": "constant", "warmup": 4}, [0, 1, 3, 4, 9]) == pytest.approx([0.25, 0.5, 1, 1, 1])


@pytest.mark.parametrize("reload", [True, False])
@pytest.mark.parametrize("halve", [True, False])
def test_plateau(reload, halve):
    part = {"name": "plateau", "factor": 0.5, "patience": 4, "min_lr": 0.2, "reload": reload, "halve_patience": halve}
    schedule = schedules.build(Schedule(**part), 1.0, 100, 1)
    decays = [schedule.judge(False) for _ in range(8)]
    expected = [3, 5, 6, 7] if halve else [3, 7]
    assert [number for number, decayed in enumerate(decays) if decayed] == expected
    assert schedule.reloads is reload
    other = schedules.build(Schedule(**part), 1.0, 100, 1)
    other.restore(schedule.state())
    assert other.rate(0) == schedule.rate(0) == 0.5 ** len(expected)
    assert schedule.finished == ("minimum-rate" if 0.5 ** len(expected) < 0.2 else None)


def test_plateau_rests_after_a_decay_and_ends_without_improvement():
    """As Keras' ReduceLROnPlateau and EarlyStopping with patience 2, cooldown 3 and patience 9."""
    part = {"name": "plateau", "factor": 0.1, "patience": 2, "min_lr": 0.0, "cooldown": 3, "stop": 9}
    schedule = schedules.build(Schedule(**part), 1.0, 100, 1)
    decays, ended = [], []
    for number, is_best in enumerate([True, *[False] * 3, True, *[False] * 9]):
        decays += [number] if schedule.judge(is_best) else []
        ended.append(schedule.finished)
        other = schedules.build(Schedule(**part), 1.0, 100, 1)
        other.restore(schedule.state())
        schedule = other
    # decay at 2; 3 to 5 rest; 6 and 7 count: decay; 8 to 10 rest; 11 and 12 count: decay; 13 is the ninth in a row
    assert decays == [2, 7, 12]
    assert ended == [None] * 13 + ["no-improvement"]
    for option in ("cooldown", "stop", "patience"):
        with pytest.raises(ValueError, match=f"{option}=-1 must not be negative"):
            schedules.build(Schedule(**part | {option: -1}), 1.0, 100, 1)


def test_a_training_without_improvement_ends_and_says_so(tmp_path):
    schedule = {"name": "plateau", "factor": 1.0, "patience": 5, "min_lr": 0.0, "stop": 2}
    run = make_run(schedule=schedule, evaluation={"every": 1}, optimiser={"lr": 1e-30})
    outcome = train(run, make_place(tmp_path))
    assert (outcome.status, outcome.ended) == ("completed", "no-improvement")
    assert outcome.record.curve[-1].step == 3


def test_plateau_reloads_only_if_asked():
    for reload in (True, False):
        run = make_run(
            schedule={"name": "plateau", "factor": 0.5, "patience": 1, "min_lr": 0.0, "reload": reload},
            evaluation={"every": 5},
        )
        training = Training(run, backend="reference")
        for _ in range(5):
            training.update()
        training.evaluate()
        best = copy.deepcopy(training.best_weights)
        for _ in range(5):
            training.update()
        training.best = -math.inf  # whatever comes is worse
        training.evaluate()
        same = all(torch.equal(v, best[k]) for k, v in training.network.state_dict().items())
        assert same is reload


# --- stages ---------------------------------------------------------------------------------------------------------

STAGED = {
    "training": {"updates": 30},
    "schedule": {"name": "cosine"},
    "evaluation": {"every": 10},
    "stages": [
        {"updates": 10, "freeze": ["readout.*"], "lr": 1e-3},
        {"updates": 8, "freeze": ["model.*"]},
        {},
    ],
}


def test_stages_freeze_what_they_say():
    training = Training(make_run(**STAGED), backend="reference")
    moved = []
    for _ in range(30):
        before = {k: v.clone() for k, v in training.network.named_parameters()}
        training.update()
        after = dict(training.network.named_parameters())
        moved.append({k.split(".")[0] for k in before if not torch.equal(before[k], after[k])})
    assert moved[:10] == [{"model"}] * 10
    assert moved[10:18] == [{"readout"}] * 8
    assert moved[18:] == [{"model", "readout"}] * 12
    assert training.rate_factor == 1.0


def test_stages_survive_a_stop(tmp_path):
    whole = train(make_run(**STAGED), make_place(tmp_path / "whole"))
    place = make_place(tmp_path / "stopped")
    for limit in (5, 10, 14, 18, 25):  # also where a stage ends
        training = limited(limit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Training, "update", training)
            assert train(make_run(**STAGED), place, stop=training.stop).status == "unfinished"
    assert outcome_of(train(make_run(**STAGED), place)) == outcome_of(whole)


def limited(limit):
    from reproduce.train.outcome import Stop

    original, stop = Training.update, Stop()

    def update(self):
        original(self)
        if self.step >= limit:
            stop.reason = "interrupted"

    update.stop = stop
    return update


def test_a_freeze_that_fits_nothing_is_an_error():
    with pytest.raises(ValueError, match=r"stages\.freeze: 'head' fits none"):
        Training(make_run(stages=[{"freeze": ["head"]}]), backend="reference")
