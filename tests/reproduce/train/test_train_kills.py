"""Processes that are killed at random moments leave no trace in a run, for every kind of row that the recipes hold."""

import multiprocessing as mp
import os
import random
import signal

import pytest
from run_samples import Carrying, Walking, make_place, make_run, outcome_of

import tasks
from reproduce.plan import recipe
from reproduce.train.loop import Training, train

KILLS = 20
UPDATES_PER_KILL = 6


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """Undone after each test, so that other tests see the suite's own tasks only."""
    tasks.names()
    monkeypatch.setattr(tasks.registry, "_entries", dict(tasks.registry._entries))
    tasks.register("carrying")(Carrying)
    tasks.register("walking")(Walking)


def resolved(name, row):
    """The parts of a row at the paper's budget, and its task."""
    loaded = recipe.load(name)
    cell = next(iter(loaded.cells))
    return loaded.resolve(row, cell, "paper")[0], loaded.cells[cell].task


def distinct_rows():
    """The first row of each kind: of model, options other than initial weights, optimiser, input and readout."""
    found = {}
    for path in sorted(recipe.RECIPES.glob("*.toml")):
        for row in recipe.load(path.stem).rows:
            settings, _ = resolved(path.stem, row)
            options = sorted(name for name in settings.model.options if not name.endswith("_init"))
            others = [part and part.name for part in (settings.optimiser, settings.input, settings.readout)]
            found.setdefault((settings.model.name, *options, *others), (path.stem, row))
    return list(found.values())


def small_run(name, row, kills):
    """The run of a row with few units, on a short task of its kind: numbers, symbols with the state carried on, or
    skeletons."""
    settings, task = resolved(name, row)
    parts, updates = settings.explicit(), UPDATES_PER_KILL * kills
    changes = {part: parts.get(part) for part in ("optimiser", "clip", "input", "readout", "penalties", "schedule")}
    for part in ("model", "input", "readout"):
        few = {option: 5 for option, value in parts.get(part, {}).items() if type(value) is int and value > 30}
        changes[part] = (parts[part] | few) if part in parts else None
    changes["model"] |= {"hidden_size": 6}
    if settings.schedule and settings.schedule.name == "plateau":
        changes["schedule"] |= {"patience": 1, "min_lr": 0.0}
    if settings.stages:
        each = {"updates": updates // len(settings.stages)}
        changes["stages"] = [stage | (each if "updates" in stage else {}) for stage in parts["stages"]]
    changes["training"] = {"updates": updates, "batch_size": 5}
    changes["evaluation"] = {"every": 10}
    if task.startswith("ntu"):
        data = {"whole": settings.data.get("frames") == "whole", "length": None, "held_out": None}
        return make_run(**changes | {"task": "walking", "data": data})
    if task.startswith("ptb"):
        return make_run(**changes | {"task": "carrying", "data": None})
    return make_run(**changes)


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
        # three of four get far enough to leave a checkpoint behind, that of the update before, one in four may not
        life = (
            (dice.randrange(2, 5), dice.uniform(1e-4, 3 * one_update)) if number % 4 else (0, dice.uniform(1e-4, 0.1))
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
