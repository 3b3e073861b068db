"""A run is never lost: kills, damage, a full disk, a second process, divergence, signals."""

import errno
import multiprocessing as mp
import os
import signal
import stat
import time

import pytest
import torch
from run_samples import Carrying, make_place, make_run, outcome_of

import tasks
from reproduce.execute.local import Inline
from reproduce.report import records
from reproduce.train import checkpoint, lease
from reproduce.train.loop import Training, train
from reproduce.train.outcome import Stop


def in_child(run, place):
    process = mp.get_context("fork").Process(target=train, args=(run, place), daemon=True)
    process.start()
    return process


CARRYING_MODELS = [
    {"name": "lstm", "norm": "after", "dropout": 0.2},
    {"name": "hyperlstm", "hyper_size": 5, "recurrent_dropout": 0.3, "input_dropout": 0.1, "output_dropout": 0.2},
    {"name": "hm-lstm", "slope_growth": 0.5},  # a slope that every epoch changes
    {"name": "mingru", "norm": "after", "dropout": 0.2},
    {"name": "lru", "dropout": 0.2},
    {"name": "urnn", "start_noise": 0.1},
    {"name": "rnn-trec", "W_rec_init": "identity", "dropout": 0.2},
    {"name": "mrnn", "norm": "after"},
    {"name": "gru", "dropout": 0.2},
]


@pytest.mark.parametrize("model", CARRYING_MODELS, ids=lambda model: model["name"])
def test_carried_state_survives_a_stop(model, tmp_path):
    changes = {
        "task": "carrying",
        "model": {"hidden_size": 6, "num_layers": 2} | model,
        "data": None,
        "input": {"name": "one-hot"},
        "schedule": {"name": "cosine"},
        "training": {"updates": 30},
        "evaluation": {"every": 10},
    }
    whole = train(make_run(**changes), make_place(tmp_path / "whole"))
    place = make_place(tmp_path / "stopped")
    for limit in (4, 13, 21):
        stopped = train(make_run(**changes), place, stop=StopAfter(limit))
        assert (stopped.status, stopped.record.steps_done, stopped.record.test) == ("unfinished", limit, None)
    assert outcome_of(train(make_run(**changes), place)) == outcome_of(whole)


class StopAfter(Stop):
    """Asks to stop once it has been looked at after ``limit`` updates of the whole run."""

    def __init__(self, limit):
        self.limit = limit

    @property
    def reason(self):
        return "interrupted" if Seen.step >= self.limit else None

    @reason.setter
    def reason(self, value):
        pass


class Seen:
    step = 0


@pytest.fixture(autouse=True)
def count_updates(monkeypatch):
    original = Training.update

    def update(self):
        original(self)
        Seen.step = self.step

    Seen.step = 0
    monkeypatch.setattr(Training, "update", update)


@pytest.fixture(autouse=True)
def carrying_task(monkeypatch):
    """Undone after each test, so that other tests see the suite's own tasks only."""
    tasks.names()
    monkeypatch.setattr(tasks.registry, "_entries", dict(tasks.registry._entries))
    tasks.register("carrying")(Carrying)


def stop_at(run, place, step):
    return train(run, place, stop=StopAfter(step))


def test_damaged_newest_checkpoint_falls_back(tmp_path):
    run = make_run(training={"updates": 60})
    whole = train(run, make_place(tmp_path / "whole"))
    place = make_place(tmp_path / "damaged", checkpoint_updates=10)
    stop_at(run, place, 35)
    folder = run.folder(place.runs)
    newest, _ = sorted(folder.glob("step-*.safetensors"), reverse=True)
    assert checkpoint.latest_step(folder) == 35
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="damaged"):
        resumed = train(run, place)
    assert outcome_of(resumed) == outcome_of(whole)
    assert resumed.record.lineage[-1].from_step == 30


def test_flipped_bit_is_noticed(tmp_path):
    run, place = make_run(training={"updates": 60}), make_place(tmp_path)
    stop_at(run, place, 20)
    (only,) = run.folder(place.runs).glob("step-*.safetensors")
    data = bytearray(only.read_bytes())
    data[-1] ^= 1
    only.write_bytes(data)
    with pytest.warns(UserWarning, match="sha256"):
        assert list(checkpoint.newest_first(run.folder(place.runs))) == []


def test_two_checkpoints_are_kept(tmp_path):
    run, place = make_run(training={"updates": 60}), make_place(tmp_path, checkpoint_updates=5)
    stop_at(run, place, 50)
    steps = sorted(int(p.name.split("-")[1]) for p in run.folder(place.runs).glob("step-*"))
    assert steps == [45, 50]


def test_full_disk_stops_with_a_message_and_keeps_the_last_state(tmp_path, monkeypatch):
    run = make_run(training={"updates": 60})
    whole = train(run, make_place(tmp_path / "whole"))
    place = make_place(tmp_path / "full", checkpoint_updates=10)
    real, writes = os.fsync, []

    def fsync(handle):
        if stat.S_ISREG(os.fstat(handle).st_mode):  # a checkpoint, not a folder
            writes.append(handle)
            if len(writes) == 3:
                raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    stopped = train(run, place)
    assert stopped.status == "failed"
    assert "disk is full" in stopped.message
    assert "update 20" in stopped.message
    assert not list(run.folder(place.runs).glob(".*part"))
    monkeypatch.setattr(os, "fsync", real)
    assert outcome_of(train(run, place)) == outcome_of(whole)


@pytest.mark.parametrize("every", [0, 50])
@pytest.mark.parametrize("what", ["final weights", "record"])
def test_a_disk_that_is_full_at_the_end_says_what_is_saved(tmp_path, monkeypatch, what, every):
    run = make_run(training={"updates": 60})
    whole = train(run, make_place(tmp_path / "whole"))
    place = make_place(tmp_path / "full", checkpoint_updates=every)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    module, name = (checkpoint, "save_weights") if what == "final weights" else (records, "write")
    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        stopped = train(run, place)
    assert stopped.status == "failed"
    unlike = "" if what == "final weights" else ", unlike its final weights,"
    state = "its state at update 50 is safe" if every else "no state of it had been saved before"
    assert stopped.message.startswith(f"the disk is full, so its {what}{unlike} could not be written; {state}")
    assert (run.folder(place.runs) / checkpoint.WEIGHTS).exists() == (what == "record")
    assert not list(place.records.glob("*.json"))
    assert outcome_of(train(run, place)) == outcome_of(whole)


def test_a_failure_on_a_full_disk_is_still_an_outcome(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint, "write_atomic", full)
    monkeypatch.setattr(lease.Lease, "write", full)
    place, heard = make_place(tmp_path, checkpoint_updates=10), []
    Inline().do([make_run()], place, lambda _, event: heard.append(event), Stop())
    assert heard[-1].status == "failed"
    assert "details could not be written" in heard[-1].message


def test_second_process_leaves_the_run_alone(tmp_path):
    run, place = make_run(), make_place(tmp_path, checkpoint_updates=5)
    process = in_child(run, place)
    folder = run.folder(place.runs)
    while not list(folder.glob("step-*")):
        assert process.is_alive()
        time.sleep(0.01)
    second = train(run, place)
    assert second.status == "busy"
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert lease.is_dead(folder, lease.look(folder)), "a killed process must not keep its lock"


def test_finished_run_is_skipped_and_never_tested_twice(tmp_path, monkeypatch):
    run, place = make_run(training={"updates": 20}), make_place(tmp_path)
    first = train(run, place)
    monkeypatch.setattr(Training, "test", lambda self: pytest.fail("tested again"))
    again = train(run, place)
    assert again.status == "skipped"
    assert again.record == first.record


def test_missing_weights_are_trained_again_when_needed(tmp_path):
    run, place = make_run(training={"updates": 20}), make_place(tmp_path, need_weights=True)
    first = train(run, place)
    assert train(run, place).status == "skipped"
    (run.folder(place.runs) / "weights.safetensors").unlink()
    again = train(run, place)
    assert again.status == "completed"
    assert outcome_of(again) == outcome_of(first)


def test_missing_weights_of_a_seed_that_no_figure_draws_are_not_trained_again(tmp_path):
    run, place = make_run(training={"updates": 20}, seed=1), make_place(tmp_path, need_weights=True)
    train(run, place)
    (run.folder(place.runs) / "weights.safetensors").unlink()
    assert train(run, place).status == "skipped"


@pytest.mark.parametrize("bad_step", [1, 5, 16, 17, 23])
def test_divergence_is_an_outcome_with_its_step(tmp_path, monkeypatch, bad_step):
    run, place = make_run(training={"updates": 60}), make_place(tmp_path)
    original = Training._next_batch

    def poisoned(self):
        x, y, mask = original(self)
        return x, y * (float("nan") if self.step + 1 == bad_step else 1.0), mask

    monkeypatch.setattr(Training, "_next_batch", poisoned)
    result = train(run, place)
    assert result.status == "diverged"
    assert result.record.diverged_at == bad_step
    assert result.record.test is None
    assert train(run, place).status == "skipped"


def test_test_split_is_only_read_at_the_end(tmp_path, monkeypatch):
    asked = []
    original = tasks.build("adding").__class__.batches

    def batches(self, split, *arguments, **options):
        asked.append(split)
        return original(self, split, *arguments, **options)

    monkeypatch.setattr(tasks.build("adding").__class__, "batches", batches)
    train(make_run(training={"updates": 40}), make_place(tmp_path))
    assert asked.count("test") == 1
    assert asked[-1] == "test"


def test_evaluation_leaves_no_trace_in_training():
    often, seldom = Training(make_run(evaluation={"every": 5}), backend="reference"), None
    for _ in range(20):
        often.update()
        often.evaluate()
    weights = checkpoint.weights_hash(dict(often.network.named_parameters()))
    seldom = Training(make_run(evaluation={"every": 5}), backend="reference")
    for _ in range(20):
        seldom.update()
    assert checkpoint.weights_hash(dict(seldom.network.named_parameters())) == weights


def test_statistics_are_re_estimated_from_training_data():
    training = Training(make_run(), backend="reference")
    for _ in range(10):
        training.update()
    norm = training.network.model.layers[0].after
    norm.running_mean.fill_(1e6)
    training.evaluate()
    first = norm.running_mean.clone()
    assert first.abs().max() < 100
    norm.running_mean.fill_(-1e6)
    training.evaluate()
    assert torch.equal(first, norm.running_mean), "the estimate must depend on weights and data alone"
    assert norm.momentum == 0.1


def test_time_limit_saves_and_stops(tmp_path):
    run = make_run(training={"updates": 100_000}, evaluation={"every": 1})
    place = make_place(tmp_path, deadline=time.monotonic() + 0.2)
    stopped = train(run, place)
    assert (stopped.status, stopped.record.ended) == ("unfinished", "time-limit")
    assert checkpoint.latest_step(run.folder(place.runs)) == stopped.record.steps_done
    assert records.read_all(place.records).good[0].status == "unfinished"


def test_weight_decay_spares_recurrent_weights_and_biases():
    training = Training(make_run(optimiser={"weight_decay": 0.5}), backend="reference")
    decay = {id(p): g["weight_decay"] for g in training.optimiser.param_groups for p in g["params"]}
    named = dict(training.network.named_parameters())
    assert set(decay) == {id(p) for p in named.values()}
    assert decay[id(named["readout.head.weight"])] == 0.5
    for name in ("readout.head.bias", "model.layers.0.W_rec", "model.layers.0.U", "model.layers.1.b_short"):
        assert decay[id(named[name])] == 0.0


def test_two_damaged_checkpoints_do_not_stop_checkpointing(tmp_path):
    run = make_run(training={"updates": 60})
    whole = train(run, make_place(tmp_path / "whole"))
    place = make_place(tmp_path / "damaged", checkpoint_updates=5)
    stop_at(run, place, 40)
    folder = run.folder(place.runs)
    for path in folder.glob("step-*.safetensors"):
        path.write_bytes(b"no longer a checkpoint")
    Seen.step = 0
    with pytest.warns(UserWarning, match="damaged"):
        stop_at(run, place, 20)
    assert checkpoint.latest_step(folder) == 20
    assert len(list(folder.glob("damaged-*"))) == 2
    assert outcome_of(train(run, place)) == outcome_of(whole)


@pytest.mark.parametrize("how", ["missing tensor", "wrong shape", "missing fact", "no facts"])
def test_whole_checkpoint_with_wrong_content_falls_back(tmp_path, how):
    run = make_run(training={"updates": 60})
    whole = train(run, make_place(tmp_path / "whole"))
    place = make_place(tmp_path / "odd", checkpoint_updates=10)
    stop_at(run, place, 20)
    folder = run.folder(place.runs)
    _, tensors, meta = next(checkpoint.newest_first(folder))
    if how == "missing tensor":
        del tensors["rng/cpu"]
    elif how == "wrong shape":
        tensors["network/readout.head.bias"] = torch.zeros(7)
    elif how == "missing fact":
        del meta["epoch"]
    checkpoint.save(folder, 30, tensors, {} if how == "no facts" else meta)
    with pytest.warns(UserWarning, match="damaged"):
        resumed = train(run, place)
    assert outcome_of(resumed) == outcome_of(whole)


@pytest.mark.parametrize("damage", ["cut", "replaced"])
def test_weights_that_are_not_those_of_the_record_are_trained_again(tmp_path, damage):
    run, place = make_run(training={"updates": 20}), make_place(tmp_path, need_weights=True)
    first = train(run, place)
    path = run.folder(place.runs) / checkpoint.WEIGHTS
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:50])
    else:
        checkpoint.save_weights(path.parent, {"model.layers.0.U": torch.zeros(6)})
    again = train(run, place)
    assert again.status == "completed"
    assert outcome_of(again) == outcome_of(first)
    assert checkpoint.load_weights(path.parent, first.record.weights_sha256) is not None


def test_a_run_does_the_same_in_a_worker_and_inline(tmp_path):
    """What decides the arithmetic is set by the training itself, and put back afterwards."""
    tiny = torch.tensor(1e-310, dtype=torch.float64)
    run = make_run(training={"updates": 20})
    torch.set_num_threads(2)
    try:
        inline = train(run, make_place(tmp_path / "inline", threads=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert (tiny * 1.0).item() == 1e-310
    assert inline.record.environment.threads == 1
    assert inline.record.environment.flushes_subnormals
    seen = {}
    original = Training.update

    def update(self):
        seen["flushed"] = (tiny * 1.0).item() == 0
        original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "update", update)
        train(run, make_place(tmp_path / "again", threads=1))
    assert seen["flushed"]
