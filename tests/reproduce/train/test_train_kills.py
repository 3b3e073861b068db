"""Processes that are killed at random moments leave no trace in a run, for every kind of row that the recipes hold."""

import multiprocessing as mp
import os
import random
import signal

import pytest
from run_samples import Carrying, make_place, make_run, outcome_of

import tasks
from reproduce.plan import recipe
from reproduce.train.loop import Training, train

KILLS = 20
UPDATES_PER_KILL = 6


@pytest.fixture(autouse=True)
def carrying_task(monkeypatch):
    tasks.names()
    monkeypatch.setattr(tasks.registry, "_entries", dict(tasks.registry._entries))
    tasks.register("carrying")(Carrying)


def distinct_rows():
    """The first row of each kind: of model, options other than initial weights, optimiser and input."""
    found = {}
    for path in sorted(recipe.RECIPES.glob("*.toml")):
        loaded = recipe.load(path.stem)
        for row in loaded.rows:
            settings, _ = loaded.resolve(row, next(iter(loaded.cells)), "paper")
            options = {name for name in settings.model.options if not name.endswith("_init")}
            name = settings.input.name if settings.input else None
            found.setdefault((settings.model.name, *sorted(options), settings.optimiser.name, name), (path.stem, row))
    return list(found.values())


def small_run(name, row, kills):
    """The run of a row with few units, on a short task: dense values, or symbols with the state carried on."""
    loaded = recipe.load(name)
    settings, _ = loaded.resolve(row, next(iter(loaded.cells)), "paper")
    parts = settings.explicit()
    few = {option: 5 for option, value in parts["model"].items() if isinstance(value, int) and value > 30}
    changes = {key: value for key, value in parts.items() if key in ("optimiser", "clip", "input", "penalties")}
    changes["model"] = parts["model"] | few | {"hidden_size": 6}
    changes["data"] = None if settings.input else {"length": 8, "held_out": 40}
    changes["training"] = {"updates": UPDATES_PER_KILL * kills, "batch_size": 5}
    changes["evaluation"] = {"every": 10}
    if settings.schedule is None or settings.schedule.name != "plateau":
        changes["schedule"] = parts.get("schedule")
    else:
        changes["schedule"] = parts["schedule"] | {"patience": 1, "min_lr": 0.0}
    return make_run(task="carrying" if settings.input else "adding", **({"clip": None} | changes))


def live_for(updates, seconds, run, place):
    """Train, and die of a signal ``seconds`` after a number of updates, wherever the process is then."""
    original = Training.update

    def update(training):
        nonlocal updates
        original(training)
        updates -= 1
        if updates == 0:
            signal.setitimer(signal.ITIMER_REAL, seconds)

    Training.update = update
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if not updates:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    train(run, place)


def check_kills(name, row, kills, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # what a process has written outlives it; only a power cut differs
    run = small_run(name, row, kills)
    whole = train(run, make_place(tmp_path / "whole"))
    assert whole.status == "completed"
    one_update = whole.record.wall_seconds / whole.record.steps_done

    place = make_place(tmp_path / "killed", checkpoint_updates=1)
    dice = random.Random(f"{name} {row}")
    for number in range(kills):
        # three of four get far enough to leave something behind, one in four may not
        life = (
            (dice.randrange(1, 4), dice.uniform(1e-4, 3 * one_update)) if number % 4 else (0, dice.uniform(1e-4, 0.1))
        )
        process = mp.get_context("fork").Process(target=live_for, args=(*life, run, place))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGALRM, "the run ended before it was killed often enough"
    resumed = train(run, place)
    assert resumed.status == "completed"
    assert len(resumed.record.lineage) > kills // 3
    assert outcome_of(resumed) == outcome_of(whole)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "row"), distinct_rows())
def test_twenty_kills_leave_no_trace(name, row, tmp_path, monkeypatch):
    check_kills(name, row, KILLS, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "row"), [("table1", "lstm-recurrent-batchnorm-zoneout"), ("table2", "durnn-1-50-carried")]
)
def test_a_few_kills_leave_no_trace(name, row, tmp_path, monkeypatch):
    assert (name, row) in distinct_rows()
    check_kills(name, row, 4, tmp_path, monkeypatch)
